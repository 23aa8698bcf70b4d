"""The jdbc connector: tables of databases, read and written with Flink's options.

A server of PostgreSQL is reached by the tasks themselves: a scan is one snapshot, rows go out by COPY. Other databases are reached through
their JDBC drivers: tasks read ranges, the driver writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from poundlock.connectors.jdbc.sink import JdbcSink
from poundlock.connectors.jdbc.source.source import JdbcSource
from poundlock.connectors.postgres.connection import PostgresLogin, identifier
from poundlock.connectors.postgres.sink.sink import PostgresSink
from poundlock.connectors.postgres.source.source import PostgresSource
from poundlock.errors import did_you_mean
from poundlock.sql.coercion import EXACT
from poundlock.sql.connectors.full_cache import FullCacheLookup
from poundlock.sql.connectors.jdbc.columns import DELETED, ServerRowsProgram, WrittenRowsProgram, server_name
from poundlock.sql.connectors.jdbc.conditions import conditions_of
from poundlock.sql.connectors.jdbc.lookup import PostgresLookup
from poundlock.sql.connectors.jdbc.options import JdbcOptions, PartitionOptions, options_of
from poundlock.sql.connectors.table import RowLookup, TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.pruning import ColumnsRead
from poundlock.sql.tables import ConnectorColumn, PhysicalColumn, TableDefinition


class JdbcTable:
    """Reads and writes tables of databases."""

    def columns_read(self, definition: TableDefinition) -> ColumnsRead:
        return "columns"

    def source(self, table: TableContext) -> TableSource:
        options = options_of(table)
        _refuse_metadata(table)
        if options.login is None:
            return _other_source(table, options)
        login = options.login
        names = {f.column: server_name(f.name) for f in table.fields}
        conditions = conditions_of(table.demand.conditions, names)
        given: dict[str, Any] = {"columns": list(dict.fromkeys(names.values()))}
        if options.partition is not None:
            given["ranges"] = _ranges(table, options.partition)
        where = " AND ".join(f"({each})" for each in conditions) or None
        if table.demand.limit is not None and options.partition is None:
            rows = f" WHERE {where}" if where else ""
            given["query"] = f"SELECT * FROM {options.table}{rows} LIMIT {table.demand.limit}"
        else:
            given |= {"table": options.table, "where": where}
        source = PostgresSource(login.dsn, password=login.password, **given)
        program = ServerRowsProgram(table.fields, names, table.name.name, EvaluationContext(table.zone))
        return TableSource(source, program)

    def lookup(self, table: TableContext, keys: Sequence[Field]) -> RowLookup:
        options = options_of(table)
        login = _lookup_login(table, options)
        names = {f.column: server_name(f.name) for f in table.fields}
        program = ServerRowsProgram(table.fields, names, table.name.name, EvaluationContext(table.zone))
        asked = PostgresLookup(
            login,
            options.table,
            tuple(dict.fromkeys(names.values())),
            tuple(names[f.column] for f in keys),
            program,
            options.cache,
            options.lookup_retries,
        )
        if options.full_reload is None:
            return asked
        return FullCacheLookup(asked, tuple(f.column for f in keys), options.full_reload)

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        options = options_of(table)
        _refuse_metadata(table)
        if overwrite:
            raise OptionError(
                f"{table.name.name}: jdbc takes no INSERT OVERWRITE",
                next="TRUNCATE the table in the database, then INSERT INTO",
                kind="unsupported_query",
            )
        key = tuple(f for f in table.fields if f.name in table.definition.primary_key)
        deletes = bool(key) and table.is_updating
        names = _written_names(table, options)
        keys = [names[f.column] for f in key] or None
        program = WrittenRowsProgram(table.fields, tuple(names.values()), table.name.name, deletes)
        schema = pa.schema([pa.field(names[f.column], f.type.arrow) for f in table.fields])
        if deletes:
            schema = schema.append(pa.field(DELETED, pa.bool_()))
        make = _other_sink if options.login is None else _postgres_sink
        sink = make(table, options, keys, DELETED if deletes else None)
        return TableSink(sink, program, schema, takes="upsert" if key else "append", key=tuple(f.column for f in key))


def _lookup_login(table: TableContext, options: JdbcOptions) -> PostgresLogin:
    """Return how rows are looked up.

    Raises:
        OptionError: they cannot be.
    """
    _refuse_metadata(table)
    if options.login is None:
        raise OptionError(
            f"{table.name.name}: looking rows up in {options.url.split(':')[1]} is not there yet: of databases, PostgreSQL is asked",
            next="look them up in 'url' = 'jdbc:postgresql://…', or join with the whole table",
            kind="unsupported_query",
        )
    return options.login


def _other_source(table: TableContext, options: JdbcOptions) -> TableSource:
    """Return what reads a table through a JDBC driver; conditions are the query's alone."""
    names = {f.column: f.name for f in table.fields}
    given: dict[str, Any] = {}
    if (partition := options.partition) is not None:
        given["partition_column"] = _partition_column(table, partition).name
        given |= {"partitions": partition.pieces, "lower_bound": partition.lower, "upper_bound": partition.upper}
    if options.fetch_size:
        given["fetch_size"] = options.fetch_size
    source = JdbcSource(
        options.url,
        table=options.table,
        columns=list(dict.fromkeys(names.values())),
        user=options.user,
        password=options.password,
        properties=options.properties,
        driver=options.driver,
        jars=options.jars,
        **given,
    )
    return TableSource(source, ServerRowsProgram(table.fields, names, table.name.name, EvaluationContext(table.zone)))


def _written_names(table: TableContext, options: JdbcOptions) -> Mapping[str, str]:
    """Return what the server calls columns, by their names in batches; a sink of a JDBC driver looks for them in any case of letters."""
    return {f.column: f.name if options.login is None else server_name(f.name) for f in table.fields}


def _postgres_sink(
    table: TableContext, options: JdbcOptions, key: list[str] | None, deleted: str | None
) -> PostgresSink:
    assert options.login is not None
    return PostgresSink(
        options.login.dsn,
        options.table,
        key=key,
        guarantee=None if key else options.guarantee,  # type: ignore[arg-type]
        delete_when=deleted,
        password=options.login.password,
    )


def _other_sink(table: TableContext, options: JdbcOptions, key: list[str] | None, deleted: str | None) -> JdbcSink:
    if options.staging is None:
        raise OptionError(
            f"{table.name.name} has no option 'sink.staging': the driver writes to this database, and rows wait in files until they are decided",
            next="WITH ('sink.staging' = '…') of the table: a folder that tasks and driver reach, for this table alone",
            kind="missing_option",
        )
    return JdbcSink(
        options.url,
        options.table,
        staging=options.staging,
        key=key,
        delete_when=deleted,
        user=options.user,
        password=options.password,
        properties=options.properties,
        driver=options.driver,
        jars=options.jars,
        batch=options.rows_per_statement,
    )


def _refuse_metadata(table: TableContext) -> None:
    for column in table.definition.columns:
        if isinstance(column, ConnectorColumn):
            raise OptionError(
                f"{table.name.name}.{column.name}: jdbc has no metadata {column.key!r}",
                next="declare it as a column, without METADATA",
                kind="unknown_column",
            )


def _ranges(table: TableContext, partition: PartitionOptions) -> list[str]:
    """Return a condition for each piece of a scan. As in Flink rows outside of the bounds are not read.

    Raises:
        OptionError: there is no such column, or it is no number.
    """
    column = _partition_column(table, partition)
    name = identifier(server_name(column.name))
    count = partition.upper - partition.lower + 1
    borders = [partition.lower + count * piece // partition.pieces for piece in range(partition.pieces)]
    ends = [*borders[1:], None]  # a decimal may lie between two whole numbers
    return [
        f"{name} >= {low} AND {name} {'<=' if high is None else '<'} {partition.upper if high is None else high}"
        for low, high in zip(borders, ends, strict=True)
    ]


def _partition_column(table: TableContext, partition: PartitionOptions) -> PhysicalColumn:
    """Return the column by which a scan is cut. Raises OptionError: there is none, or it is no number."""
    column = _column(table, partition.column)
    if column.type.root not in EXACT:
        raise OptionError(
            f"{table.name.name}: 'scan.partition.column' = {column.name!r} is {column.type}, and the bounds are whole numbers",
            next="name a column of whole numbers, or leave 'scan.partition' out: a scan is cut by itself",
            kind="type_mismatch",
        )
    return column


def _column(table: TableContext, name: str) -> PhysicalColumn:
    known = {each.name: each for each in table.definition.columns if isinstance(each, PhysicalColumn)}
    if name not in known:
        raise OptionError(
            f"{table.name.name}: 'scan.partition.column' = {name!r} is no column",
            next=did_you_mean(name, known, f"use one of {', '.join(known)}"),
            kind="unknown_column",
        )
    return known[name]
