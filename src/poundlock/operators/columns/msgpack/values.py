"""Columns as state has their values where records are worked one by one, written and read for all rows at once.

Numbers, texts, byte strings, truth values and times are written by columns; the values of other types go through the codec of single
values. What is read is the same whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import TerminalError
from poundlock.formats.arrays import binary_array, ends_in, flags_in, is_binary, is_float, is_text, numbers_in, valid_in
from poundlock.formats.chunk import NoOrigin, Records
from poundlock.formats.convert import column_values, to_batch
from poundlock.formats.reject import Reject
from poundlock.operators.columns.msgpack.cursor import Cursor, UnexpectedValue
from poundlock.operators.columns.msgpack.tags import EXTENSION_OF_8, FLOAT, INT
from poundlock.operators.columns.msgpack.writing import Fixed, Part, flags, list_head, map_head, texts, written
from poundlock.operators.keyed.codec import LOCAL_MICROS, UTC_MICROS, decode_all, encode, encode_each


def packed(column: pa.Array) -> pa.Array:
    """Return the bytes of each value, large_binary."""
    return written(_parts(column), len(column))


def packed_lists(columns: Sequence[pa.Array]) -> pa.Array:
    """Return a list of the values of each row; at least one column."""
    parts = [part for column in columns for part in _parts(column)]
    return written([list_head(len(columns)), *parts], len(columns[0]))


def packed_records(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """Return the record of each row: a dict of its columns; at least one."""
    parts: list[Part] = [map_head(len(names))]
    for name, column in zip(names, columns, strict=True):
        parts += [encode(name), *_parts(column)]
    return written(parts, len(columns[0]))


def packed_timed(times: pa.Array, values: pa.Array) -> pa.Array:
    """Return a list of two of each row: a time, and a value of which the bytes are given."""
    return written([list_head(2), *_parts(times), values], len(times))


def unpacked(values: pa.Array) -> list[Any]:
    """Return the values of bytes, of which none is null."""
    ends = ends_in(values)
    data = values.buffers()[2]
    return decode_all(b"" if data is None else bytes(memoryview(data)[ends[0] : ends[-1]]), len(values))


def is_by_columns(kind: pa.DataType) -> bool:
    """Return whether values of a type are written and read without the codec of single values."""
    return _is_int(kind) or is_float(kind) or pa.types.is_boolean(kind) or _is_instant(kind) or _is_bytes(kind)


def read_value(cursor: Cursor, kind: pa.DataType) -> pa.Array:
    """Read a value of a type at each place.

    Raises:
        UnexpectedValue: there is another one, or one that is not read by columns.
    """
    if _is_int(kind):
        return _cast(cursor.integers(), kind)
    if is_float(kind):
        return _cast(cursor.fixed(bytes([FLOAT]), ">f8", pa.float64())(), kind)
    if pa.types.is_boolean(kind):
        return cursor.flags()()
    if _is_instant(kind):
        return _cast(cursor.fixed(_instant_head(kind), ">i8", pa.timestamp("us", kind.tz))(), kind)
    if _is_bytes(kind):
        return cursor.texts(kind)()
    values = unpacked(cursor.extensions())
    return columns_of([{"value": value} for value in values], pa.schema([("value", kind)]))[0]


def read_record(cursor: Cursor, schema: pa.Schema) -> list[pa.Array]:
    """Read records of the very columns.

    Raises:
        UnexpectedValue: one is another, or has a value that is not read by columns.
    """
    columns = []
    before = map_head(len(schema))
    for field in schema:
        cursor.skip(before + encode(field.name))
        columns.append(read_value(cursor, field.type))
        before = b""
    return columns


def columns_of(records: Sequence[dict[str, Any]], schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of records of state; a column that a record does not have is null.

    Raises:
        TerminalError: one has values of other types.
    """
    bad: list[Reject] = []
    columns = to_batch(Records(records, NoOrigin("state")), schema, bad.append).batch.columns
    if bad:
        raise TerminalError(
            f"state holds a record that is not of the columns there are: {bad[0].reason}",
            next="give the step another name, which begins with no state, or let its input have the types it had",
        )
    return list(columns)


def _parts(column: pa.Array) -> list[Part]:
    kind, valid = column.type, valid_in(column)
    if _is_int(kind):
        return [Fixed(bytes([INT]), numbers_in(column), ">i8").or_nil(valid)]
    if is_float(kind):
        return [Fixed(bytes([FLOAT]), numbers_in(column), ">f8").or_nil(valid)]
    if pa.types.is_boolean(kind):
        return [flags(flags_in(column), valid)]
    if _is_instant(kind):
        micros = numbers_in(column) * {"s": 1_000_000, "ms": 1000, "us": 1}[kind.unit]
        return [Fixed(_instant_head(kind), micros, ">i8").or_nil(valid)]
    return texts(column) if _is_bytes(kind) else [binary_array(encode_each(column_values(column)))]


def _is_int(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind)) and kind != pa.uint64()


def _is_bytes(kind: pa.DataType) -> bool:
    return is_text(kind) or is_binary(kind)


def _is_instant(kind: pa.DataType) -> bool:
    """Return whether values of a type are written as microseconds since 1970."""
    return bool(pa.types.is_timestamp(kind)) and kind.unit != "ns" and kind.tz in (None, "UTC")


def _instant_head(kind: pa.DataType) -> bytes:
    return bytes([EXTENSION_OF_8, LOCAL_MICROS if kind.tz is None else UTC_MICROS])


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return column if column.type == kind else pc.cast(column, kind)
    except pa.ArrowInvalid as error:
        raise UnexpectedValue(str(error)) from None
