"""The delta connector: Delta tables, with the options of Flink's Delta connector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.delta.sink.sink import DeltaSink
from poundlock.connectors.delta.source.source import DeltaSource
from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.formats.arrays import Numbers
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.connectors.filesystem import bulk_schema
from poundlock.sql.connectors.jdbc.columns import DELETED, ServerRowsProgram, WrittenRowsProgram
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.formats.format import FormatColumn
from poundlock.sql.relations.pruning import ColumnsRead
from poundlock.sql.tables import ConnectorColumn, TableDefinition

_KINDS = {"insert": "+I", "update_preimage": "-U", "update_postimage": "+U", "delete": "-D"}
_STREAMING = ("startingVersion", "startingTimestamp", "ignoreDeletes", "ignoreChanges", "readChangeFeed")
_CHANGE = "_change_type"


class DeltaTable:
    """Reads and writes Delta tables."""

    def columns_read(self, definition: TableDefinition) -> ColumnsRead:
        return "columns"

    def source(self, table: TableContext) -> TableSource:
        options, path = _options(table)
        given = _source_options(options)
        _sink_options(options)
        options.finish("delta")
        names = {f.column: f.name for f in table.fields}
        columns = list(dict.fromkeys(names.values())) or None
        source = _made(table, lambda: DeltaSource(path, columns=columns, **given))
        rows = ServerRowsProgram(table.fields, names, table.name.name, EvaluationContext(table.zone))
        if not source.change_feed:
            return TableSource(source, rows)
        return TableSource(source, FeedProgram(rows), is_updating=True)

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        options, path = _options(table)
        given = _sink_options(options)
        _source_options(options)
        options.finish("delta")
        if overwrite:
            raise OptionError(
                f"{table.name.name}: delta takes no INSERT OVERWRITE",
                next="delete the rows with Delta's own tools, then INSERT INTO",
                kind="unsupported_query",
            )
        key = tuple(f for f in table.fields if f.name in table.definition.primary_key)
        deletes = bool(key) and table.is_updating
        schema = bulk_schema(tuple(FormatColumn(f.name, f.column, f.type) for f in table.fields), table.name.name)
        sink = _made(
            table,
            lambda: DeltaSink(
                path,
                key=[f.name for f in key] or None,
                delete_when=DELETED if deletes else None,
                schema=ddl.render(schema),
                partition_by=table.definition.partitioned_by,
                **given,
            ),
        )
        program = WrittenRowsProgram(table.fields, tuple(f.name for f in table.fields), table.name.name, deletes)
        if deletes:
            schema = schema.append(pa.field(DELETED, pa.bool_()))
        return TableSink(sink, program, schema, takes="upsert" if key else "append", key=tuple(f.column for f in key))


@dataclass(frozen=True)
class FeedProgram:
    """Rows of a change data feed, with their kinds of change."""

    rows: ServerRowsProgram
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows."""
        made, _ = self.rows.run(rows)
        words = pa.array(list(_KINDS), pa.string())
        kinds = pa.array(list(_KINDS.values()), pa.string()).take(pc.index_in(rows.column(_CHANGE), words))
        return made.append_column(ROW_KIND, kinds), None

    def describe(self) -> str:
        """Return it in words."""
        return f"reads changes of {self.rows.table}"


def _options(table: TableContext) -> tuple[TableOptions, str]:
    for column in table.definition.columns:
        if isinstance(column, ConnectorColumn):
            raise OptionError(
                f"{table.name.name}.{column.name}: delta has no metadata {column.key!r}",
                next="declare it as a column, without METADATA",
                kind="unknown_column",
            )
    options = TableOptions(table.name.name, table.definition.options)
    options.required("connector")
    return options, options.required("table-path")


def _source_options(options: TableOptions) -> Mapping[str, Any]:
    """Return how a table is read. In batch mode, which is the connector's own default as in Flink, one version is."""
    streaming = options.one_of("mode", ("batch", "streaming"), "batch") == "streaming"
    version = options.text("startingVersion")
    given: dict[str, Any] = {
        "version_as_of": options.whole("versionAsOf"),
        "timestamp_as_of": options.text("timestampAsOf"),
        "starting_version": version if version == "latest" else options.whole("startingVersion"),
        "starting_timestamp": options.text("startingTimestamp"),
        "ignore_deletes": options.flag("ignoreDeletes"),
        "ignore_changes": options.flag("ignoreChanges"),
        "change_feed": options.flag("readChangeFeed"),
    }
    every = options.whole("updateCheckIntervalMillis", 5000)
    if not streaming:
        written = [name for name in _STREAMING if options.text(name) is not None]
        if written:
            raise OptionError(
                f"{options.table}: {written[0]!r} has no effect where one version is read",
                next="write 'mode' = 'streaming' too",
                kind="bad_option_value",
            )
        return given
    return {**given, "watch": True, "discover_every": f"{every} ms"}


def _sink_options(options: TableOptions) -> Mapping[str, Any]:
    """Return how a table is written; properties of Delta's are those of a table that is made."""
    properties = {f"delta.{name}": value for name, value in options.below("delta.").items()}
    return {"merge_schema": options.flag("mergeSchema"), "properties": properties}


def _made(table: TableContext, make: Any) -> Any:
    try:
        return make()
    except DefinitionError as error:
        if error.kind == "missing_package":
            raise
        raise OptionError(f"{table.name.name}: {error.what}", next=error.next, kind="bad_option_value") from None
