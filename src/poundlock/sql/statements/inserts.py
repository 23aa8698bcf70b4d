"""INSERT: which column of a query goes into which of a table, and whether it may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.analysis.context import Analysis
from poundlock.sql.analysis.hints import hinted
from poundlock.sql.analysis.query import QueryAnalysis
from poundlock.sql.analysis.scope import QueryScope
from poundlock.sql.catalog import ViewDefinition
from poundlock.sql.coercion import BINARIES, INTEGERS, NESTED, NUMBERS, TEXTS, TIMESTAMPS
from poundlock.sql.expressions.tree import Expression, Literal, cast_to
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import LogicalProject, LogicalRelation
from poundlock.sql.statements.results import SinkTable
from poundlock.sql.tables import ComputedColumn, ConnectorColumn, PhysicalColumn, TableDefinition, name_of
from poundlock.sql.types import SqlType


def insert_of(analysis: Analysis, insert: exp.Insert) -> SinkTable:
    """Return what an INSERT writes.

    Raises:
        SqlError: the table is not known, columns are too many, too few or of other types.
    """
    target = insert.this
    named = [each.name for each in target.expressions] if isinstance(target, exp.Schema) else []
    table = target.this if isinstance(target, exp.Schema) else target
    try:
        name, definition = analysis.catalogs.find(name_of(table))
    except DefinitionError as error:
        raise analysis.error(table, error.what, error.next, "unknown_table") from None
    if isinstance(definition, ViewDefinition):
        raise analysis.error(table, f"{name.name} is a view", "INSERT INTO a table", "unsupported_query")
    definition = hinted(analysis, table, definition)
    overwrite = bool(insert.args.get("overwrite"))
    if overwrite and not analysis.is_batch:
        raise analysis.error(
            table, "INSERT OVERWRITE in a stream", "SET 'execution.runtime-mode' = 'batch' first", "unsupported_query"
        )
    static = _static_partition(analysis, table, definition, named)
    relation = QueryAnalysis(analysis).relation(insert.expression)
    into = written_into(analysis, table, definition, relation, named, static)
    return SinkTable(name, definition, into, overwrite, tuple(static.items()))


def _static_partition(
    analysis: Analysis, table: exp.Expr, definition: TableDefinition, named: list[str]
) -> dict[str, Expression]:
    """Return the values of PARTITION (column = value, …), by column, in the order of the table's partitions.

    Raises:
        SqlError: one is of no column that the table is partitioned by, or is no value.
    """
    partition = table.args.get("partition")
    given: dict[str, Expression] = {}
    for each in partition.expressions if partition is not None else ():
        name = each.this.name if isinstance(each, exp.EQ) else each.name
        if name not in definition.partitioned_by or name in named:
            known = ", ".join(definition.partitioned_by) or "none"
            raise analysis.error(
                table,
                f"{table.name} is not partitioned by {name}" if name not in named else f"{name} is named twice",
                f"its partitions are by: {known}; name each column once",
                "unknown_column",
            )
        value = analysis.expression(each.expression, QueryScope(analysis.script)) if isinstance(each, exp.EQ) else None
        if not isinstance(value, Literal):
            raise analysis.error(table, f"PARTITION ({name}) without a value", f"write PARTITION ({name} = 'value')")
        given[name] = value
    return {name: given[name] for name in definition.partitioned_by if name in given}


def written_columns(definition: TableDefinition) -> list[PhysicalColumn | ConnectorColumn]:
    """Return the columns of a table that are written to, in their order."""
    return [
        each
        for each in definition.columns
        if not isinstance(each, ComputedColumn) and not (isinstance(each, ConnectorColumn) and each.is_virtual)
    ]


def written_into(
    analysis: Analysis,
    table: exp.Expr,
    definition: TableDefinition,
    relation: LogicalRelation,
    named: list[str],
    static: Mapping[str, Expression] = MappingProxyType({}),
) -> LogicalRelation:
    """Return a query's rows as a table's.

    Args:
        named: the columns that the INSERT names; none for all in their order.
        static: the values of columns that the query does not give.

    Raises:
        SqlError: they do not go together.
    """
    columns = written_columns(definition)
    by_name = {each.name: each for each in columns}
    for name in named:
        if name not in by_name:
            raise analysis.error(
                table, f"{table.name} has no column {name}", did_you_mean(name, by_name), "unknown_column"
            )
        if named.count(name) > 1:
            raise analysis.error(table, f"{name} is named twice", "name each column once", "duplicate_column")
    wanted = [by_name[name] for name in named] or [each for each in columns if each.name not in static]
    if len(wanted) != len(relation.fields):
        raise analysis.error(
            table,
            f"a query of {len(relation.fields)} columns into {len(wanted)} of {table.name}",
            f"select {', '.join(each.name for each in wanted)}",
            "sink_schema_mismatch",
        )
    given: dict[str, Expression] = {name: cast_to(value, by_name[name].type) for name, value in static.items()}
    for column, field in zip(wanted, relation.fields, strict=True):
        if not can_store(field.type, column.type):
            raise analysis.error(
                table,
                f"{field.name} of type {field.type} into {column.name} of type {column.type}",
                f"CAST({field.name} AS {column.type})",
                "sink_schema_mismatch",
            )
        given[column.name] = _stored(field, column.type)
    for column in columns:
        if column.name not in given:
            if not column.type.is_nullable:
                raise analysis.error(
                    table,
                    f"{column.name} is NOT NULL, and the INSERT does not name it",
                    f"name {column.name} and give it a value",
                    "sink_schema_mismatch",
                )
            given[column.name] = Literal(None, column.type)
    fields = tuple(Field(each.name, analysis.names.fresh(each.name), each.type) for each in columns)
    fields = tuple(
        replace(f, time=next((g.time for c, g in zip(wanted, relation.fields, strict=True) if c.name == f.name), None))
        for f in fields
    )
    return LogicalProject(fields, relation, tuple(given[each.name] for each in columns))


def can_store(given: SqlType, wanted: SqlType) -> bool:
    """Return whether a value goes into a column of another type without a CAST: Flink's rules, by which none loses what it is."""
    if given.root == "NULL":
        return wanted.is_nullable
    if wanted.root in INTEGERS:
        return given.root in INTEGERS[: INTEGERS.index(wanted.root) + 1]
    if wanted.root == "FLOAT":
        return given.root in (*INTEGERS, "FLOAT", "DECIMAL")
    if wanted.root in ("DECIMAL", "DOUBLE"):
        return given.root in NUMBERS
    for family in (TEXTS, BINARIES, TIMESTAMPS):
        if wanted.root in family:
            return given.root in family
    if wanted.root in NESTED:
        same = given.root == wanted.root and len(given.of) == len(wanted.of)
        return same and all(map(can_store, given.of, wanted.of))
    return given.root == wanted.root


def _stored(field: Field, wanted: SqlType) -> Expression:
    """Return a column as a table's: a text that has its length already is left as it is, whatever it holds."""
    return cast_to(field.ref, wanted)
