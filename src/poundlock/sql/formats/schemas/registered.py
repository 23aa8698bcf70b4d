"""Tables whose records name their schema in a registry: Avro, Protobuf and JSON Schema, read by columns, and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.connectors.kafka.schemas.codec import RegistryCodec
from poundlock.connectors.kafka.schemas.encoder import RegistryEncoder
from poundlock.connectors.kafka.schemas.formats import RegistryFormat
from poundlock.errors import DefinitionError
from poundlock.formats.arrays import Numbers, valid_in
from poundlock.formats.decode_json import JsonCodec
from poundlock.formats.protobuf.text import proto_of
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.format import FormatColumn, FormatContext, RecordDecoder, RecordEncoder, bad_record
from poundlock.sql.formats.json_format import row_type
from poundlock.sql.formats.schemas.options import registry_format
from poundlock.sql.formats.schemas.row_schema import row_schema
from poundlock.sql.functions.function import NullInColumn

WORDS = ("avro-confluent", "json-schema-confluent", "protobuf-confluent")
"""What these formats are called."""


@dataclass(frozen=True)
class RegistryDecoder:
    """Records to rows.

    Args:
        format: which registry, and what becomes of what does not fit.
        option: that leaves records out that cannot be read.
    """

    table: str
    columns: tuple[FormatColumn, ...]
    format: RegistryFormat
    is_key: bool
    is_lenient: bool
    option: str
    is_updating: bool = False
    leaves_out: bool = True

    def decode(self, records: pa.Array, wanted: Sequence[str]) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return rows, and of which record each is; raises EvaluationError where a record cannot be read."""
        needed = tuple(each for each in self.columns if each.column in wanted) or self.columns[:1]
        rows, places = self.read(records, arrow_columns(needed))
        renamed = pa.RecordBatch.from_arrays(rows.columns, [each.column for each in needed])
        return renamed, None if len(places) == len(records) else places

    def read(self, records: pa.Array, columns: pa.Schema) -> tuple[pa.RecordBatch, Numbers]:
        """Return columns of records, and of which record each row is. Records without a value have none."""
        valid = valid_in(records)
        there = np.arange(len(records)) if valid is None else np.flatnonzero(valid)
        given = [record for record in records.to_pylist() if record is not None]
        parsed = self._codec(columns).parse(given, "batch")
        for place, why in sorted(parsed.bad.items())[: 0 if self.is_lenient else 1]:
            raise bad_record(self.table, f"{given[place][:60]!r}: {why}", self.option)
        if parsed.bad:
            there = np.delete(there, list(parsed.bad))
        rows: Any = parsed.rows
        return rows, there

    def _codec(self, columns: pa.Schema) -> RegistryCodec:
        """Return what reads some columns; one for all batches, since it keeps what it knows of schemas."""
        known = self._codecs.get(columns.to_string())
        if known is None:
            known = self._codecs[columns.to_string()] = RegistryCodec(self.format, columns, self.is_key)
        return known

    @cached_property
    def _codecs(self) -> dict[str, RegistryCodec]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_codecs"}


@dataclass(frozen=True)
class RegistryRecords:
    """Rows to records."""

    table: str
    columns: tuple[FormatColumn, ...]
    format: RegistryFormat
    topic: str
    is_key: bool
    takes_updates: bool = field(default=False)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return a record for each row; raises EvaluationError where one cannot be written."""
        arrays = [rows.column(each.column) for each in self.columns]
        return self.write(pa.RecordBatch.from_arrays(arrays, schema=arrow_columns(self.columns)))

    def write(self, rows: pa.RecordBatch) -> pa.Array:
        """Return a record for each row, by the names of the data."""
        made, bad = self._encoder.encode(rows, self.topic)
        for _, why in sorted(bad.items())[:1]:
            raise NullInColumn(
                f"{self.table}: a row {why}", next="leave such rows out, or declare columns that its schema can write"
            )
        return made.cast(pa.binary())

    @cached_property
    def _encoder(self) -> RegistryEncoder:
        return RegistryEncoder(self.format, is_key=self.is_key)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_encoder"}


def arrow_columns(columns: Sequence[FormatColumn]) -> pa.Schema:
    """Return the columns of the data; read by name, all may be null, which the table's types are checked for elsewhere."""
    return pa.schema([pa.field(each.name, each.type.arrow) for each in columns])


def registry_decoder(options: TableOptions, context: FormatContext, word: str) -> RecordDecoder:
    """Return what reads records.

    Raises:
        OptionError: an option cannot be, or the format has not the type of a column.
    """
    read, _ = _formats(options, context, word)
    lenient = options.flag(f"{word}.ignore-parse-errors")
    _check(context, word, written=False)
    option = f"{options.prefix}{word}.ignore-parse-errors"
    return RegistryDecoder(context.table, context.columns, read, context.is_key, lenient, option)


def registry_encoder(options: TableOptions, context: FormatContext, word: str) -> RecordEncoder:
    """Return what writes records; raises as `registry_decoder`."""
    _, written = _formats(options, context, word)
    options.flag(f"{word}.ignore-parse-errors")
    _check(context, word, written=True)
    if not context.topic and written.subject is None:
        raise OptionError(
            f"{context.table}: records of no topic need a subject",
            next=f"add '{options.prefix}{word}.subject' = '…'",
            kind="missing_option",
        )
    return RegistryRecords(context.table, context.columns, written, context.topic, context.is_key)


def _formats(options: TableOptions, context: FormatContext, word: str) -> tuple[RegistryFormat, RegistryFormat]:
    """Return the format for reading and that for writing; all options are looked at in any case."""
    made = row_schema(row_type(context.columns), context.table) if word == "avro-confluent" else None
    read = registry_format(options, word, is_key=context.is_key, is_read=True)
    return read, registry_format(options, word, is_key=context.is_key, is_read=False, made_schema=made)


def _check(context: FormatContext, word: str, *, written: bool) -> None:
    """Raise OptionError where a format has not the type of a column."""
    columns = arrow_columns(context.columns)
    try:
        if word == "protobuf-confluent" and written:
            proto_of(columns, "Row")
        elif word == "json-schema-confluent":
            JsonCodec(columns)
    except DefinitionError as error:
        raise OptionError(f"{context.table}: {error.what}", next=str(error.next), kind="type_mismatch") from None
