"""The mysql-cdc connector: the changes of tables of MariaDB, with the options of Flink CDC."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from poundlock.connectors.mysql.source.source import MySqlSource
from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.connectors.cdc.rows import CdcProgram, PartOfName, TableColumns
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.tables import ConnectorColumn

_STARTS = {"initial": "initial", "latest-offset": "latest", "earliest-offset": "earliest", "snapshot": "snapshot"}
_SPECIFIC = "specific-offset"
_METADATA = ("database_name", "table_name", "op_ts")
_NAMES = re.compile(r"[\w$]+(?:\|[\w$]+)*")


class MySqlCdcTable:
    """Reads what changes in tables: the rows that are there at the first start, then every insert, update and delete."""

    def source(self, table: TableContext) -> TableSource:
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        names = self._names(options)
        given = {**self._given(options, names), **self._start(options)}
        metadata = self._metadata(table, options, names)
        skips_truncate = self._skips_truncate(options)
        self._done_in_any_case(options)
        options.finish("mysql-cdc")
        columns = [field for field in table.fields if field.name not in metadata]
        try:
            source = MySqlSource(columns=[field.name for field in columns], **given)
        except DefinitionError as error:
            raise OptionError(
                f"{table.name.name}: {error.what}", next=str(error.next), kind="bad_option_value"
            ) from None
        beside = {field.column: metadata[field.name] for field in table.fields if field.name in metadata}
        keys = tuple(field.name for field in table.fields if field.name in table.definition.primary_key)
        rows = TableColumns(table.fields, beside, EvaluationContext(table.zone), table.name.name)
        return TableSource(source, CdcProgram(rows, keys, skips_truncate=skips_truncate), is_updating=True)

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        raise OptionError(
            f"{table.name.name}: mysql-cdc is no sink",
            next="write into the table with 'connector' = 'jdbc'",
            kind="unsupported_query",
        )

    @staticmethod
    def _names(options: TableOptions) -> list[str]:
        text = options.required("table-name")
        if not _NAMES.fullmatch(text):
            raise OptionError(
                f"{options.table}: 'table-name' = {text!r} is a pattern, and tables are read by their names here",
                next="write 'table-name' = 'orders', or 'orders_1|orders_2' for tables with the same columns",
                kind="bad_option_value",
            )
        return text.split("|")

    @staticmethod
    def _given(options: TableOptions, names: list[str]) -> dict[str, Any]:
        """Return which tables of which server are read, and as whom."""
        user, host = options.required("username"), options.required("hostname")
        port, database = options.whole("port", 3306), options.required("database-name")
        zone = options.text("server-time-zone", "UTC")
        if zone not in ("UTC", "+00:00"):
            raise OptionError(
                f"{options.table}: 'server-time-zone' = {zone!r} has no effect: times of the log and of sessions are UTC here",
                next="leave it out",
                kind="bad_option_value",
            )
        made: dict[str, Any] = {
            "dsn": f"mysql://{quote(user, safe='')}@{quote(host, safe='[]:')}:{port}/{quote(database, safe='')}",
            "password": options.required("password"),
            "tables": [f"{database}.{name}" for name in names],
            "server_id": options.text("server-id"),
            "poll_every": f"{options.whole('debezium.poll.interval.ms', 500)} ms",
        }
        if options.text("scan.incremental.snapshot.chunk.size") is not None:
            made["chunk_size"] = options.whole("scan.incremental.snapshot.chunk.size")
        return made

    @staticmethod
    def _start(options: TableOptions) -> dict[str, Any]:
        mode = options.one_of("scan.startup.mode", (*_STARTS, _SPECIFIC), "initial")
        file, pos = options.text("scan.startup.specific-offset.file"), options.whole("scan.startup.specific-offset.pos")
        if mode != _SPECIFIC:
            if file is not None or pos is not None:
                raise OptionError(
                    f"{options.table}: 'scan.startup.specific-offset' has no effect with 'scan.startup.mode' = {mode!r}",
                    next=f"write 'scan.startup.mode' = '{_SPECIFIC}', or leave it out",
                    kind="bad_option_value",
                )
            return {"start": _STARTS[mode]}
        if file is None or pos is None:
            raise OptionError(
                f"{options.table} says neither file nor position of the place that it begins at",
                next="add 'scan.startup.specific-offset.file' = 'mysql-bin.000003' and 'scan.startup.specific-offset.pos' = '4'",
                kind="missing_option",
            )
        return {"start": f"{file}:{pos}"}

    @staticmethod
    def _skips_truncate(options: TableOptions) -> bool:
        """Return whether a TRUNCATE changes nothing; else it fails the job."""
        return options.one_of("debezium.skipped.operations", ("t", "none"), "none") == "t"

    @staticmethod
    def _done_in_any_case(options: TableOptions) -> None:
        """Read what is so in any case: the rows of before are read in chunks, and the position moves along."""
        if not options.flag("scan.incremental.snapshot.enabled", True):
            raise OptionError(
                f"{options.table}: 'scan.incremental.snapshot.enabled' = 'false' is not there: rows are read in chunks",
                next="leave it out",
                kind="bad_option_value",
            )
        options.span("heartbeat.interval")

    @staticmethod
    def _metadata(table: TableContext, options: TableOptions, names: list[str]) -> dict[str, Any]:
        """Return the columns of metadata: by name, the value that each row has, None for the time of the change."""
        known = {field.name for field in table.fields}
        made: dict[str, Any] = {}
        for column in table.definition.columns:
            if not isinstance(column, ConnectorColumn) or column.name not in known:
                continue
            if column.key not in _METADATA:
                raise OptionError(
                    f"{table.name.name}.{column.name}: a change has no metadata {column.key!r} here",
                    next=did_you_mean(column.key, _METADATA, f"use one of {', '.join(_METADATA)}"),
                    kind="unknown_column",
                )
            if column.key == "table_name" and len(names) > 1:
                made[column.name] = PartOfName(1)
            else:
                made[column.name] = None if column.key == "op_ts" else options.required(column.key.replace("_", "-"))
        return made
