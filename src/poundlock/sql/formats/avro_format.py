"""Avro, a binary record a row without a header, of the schema that Flink derives from the table's columns.

Logical types are left out of the schema that values are read and written with: what is in the bytes are whole numbers, which become
columns without a value of Python's between.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Numbers, ends_in
from poundlock.formats.decode_avro import load_fastavro
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.format import FormatColumn, FormatContext, RecordDecoder, RecordEncoder, bad_record
from poundlock.sql.formats.json_format import row_type
from poundlock.sql.formats.json_text import check_keys
from poundlock.sql.formats.json_values import list_column, map_column, row_column, scalar_column
from poundlock.sql.formats.value_texts import byte_strings, texts
from poundlock.sql.functions.function import BadRecord, EvaluationError, NullInColumn
from poundlock.sql.functions.kernels.columns import decimals, unscaled_in, valid_flags
from poundlock.sql.functions.kernels.distinct import integers_in
from poundlock.sql.types import SqlType

_PRIMITIVES = {
    "BOOLEAN": "boolean", "TINYINT": "int", "SMALLINT": "int", "INT": "int", "BIGINT": "long", "FLOAT": "float",
    "DOUBLE": "double", "CHAR": "string", "VARCHAR": "string", "BINARY": "bytes", "VARBINARY": "bytes", "DATE": "int",
    "TIME": "int", "TIMESTAMP": "long", "TIMESTAMP_LTZ": "long", "DECIMAL": "bytes",
}  # fmt: skip
_MOMENTS = ("TIMESTAMP", "TIMESTAMP_LTZ")
_COUNT = SqlType("INT")
_MILLIS, _MICROS = 3, 6  # digits of a second


@dataclass(frozen=True)
class AvroFormat:
    """Records of Avro and rows.

    Args:
        columns: those of the table, in the order of the record's fields.
    """

    table: str
    columns: tuple[FormatColumn, ...]
    is_updating: bool = False
    leaves_out: bool = True
    takes_updates: bool = False

    def decode(self, records: pa.Array, wanted: Sequence[str]) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return rows, and of which record each is; raises EvaluationError where a record cannot be read."""
        schema = _parsed(row_type(self.columns))
        read = load_fastavro().schemaless_reader
        rows: list[dict[str, Any]] = []
        places: list[int] = []
        for place, record in enumerate(records.to_pylist()):
            if record is None:
                continue
            stream = io.BytesIO(record)
            try:
                rows.append(read(stream, schema))
            except Exception as error:  # fastavro raises what the bytes lead it to, such as IndexError
                raise self._failed(record, str(error) or type(error).__name__) from None
            places.append(place)
        needed = [(each, place) for place, each in enumerate(self.columns) if each.column in wanted]
        try:
            arrays = [_column([row[f"f{place}"] for row in rows], each.type) for each, place in needed]
        except (OverflowError, ValueError) as error:
            raise self._failed(b"", str(error)) from None
        made = pa.RecordBatch.from_arrays(
            arrays or [pa.nulls(len(rows))], [each.column for each, _ in needed] or ["$none"]
        )
        return made, None if len(places) == len(records) else np.array(places, np.int64)

    def _failed(self, record: bytes, why: str) -> EvaluationError:
        error = bad_record(self.table, f"{record[:60]!r}: it is no Avro record of the table's columns: {why}", "")
        return BadRecord(error.what, next="declare the columns of the schema that wrote it")

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return a record for each row."""
        schema = _parsed(row_type(self.columns))
        write = load_fastavro().schemaless_writer
        columns = [_values(rows.column(each.column), each.type) for each in self.columns]
        names = [f"f{place}" for place in range(len(columns))]
        made: list[bytes] = []
        for values in zip(*columns, strict=True):
            stream = io.BytesIO()
            try:
                write(stream, schema, dict(zip(names, values, strict=True)))
            except (TypeError, ValueError) as error:
                raise NullInColumn(
                    f"{self.table}: a row cannot be written as Avro: {error}",
                    next="declare columns that may be NULL, or leave such rows out",
                ) from None
            made.append(stream.getvalue())
        return byte_strings(made)


# --- schemas ---------------------------------------------------------------------------------------------------------


@lru_cache(64)
def _parsed(kind: SqlType) -> Any:
    """Return the schema of a row as fastavro has it. Fields are numbered: their names are not in the bytes."""
    return load_fastavro().parse_schema(_record(kind, "r"))


def _record(kind: SqlType, name: str) -> dict[str, Any]:
    fields = [{"name": f"f{place}", "type": _schema(of, f"{name}_{place}")} for place, of in enumerate(kind.of)]
    return {"type": "record", "name": name, "fields": fields}


def _schema(kind: SqlType, name: str) -> Any:
    if kind.root == "ROW":
        made: Any = _record(kind, name)
    elif kind.root == "ARRAY":
        made = {"type": "array", "items": _schema(kind.of[0], name)}
    elif kind.root in ("MAP", "MULTISET"):
        made = {"type": "map", "values": _schema(_COUNT if kind.root == "MULTISET" else kind.of[1], name)}
    else:
        made = _PRIMITIVES[kind.root]
    return ["null", made] if kind.is_nullable else made


# --- columns ---------------------------------------------------------------------------------------------------------


def _unit(kind: SqlType) -> int:
    """Return how many microseconds one is in the bytes of a timestamp."""
    return 1000 if kind.sizes[0] <= _MILLIS else 1


def _column(values: list[Any], kind: SqlType) -> pa.Array:
    root = kind.root
    if root == "DECIMAL":
        return decimals([None if v is None else int.from_bytes(v, "big", signed=True) for v in values], kind.arrow)
    if root in _MOMENTS:
        factor = _unit(kind)
        return scalar_column([None if v is None else v * factor for v in values], kind)
    if root == "ARRAY":
        items = list(chain.from_iterable(value for value in values if value is not None))
        return list_column(_column(items, kind.of[0]), values, kind)
    if root in ("MAP", "MULTISET"):
        there = [value for value in values if value is not None]
        items = list(chain.from_iterable(value.values() for value in there))
        of = _COUNT if root == "MULTISET" else kind.of[1]
        return map_column(texts(list(chain.from_iterable(there))), _column(items, of), values, kind)
    if root == "ROW":
        fields = [
            _column([None if value is None else value[f"f{place}"] for value in values], of)
            for place, of in enumerate(kind.of)
        ]
        return row_column(fields, values, kind)
    return scalar_column(values, kind)


def _values(column: pa.Array, kind: SqlType) -> list[Any]:
    """Return a column as the values that are written."""
    root = kind.root
    if root == "DECIMAL":
        return [None if value is None else _two_complement(value) for value in unscaled_in(column)]
    if root in ("DATE", "TIME", *_MOMENTS):
        numbers = integers_in(column)
        if root in _MOMENTS:
            numbers = numbers // _unit(kind)
        flags = valid_flags(column).tolist()
        return [value if there else None for value, there in zip(numbers.tolist(), flags, strict=True)]
    if root == "ARRAY":
        return _cut(column, _values(column.flatten(), kind.of[0]))
    if root in ("MAP", "MULTISET"):
        return _maps(column, _COUNT if root == "MULTISET" else kind.of[1])
    if root == "ROW":
        fields = [_values(each, of) for each, of in zip(column.flatten(), kind.of, strict=True)]
        names = [f"f{place}" for place in range(len(fields))]
        flags = valid_flags(column).tolist()
        return [
            dict(zip(names, values, strict=True)) if there else None
            for there, values in zip(flags, zip(*fields, strict=True), strict=True)
        ]
    return list(column.to_pylist())


def _cut(column: pa.Array, items: list[Any]) -> list[Any]:
    """Return the items of lists, which `flatten` gives one behind the other, list by list."""
    lengths = pc.list_value_length(column).to_pylist()
    made: list[Any] = []
    at = 0
    for length in lengths:
        made.append(None if length is None else items[at : at + length])
        at += length or 0
    return made


def _maps(column: pa.Array, of: SqlType) -> list[Any]:
    keys, items = column.keys.to_pylist(), _values(column.items, of)
    bounds = ends_in(column).tolist()
    return [
        dict(zip(keys[begin:end], items[begin:end], strict=True)) if there else None
        for there, begin, end in zip(valid_flags(column).tolist(), bounds, bounds[1:], strict=False)
    ]


def _two_complement(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _check(kind: SqlType, place: str, *, is_legacy: bool) -> None:
    """Refuse types that Avro has not.

    Raises:
        OptionError: there is one.
    """
    too_fine = kind.root in _MOMENTS and kind.sizes[0] > (_MILLIS if is_legacy else _MICROS)
    if too_fine or (kind.root == "TIMESTAMP_LTZ" and is_legacy) or (kind.root == "TIME" and kind.sizes[0] > _MILLIS):
        raise OptionError(
            f"{place}: Avro has no {kind} here",
            next="declare TIMESTAMP(3), or write 'avro.timestamp_mapping.legacy' = 'false' in WITH"
            if kind.root in _MOMENTS
            else "declare TIME(3)",
            kind="type_mismatch",
        )
    for of in kind.of:
        _check(of, place, is_legacy=is_legacy)


def avro_format(options: TableOptions, context: FormatContext) -> AvroFormat:
    """Return the format of a table.

    Raises:
        OptionError: an option cannot be, or Avro has not the type of a column.
        DefinitionError: fastavro is not installed.
    """
    load_fastavro()
    options.one_of("avro.encoding", ("binary",), "binary")
    is_legacy = options.flag("avro.timestamp_mapping.legacy", True)
    check_keys(row_type(context.columns), context.table, "Avro")
    for each in context.columns:
        _check(each.type, f"{context.table}.{each.name}", is_legacy=is_legacy)
    return AvroFormat(context.table, context.columns)


def avro_decoder(options: TableOptions, context: FormatContext) -> RecordDecoder:
    """Return what reads records; raises as `avro_format`."""
    return avro_format(options, context)


def avro_encoder(options: TableOptions, context: FormatContext) -> RecordEncoder:
    """Return what writes records; raises as `avro_format`."""
    return avro_format(options, context)
