"""The opensearch and elasticsearch connectors: rows as documents, with Flink's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.opensearch.index_names import IndexName
from poundlock.connectors.opensearch.sink import ElasticsearchSink, OpenSearchSink
from poundlock.errors import DefinitionError
from poundlock.formats.arrays import Numbers, column_of, flags_in, indices_of, texts_of
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.connectors.jdbc.columns import DELETED
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.format import FormatColumn, FormatContext, RecordEncoder
from poundlock.sql.formats.json_format import json_encoder
from poundlock.sql.tables import ConnectorColumn

DOCUMENT = "poundlock_document"
"""The column with the text of a document."""


@dataclass(frozen=True)
class DocumentProgram:
    """Documents of rows, and the columns that name them.

    Args:
        beside: columns of batches that make ids and names of indices, and what they are called in the table.
        is_updating: whether rows have kinds of change; those before an update are left out.
    """

    encoder: RecordEncoder
    columns: tuple[str, ...]
    beside: tuple[tuple[str, str], ...]
    table: str
    is_updating: bool

    @property
    def leaves_out(self) -> bool:
        """Whether rows before an update are left out."""
        return self.is_updating

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the documents, and of which row each is."""
        places: Numbers | None = None
        if self.is_updating:
            kept = np.flatnonzero(flags_in(pc.not_equal(rows.column(ROW_KIND), texts_of(["-U"])[0])))
            if len(kept) < rows.num_rows:
                rows, places = rows.take(indices_of(kept)), kept
        columns = {DOCUMENT: self.encoder.encode(rows.select(self.columns))}
        columns |= {name: rows.column(column) for column, name in self.beside}
        if self.is_updating:
            columns[DELETED] = column_of(flags_in(pc.equal(rows.column(ROW_KIND), texts_of(["-D"])[0])), pa.bool_())
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns)), places

    def describe(self) -> str:
        """Return it in words."""
        return f"writes documents of {self.table}"


@dataclass(frozen=True)
class OpenSearchTable:
    """Writes documents.

    Args:
        connector: as tables name it.
        is_elastic: whether the cluster is one of Elasticsearch.
    """

    connector: str
    is_elastic: bool = False

    def source(self, table: TableContext) -> TableSource:
        raise OptionError(
            f"{table.name.name}: {self.connector} is no source",
            next="read from another table",
            kind="unsupported_query",
        )

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        if overwrite:
            raise OptionError(
                f"{table.name.name}: an index cannot be overwritten", next="write INSERT INTO", kind="unsupported_query"
            )
        _refuse_metadata(table, self.connector)
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        given = self._given(options)
        options.one_of("format", ("json",), "json")
        columns = tuple(FormatColumn(f.name, f.column, f.type) for f in table.fields)
        encoder = json_encoder(options, FormatContext(table.name.name, columns, table.zone))
        options.finish(self.connector)
        key = tuple(f for f in table.fields if f.name in table.definition.primary_key)
        deletes = bool(key) and table.is_updating
        given |= {
            "key": [f.name for f in key] or None,
            "guarantee": None if key else "at-least-once",
            "document": DOCUMENT,
            "delete_when": DELETED if deletes else None,
        }
        sink = _made(table.name.name, ElasticsearchSink if self.is_elastic else OpenSearchSink, given)
        named = {*(f.name for f in key), *_columns_of(table, sink.name)}
        beside = [f for f in table.fields if f.name in named]
        program = DocumentProgram(
            encoder,
            tuple(f.column for f in table.fields),
            tuple((f.column, f.name) for f in beside),
            table.name.name,
            deletes,
        )
        fields = [pa.field(DOCUMENT, pa.binary()), *(pa.field(f.name, f.type.arrow) for f in beside)]
        schema = pa.schema([*fields, *([pa.field(DELETED, pa.bool_())] if deletes else [])])
        _check_schema(table.name.name, sink, schema)
        return TableSink(sink, program, schema, takes="upsert" if key else "append", key=tuple(f.column for f in key))

    def _given(self, options: TableOptions) -> dict[str, Any]:
        """Return what the options say to the sink.

        Raises:
            OptionError: one is missing, or cannot be what it is.
        """
        prefix = (options.text("connection.path-prefix") or "").strip("/")
        hosts = [each.strip().rstrip("/") for each in options.required("hosts").split(";") if each.strip()]
        given: dict[str, Any] = {
            "hosts": [f"{host}/{prefix}" if prefix else host for host in hosts],
            "index": options.required("index"),
            "key_delimiter": options.text("document-id.key-delimiter", "_"),
            "user": options.text("username"),
            "password": options.text("password"),
            "bulk_size": options.bytes("sink.bulk-flush.max-size") or "2 MB",
            "bulk_actions": options.whole("sink.bulk-flush.max-actions", 1000) or None,
            "timeout": options.span("socket.timeout") or "60 s",
        }
        if not self.is_elastic:
            given["allow_insecure"] = options.flag("allow-insecure")
        options.span("sink.bulk-flush.interval")  # rows are sent as they come, and are there at each checkpoint
        options.one_of("sink.delivery-guarantee", ("at-least-once",), "at-least-once")
        options.one_of("sink.bulk-flush.backoff.strategy", ("exponential",), "exponential")
        if options.text("sink.parallelism") is not None:
            raise OptionError(
                f"{options.table}: 'sink.parallelism' cannot be set for one sink: the tasks of the step before it write",
                next="SET 'parallelism.default' = '…' for the job",
                kind="unsupported_query",
            )
        return given


def _columns_of(table: TableContext, index: IndexName) -> list[str]:
    """Return the columns that name an index. Raises OptionError where the table has not one of them."""
    known = {f.name for f in table.fields}
    for name in index.columns:
        if name not in known:
            raise OptionError(
                f"{table.name.name}: 'index' names a column {name!r}, and the table has {', '.join(sorted(known))}",
                next="name one of them",
                kind="unknown_column",
            )
    return index.columns


def _refuse_metadata(table: TableContext, connector: str) -> None:
    for column in table.definition.columns:
        if isinstance(column, ConnectorColumn):
            raise OptionError(
                f"{table.name.name}.{column.name}: {connector} has no metadata {column.key!r}",
                next="declare it as a column, without METADATA",
                kind="unknown_column",
            )


def _made(table: str, make: type[OpenSearchSink], given: Mapping[str, Any]) -> OpenSearchSink:
    try:
        return make(**given)
    except DefinitionError as error:
        raise OptionError(f"{table}: {error.what}", next=error.next, kind="bad_option_value") from None


def _check_schema(table: str, sink: OpenSearchSink, schema: pa.Schema) -> None:
    try:
        sink.check_schema(table, schema)
    except DefinitionError as error:
        raise OptionError(f"{table}: {error.what}", next=error.next, kind="type_mismatch") from None
