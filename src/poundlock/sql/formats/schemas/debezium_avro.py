"""Changes of databases as Debezium writes them in Avro: the row before and the row after a change, and what it is; read and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Numbers, flags_in, texts_of
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.formats.changelog_json import Changes, Dialect
from poundlock.sql.formats.format import FormatColumn, FormatContext, RecordDecoder, RecordEncoder
from poundlock.sql.formats.json_format import row_type
from poundlock.sql.formats.json_values import JsonRules
from poundlock.sql.formats.schemas.options import registry_format
from poundlock.sql.formats.schemas.registered import RegistryDecoder, RegistryRecords, arrow_columns
from poundlock.sql.formats.schemas.row_schema import row_schema
from poundlock.sql.types import STRING, SqlType

WORD = "debezium-avro-confluent"
_GONE = texts_of(["-U", "-D"])


def _envelope(columns: Sequence[FormatColumn]) -> tuple[FormatColumn, ...]:
    """Return the fields of a change."""
    row = row_type(tuple(columns)).with_null()
    return tuple(FormatColumn(n, n, kind) for n, kind in (("before", row), ("after", row), ("op", STRING)))


@dataclass(frozen=True)
class DebeziumAvroDecoder:
    """Records of changes to rows with `ROW_KIND`.

    Args:
        records: reads the fields of a change.
    """

    columns: tuple[FormatColumn, ...]
    records: RegistryDecoder
    dialect: Dialect = "debezium-json"  # whose words for the kinds of change are the same
    is_updating: bool = True
    leaves_out: bool = False

    @property
    def table(self) -> str:
        """The name of the table, for errors."""
        return self.records.table

    @property
    def option(self) -> str:
        """The option that leaves records out that cannot be read."""
        return self.records.option

    @property
    def rules(self) -> JsonRules:
        """Whether records are left out that are no change."""
        return JsonRules("SQL", self.records.is_lenient)

    def decode(self, records: pa.Array, wanted: Sequence[str]) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows, and of which record each is; raises EvaluationError where a record cannot be read."""
        columns = tuple(each for each in self.columns if each.column in wanted) or self.columns[:1]
        read, places = self.records.read(records, arrow_columns(_envelope(columns)))
        return Changes(self, records, columns, (read.column(0), read.column(1), read.column(2)), places).rows()


@dataclass(frozen=True)
class DebeziumAvroEncoder:
    """Rows with `ROW_KIND` to records of changes: rows that come, and rows that go, as Flink writes them."""

    columns: tuple[FormatColumn, ...]
    records: RegistryRecords
    takes_updates: bool = True

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return a record for each row."""
        fields = list(arrow_columns(self.columns))
        arrays = [rows.column(each.column) for each in self.columns]
        row = pa.StructArray.from_arrays(arrays, fields=fields)
        none = pa.nulls(len(row), row.type)
        is_gone = None
        if ROW_KIND in rows.schema.names:
            is_gone = pc.is_in(rows.column(ROW_KIND), value_set=_GONE)
        if is_gone is None or not flags_in(is_gone).any():
            before, after, words = none, row, texts_of(["c"] * len(row))
        else:
            before, after = pc.if_else(is_gone, row, none), pc.if_else(is_gone, none, row)
            words = texts_of(["d" if gone else "c" for gone in flags_in(is_gone).tolist()])
        return self.records.write(
            pa.RecordBatch.from_arrays([before, after, words], schema=arrow_columns(_envelope(self.columns)))
        )


def debezium_avro_decoder(options: TableOptions, context: FormatContext) -> RecordDecoder:
    """Return what reads records of changes.

    Raises:
        OptionError: an option cannot be, or Avro has not the type of a column.
    """
    read, _ = _both(options, context)
    return DebeziumAvroDecoder(context.columns, read)


def debezium_avro_encoder(options: TableOptions, context: FormatContext) -> RecordEncoder:
    """Return what writes records of changes; raises as `debezium_avro_decoder`."""
    _, written = _both(options, context)
    return DebeziumAvroEncoder(context.columns, written)


def _both(options: TableOptions, context: FormatContext) -> tuple[RegistryDecoder, RegistryRecords]:
    envelope = _envelope(context.columns)
    kind: SqlType = row_type(envelope)
    made = row_schema(kind, context.table)
    read = registry_format(options, WORD, is_key=False, is_read=True)
    written = registry_format(options, WORD, is_key=False, is_read=False, made_schema=made)
    lenient = options.flag(f"{WORD}.ignore-parse-errors")
    option = f"{options.prefix}{WORD}.ignore-parse-errors"
    return (
        RegistryDecoder(context.table, envelope, read, False, lenient, option),
        RegistryRecords(context.table, envelope, written, context.topic, False),
    )
