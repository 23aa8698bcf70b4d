"""The postgres-cdc connector: the changes of a table of PostgreSQL, with the options of Flink CDC."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

from poundlock.connectors.postgres.source.source import PostgresSource
from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.connectors.cdc.rows import CdcProgram, PartOfName, SnapshotProgram, TableColumns
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext, TableSink, TableSource
from poundlock.sql.connectors.upserts import gives_upserts
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.tables import ConnectorColumn

_STARTS = ("initial", "latest-offset", "snapshot")
_PUBLICATION = "dbz_publication"
"""The publication that Debezium reads where none is named."""
_METADATA = ("database_name", "schema_name", "table_name", "op_ts")
_IN_PATTERNS = re.compile(r"[*+?\[\](){}|\\^]")
"""What stands in regular expressions, and as good as never in names of tables."""


class PostgresCdcTable:
    """Reads what changes in a table: the rows that are there at the first start, then every insert, update and delete."""

    def source(self, table: TableContext) -> TableSource:
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        is_upsert = gives_upserts(table.definition)
        start = options.one_of("scan.startup.mode", _STARTS, "initial")
        given = self._given(options)
        metadata = self._metadata(table, options)
        changes = self._changes(table, options, start, is_upsert=is_upsert)
        skips_truncate = self._skips_truncate(options)
        for name in ("scan.incremental.snapshot.enabled", "heartbeat.interval.ms"):
            options.text(name)  # a snapshot is read in parts, and the position moves along, in any case
        options.finish("postgres-cdc")
        columns = [field for field in table.fields if field.name not in metadata]
        try:
            source = PostgresSource(columns=[field.name for field in columns], **given, **changes)
        except DefinitionError as error:
            raise OptionError(
                f"{table.name.name}: {error.what}", next=str(error.next), kind="bad_option_value"
            ) from None
        beside = {field.column: metadata[field.name] for field in table.fields if field.name in metadata}
        rows = TableColumns(table.fields, beside, EvaluationContext(table.zone), table.name.name)
        if start == "snapshot":
            return TableSource(source, SnapshotProgram(rows, is_upsert), is_updating=is_upsert)
        keys = tuple(field.name for field in columns if field.name in table.definition.primary_key)
        program = CdcProgram(rows, keys, is_upsert, skips_truncate)
        return TableSource(source, program, is_updating=True)

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        raise OptionError(
            f"{table.name.name}: postgres-cdc is no sink",
            next="write into the table with 'connector' = 'jdbc'",
            kind="unsupported_query",
        )

    @staticmethod
    def _given(options: TableOptions) -> dict[str, Any]:
        """Return which tables of which server are read, and as whom."""
        user, host = options.required("username"), options.required("hostname")
        port, database = options.whole("port", 5432), options.required("database-name")
        schema, table = options.required("schema-name"), options.required("table-name")
        plugin = options.text("decoding.plugin.name", "pgoutput")
        if plugin != "pgoutput":
            raise OptionError(
                f"{options.table}: 'decoding.plugin.name' = {plugin!r}, whose changes cannot be read here",
                next="write 'decoding.plugin.name' = 'pgoutput', which each server has",
                kind="bad_option_value",
            )
        where = f"{quote(user, safe='')}@{quote(host, safe='[]:')}:{port}/{quote(database, safe='')}"
        key = options.text("scan.incremental.snapshot.chunk.key-column")
        return {
            "dsn": f"postgresql://{where}",
            "password": options.required("password"),
            **_tables(schema, table),
            "key": key,
        }

    @staticmethod
    def _changes(table: TableContext, options: TableOptions, start: str, *, is_upsert: bool) -> Mapping[str, Any]:
        """Return how the table is read."""
        options.one_of("changelog-mode", ("all", "upsert"), "all")
        if options.text("changelog-mode", "all") == "upsert" and not table.definition.primary_key:
            raise OptionError(
                f"{options.table} has no primary key, by which upserts tell rows apart",
                next="declare PRIMARY KEY (…) NOT ENFORCED, or write 'changelog-mode' = 'all'",
                kind="primary_key",
            )
        publication = options.text("debezium.publication.name", _PUBLICATION)
        poll = options.whole("debezium.poll.interval.ms", 500)
        chunk = options.whole("scan.incremental.snapshot.chunk.size")
        if chunk is not None and start != "initial":
            raise OptionError(
                f"{options.table}: 'scan.incremental.snapshot.chunk.size' has no effect with 'scan.startup.mode' = {start!r}",
                next="leave it out",
                kind="bad_option_value",
            )
        if start == "snapshot":
            options.text("slot.name")
            if _is_pattern(options):
                raise OptionError(
                    f"{options.table}: 'scan.startup.mode' = 'snapshot' reads one table, and its name is a pattern",
                    next="write 'scan.startup.mode' = 'initial', or the name of one table",
                    kind="bad_option_value",
                )
            return {"mode": "snapshot"}
        before: Literal["key", "full"] = "key" if is_upsert else "full"
        return {
            "mode": "cdc",
            "slot": options.required("slot.name"),
            "publication": publication,
            "initial": "snapshot" if start == "initial" else "none",
            "before": before,
            "chunk_size": chunk,
            "poll_every": f"{poll} ms",
        }

    @staticmethod
    def _skips_truncate(options: TableOptions) -> bool:
        """Return whether a TRUNCATE changes nothing; else it fails the job."""
        skipped = options.text("debezium.skipped.operations", "none")
        if skipped not in ("t", "none"):
            raise OptionError(
                f"{options.table}: 'debezium.skipped.operations' = {skipped!r} cannot be",
                next="write 't' to pass over TRUNCATE; inserts, updates and deletes are filtered by the query",
                kind="bad_option_value",
            )
        return skipped == "t"

    @staticmethod
    def _metadata(table: TableContext, options: TableOptions) -> dict[str, Any]:
        """Return the columns of metadata: by name, the value that each row has, None for the time of the change."""
        known = {field.name for field in table.fields}
        made: dict[str, Any] = {}
        for column in table.definition.columns:
            if not isinstance(column, ConnectorColumn) or column.name not in known:
                continue
            if column.key not in _METADATA:
                raise OptionError(
                    f"{table.name.name}.{column.name}: a change has no metadata {column.key!r}",
                    next=did_you_mean(column.key, _METADATA, f"use one of {', '.join(_METADATA)}"),
                    kind="unknown_column",
                )
            if _is_pattern(options) and column.key in _PARTS:
                made[column.name] = _PARTS[column.key]
            else:
                made[column.name] = None if column.key == "op_ts" else options.required(column.key.replace("_", "-"))
        return made


_PARTS = {"schema_name": PartOfName(0), "table_name": PartOfName(1)}


def _is_pattern(options: TableOptions) -> bool:
    """Return whether several tables may be meant, as Flink has it: by regular expressions of schema and table."""
    return any(_IN_PATTERNS.search(options.required(name)) for name in ("schema-name", "table-name"))


def _tables(schema: str, table: str) -> dict[str, Any]:
    patterns = [name if _IN_PATTERNS.search(name) else re.escape(name) for name in (schema, table)]
    if patterns == [re.escape(schema), re.escape(table)]:
        return {"table": f"{_quoted(schema)}.{_quoted(table)}"}
    return {"tables": [f"(?:{patterns[0]})\\.(?:{patterns[1]})"]}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
