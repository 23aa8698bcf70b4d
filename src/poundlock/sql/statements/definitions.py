"""CREATE, DROP, ALTER and DESCRIBE: what they do to the catalogs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.analysis.context import Analysis
from poundlock.sql.analysis.query import QueryAnalysis
from poundlock.sql.analysis.tables import scanned
from poundlock.sql.catalog import Catalogs, Kind, ViewDefinition, view_of
from poundlock.sql.dialect import Flink
from poundlock.sql.statements.inserts import written_into
from poundlock.sql.statements.results import Done, Result, RunsInserts, ShownRows, SinkTable
from poundlock.sql.tables import (
    ComputedColumn,
    ConnectorColumn,
    LikeClause,
    PhysicalColumn,
    TableColumn,
    TableDefinition,
    name_of,
    table_of,
)
from poundlock.sql.types import STRING, SqlType

_DESCRIBED = (
    ("name", STRING),
    ("type", STRING),
    ("null", SqlType("BOOLEAN")),
    ("key", STRING),
    ("extras", STRING),
    ("watermark", STRING),
)
_COPIED = ("ALL", "COLUMNS", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")  # fmt: skip


def create(catalogs: Catalogs, analysis: Analysis, created: exp.Create, text: str) -> Result:
    """Do what a CREATE statement says; return the query that fills the table, where there is one.

    Raises:
        SqlError, DefinitionError: it cannot be done.
    """
    kind = str(created.args["kind"]).upper()
    if kind == "TABLE":
        return _create_table(catalogs, analysis, created)
    if kind == "VIEW":
        _create_view(catalogs, analysis, created, text)
        return Done()
    raise analysis.missing(created, f"CREATE {kind}")


def _create_table(catalogs: Catalogs, analysis: Analysis, created: exp.Create) -> Result:
    definition = table_of(created, analysis.script)
    if definition.like is not None:
        definition = _alike(catalogs, definition, definition.like)
    replaces = bool(created.args.get("replace"))
    if replaces and definition.query is None:
        raise analysis.error(
            created.this,
            "CREATE OR REPLACE TABLE without AS SELECT",
            "write ALTER TABLE, or DROP and CREATE it",
            "syntax",
        )
    taken = _is_taken(catalogs, analysis, created, definition.name, temporary=definition.is_temporary)
    if taken and not replaces:
        if definition.if_not_exists:
            return Done()
        raise _table_exists(analysis, created, definition.name)
    if definition.query is not None:
        relation = QueryAnalysis(analysis).relation(definition.query)
        untyped = next((f.name for f in relation.fields if f.type.root == "NULL"), None)
        if untyped is not None:
            what = f"the column {untyped} is NULL and of no type"
            raise analysis.error(created.this, what, "write its type, such as CAST(NULL AS STRING)", "type_mismatch")
        columns = tuple(PhysicalColumn(f.name, f.type) for f in relation.fields)
        definition = replace(definition, columns=(*definition.columns, *columns))
    if definition.query is None:
        scanned(analysis.of_script(definition.script), catalogs.full_name(definition.name), definition)
    if taken:
        catalogs.replace(definition.name, definition)
    else:
        catalogs.create(definition.name, definition, temporary=definition.is_temporary)
    if definition.query is None:
        return Done()
    name = catalogs.full_name(definition.name)
    into = written_into(analysis, created.this, definition, relation, [])
    return RunsInserts((SinkTable(name, definition, into),))


def _create_view(catalogs: Catalogs, analysis: Analysis, created: exp.Create, text: str) -> None:
    if not isinstance(created.expression, exp.Query):
        raise analysis.error(created, "a view without a query", "write CREATE VIEW name AS SELECT …", "syntax")
    view = view_of(created, text, catalogs.catalog, catalogs.database, analysis.script)
    columns = view.columns
    properties = created.args.get("properties")
    kinds = properties.expressions if properties is not None else ()
    made = QueryAnalysis(analysis).relation(view.query)
    if columns and len(columns) != len(made.fields):
        raise analysis.error(
            created,
            f"a view with {len(columns)} names for {len(made.fields)} columns",
            "give each column of its query a name",
            "column_count_mismatch",
        )
    temporary = any(isinstance(each, exp.TemporaryProperty) for each in kinds)
    name = name_of(created.this)
    if created.args.get("replace") and not temporary and catalogs.has_view(name):
        catalogs.replace(name, view)
        return
    if _is_taken(catalogs, analysis, created, name, temporary=temporary):
        if created.args.get("exists"):
            return
        raise _table_exists(analysis, created, name)
    catalogs.create(name, view, temporary=temporary)


def _is_taken(
    catalogs: Catalogs, analysis: Analysis, node: exp.Expr, name: tuple[str, ...], *, temporary: bool
) -> bool:
    whole = catalogs.full_name(name)
    try:
        return catalogs.has(whole, temporary=temporary)
    except DefinitionError as error:
        raise analysis.error(node.this, error.what, error.next, "unknown_table") from None


def _table_exists(analysis: Analysis, node: exp.Expr, name: tuple[str, ...]) -> Exception:
    return analysis.error(
        node.this,
        f"there is a table or view {'.'.join(name)} already",
        "give another name, write IF NOT EXISTS, or DROP it first",
        "table_exists",
    )


# --- LIKE ------------------------------------------------------------------------------------------------------------


def _alike(catalogs: Catalogs, definition: TableDefinition, like: LikeClause) -> TableDefinition:
    """Return a definition with what it takes over of another table."""
    _, source = catalogs.find(like.table)
    if isinstance(source, ViewDefinition):
        raise DefinitionError(f"LIKE {'.'.join(like.table)}, which is a view", next="name a table")
    how = dict.fromkeys(_COPIED, "INCLUDING")
    for word, what in like.kept:
        if what not in _COPIED:
            raise DefinitionError(f"LIKE … {word} {what}", next=f"name one of {', '.join(_COPIED)}")
        for each in _COPIED if what == "ALL" else (what,):
            how[each] = word
    kept: list[TableColumn] = [each for each in source.columns if _is_kept(each, how)]
    own = {each.name for each in definition.columns}
    overwritten = how["GENERATED"] == "OVERWRITING" or how["METADATA"] == "OVERWRITING"
    for column in kept:
        if column.name in own and not overwritten:
            raise DefinitionError(
                f"the column {column.name} is in the table and in {'.'.join(like.table)}", next="leave one of them out"
            )
    options = dict(source.options) if how["OPTIONS"] != "EXCLUDING" else {}
    return replace(
        definition,
        columns=(*(each for each in kept if each.name not in own), *definition.columns),
        watermark=definition.watermark or (source.watermark if how["WATERMARKS"] != "EXCLUDING" else None),
        primary_key=definition.primary_key or (source.primary_key if how["CONSTRAINTS"] != "EXCLUDING" else ()),
        partitioned_by=definition.partitioned_by or (source.partitioned_by if how["PARTITIONS"] != "EXCLUDING" else ()),
        options={**options, **definition.options},
    )


def _is_kept(column: TableColumn, how: dict[str, str]) -> bool:
    if isinstance(column, ComputedColumn):
        return how["GENERATED"] != "EXCLUDING"
    if isinstance(column, ConnectorColumn):
        return how["METADATA"] != "EXCLUDING"
    return how["COLUMNS"] != "EXCLUDING"


# --- DROP ------------------------------------------------------------------------------------------------------------


def drop(catalogs: Catalogs, analysis: Analysis, dropped: exp.Drop) -> None:
    """Do what a DROP statement says; raises as `create`."""
    kind, if_exists = str(dropped.args["kind"]).upper(), bool(dropped.args.get("exists"))
    temporary = bool(dropped.args.get("temporary"))
    for target in dropped.args.get("tables") or [dropped.this]:
        name = name_of(target)
        try:
            if kind in ("TABLE", "VIEW"):
                kinds: dict[str, Kind] = {"TABLE": "table", "VIEW": "view"}
                catalogs.drop(name, kinds[kind], temporary=temporary, if_exists=if_exists)
            elif kind in ("DATABASE", "SCHEMA"):
                catalogs.drop_database(name, if_exists=if_exists, cascade=bool(dropped.args.get("cascade")))
            else:
                raise analysis.missing(dropped, f"DROP {kind}")
        except DefinitionError as error:
            if type(error) is not DefinitionError:
                raise
            raise analysis.error(target, error.what, error.next, "unknown_table") from None


# --- DESCRIBE --------------------------------------------------------------------------------------------------------


def describe(analysis: Analysis, target: exp.Expr) -> ShownRows:
    """Return what DESCRIBE shows of a table or view; raises as `create`."""
    name = name_of(target)
    try:
        whole, relation = analysis.catalogs.find(name)
    except DefinitionError as error:
        raise analysis.error(target, error.what, error.next, "unknown_table") from None
    if isinstance(relation, ViewDefinition):
        made = QueryAnalysis(analysis).view(relation)
        names = relation.columns or [each.name for each in made.fields]
        rows = [
            (given, _type_text(f.type, f.time), f.type.is_nullable, None, None, None)
            for given, f in zip(names, made.fields, strict=True)
        ]
        return ShownRows(_DESCRIBED, rows)
    return ShownRows(_DESCRIBED, list(described(analysis, whole, relation)))


def described(analysis: Analysis, name: Any, table: TableDefinition) -> Iterator[tuple[Any, ...]]:
    """Yield name, type, whether it may be NULL, key, what it is made of and watermark of each column."""
    fields = {each.name: each for each in scanned(analysis, name, table).fields}
    for column in table.columns:
        field = fields[column.name]
        key = f"PRI({', '.join(table.primary_key)})" if column.name in table.primary_key else None
        watermark = table.watermark
        is_time = watermark is not None and watermark.column == (column.name,)
        yield (
            column.name,
            _type_text(field.type, field.time),
            field.type.is_nullable,
            key,
            _extras(column),
            _text(watermark.expression) if watermark is not None and is_time else None,
        )


def _type_text(kind: SqlType, time: str | None) -> str:
    return f"{kind} *{time.upper()}*" if time is not None else str(kind)


def _extras(column: TableColumn) -> str | None:
    if isinstance(column, ComputedColumn):
        return f"AS {_text(column.expression)}"
    if isinstance(column, ConnectorColumn):
        key = "" if column.key == column.name else f" FROM '{column.key}'"
        return f"METADATA{key}{' VIRTUAL' if column.is_virtual else ''}"
    return None


def _text(expression: exp.Expr) -> str:
    """Return an expression as Flink writes it: every name in backquotes."""

    def quoted(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Anonymous):
            return exp.Anonymous(this=f"`{str(node.this).strip('`')}`", expressions=node.expressions)
        return node

    return expression.copy().transform(quoted).sql(dialect=Flink, identify=True, normalize_functions=False)
