"""Columns as the bytes that state keeps, and back: a key, the accumulators of a row as one list, the window of a row.

Texts as keys, and accumulators of the types that there mostly are, are written and read by columns; anything else goes through the
codec of single values. Keys and windows have the same bytes either way, and accumulators read back the same, so whoever reads state need
not know how it was written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, binary_array, column_of
from poundlock.formats.convert import column_values
from poundlock.operators.columns.key_bytes import is_key_by_columns, key_bytes, key_columns
from poundlock.operators.columns.msgpack.cursor import Cursor, UnexpectedValue
from poundlock.operators.columns.msgpack.tags import UNSIGNED
from poundlock.operators.columns.msgpack.values import is_by_columns, packed_lists, read_value
from poundlock.operators.columns.msgpack.writing import Fixed, list_head, written
from poundlock.operators.keyed.codec import canonical_key, decode, encode, encode_each, encode_keys, normal, pack


def encode_key_columns(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the bytes of keys, large_binary; several columns are a composite key."""
    if is_key_by_columns(columns):
        return key_bytes(columns)
    values = [normal(column_values(c)) if pa.types.is_floating(c.type) else column_values(c) for c in columns]
    return binary_array(encode_keys(values[0] if len(values) == 1 else list(zip(*values, strict=True))))


def decode_key_columns(keys: pa.Array, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the columns of keys that were encoded."""
    columns = key_columns(keys, kinds)
    if columns is not None:
        return columns
    values = [canonical_key(decode(data)) for data in keys.to_pylist()]
    parts = [values] if len(kinds) == 1 else list(zip(*values, strict=True))
    return [pa.array(part, kind) for part, kind in zip(parts or [[] for _ in kinds], kinds, strict=True)]


def encode_accumulators(columns: Sequence[pa.Array]) -> pa.Array:
    """Return each row of columns as the bytes of a list, large_binary."""
    if all(is_by_columns(column.type) for column in columns):
        return packed_lists(columns)
    return binary_array(encode_each(list(map(list, zip(*map(column_values, columns), strict=True)))))


def decode_accumulators(values: pa.Array, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the columns of rows that were encoded; none of the rows is null."""
    if all(map(is_by_columns, kinds)):
        cursor = Cursor(values)
        try:
            cursor.skip(list_head(len(kinds)))
            return [read_value(cursor, kind) for kind in kinds]
        except UnexpectedValue:
            pass  # of another type, which the type may hold all the same
    rows = [decode(data) for data in values.to_pylist()]
    columns = list(zip(*rows, strict=True)) or [() for _ in kinds]
    return [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]


_SPAN = (b"\xc7\x13\x01\x92", bytes([UNSIGNED]))  # a tuple of two, and what each of its numbers of 64 bits begins with
_LEAST = 1 << 32  # what is less is written in fewer bytes


def encode_spans(starts: Numbers, ends: Numbers) -> pa.Array:
    """Return windows, (start, end) in ms, as the bytes that the codec of single values gives them, large_binary."""
    if len(starts) and int(starts.min()) < _LEAST:
        return binary_array([encode(pack(span)) for span in zip(starts.tolist(), ends.tolist(), strict=True)])
    (tuple_of_two, number) = _SPAN
    numbers = [Fixed(number, each, ">i8") for each in (starts, ends)]
    return written([tuple_of_two, *numbers], len(starts))


def decode_spans(spans: pa.Array) -> list[pa.Array]:
    """Return starts and ends of windows that were encoded."""
    cursor, (tuple_of_two, number) = Cursor(spans), _SPAN
    try:
        cursor.skip(tuple_of_two)
        builds = [cursor.fixed(number, ">i8", pa.int64()) for _ in range(2)]
        return [build() for build in builds]
    except UnexpectedValue:  # less than what is written in 64 bits
        values = [decode(data) for data in spans.to_pylist()]
        return [column_of(np.array([value[i] for value in values], np.int64), pa.int64()) for i in (0, 1)]
