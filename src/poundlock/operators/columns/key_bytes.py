"""Keys as the bytes that they are known by, and back, by columns: those that the codec of single values gives each of them.

Whole numbers are of as few bytes as can be, and a key of several columns is a tuple, whose length stands before it. Values that are neither
numbers nor texts are few different ones mostly, each of which the codec writes once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import (
    Numbers,
    binary_array,
    column_of,
    ends_in,
    indices_of,
    is_text,
    numbers_in,
    valid_in,
)
from poundlock.formats.convert import column_values
from poundlock.operators.columns.msgpack.cursor import Cursor, UnexpectedValue
from poundlock.operators.columns.msgpack.tags import EXTENSION, INTS, NIL, UNSIGNEDS
from poundlock.operators.columns.msgpack.values import packed
from poundlock.operators.columns.msgpack.writing import cut, list_head, written
from poundlock.operators.keyed.codec import TUPLE, decode, encode_each, normal

_LONGEST_FIXED = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}
"""What extensions of these lengths begin with, without a length."""
_LENGTHS = {1: EXTENSION, 2: 0xC8, 4: 0xC9}
"""What others begin with, by how many bytes their length has."""
_EPOCH = datetime(1970, 1, 1)
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_LEAST = 64  # keys; fewer are sooner written one by one


def is_key_by_columns(columns: Sequence[pa.Array]) -> bool:
    """Return whether keys of such columns are written here."""
    if len(columns) == 1 and is_text(columns[0].type):
        return True
    return len(columns[0]) >= _LEAST and not any(pa.types.is_nested(column.type) for column in columns)


def key_bytes(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the bytes of keys, large_binary; several columns are a composite key."""
    if len(columns) == 1:
        return _values(columns[0])
    payload = written([list_head(len(columns)), *map(_values, columns)], len(columns[0]))
    return written([_heads(np.diff(ends_in(payload))), payload], len(payload))


def key_columns(keys: pa.Array, kinds: Sequence[pa.DataType]) -> list[pa.Array] | None:
    """Return the columns of keys; None where they are not all whole numbers, texts and timestamps."""
    if not all(is_text(kind) or _is_whole(kind) or _is_moment(kind) for kind in kinds):
        return None
    if not len(keys):
        return [pa.nulls(0, kind) for kind in kinds]
    cursor = Cursor(keys)
    try:
        if len(kinds) > 1:
            cursor.enter_extensions(TUPLE)
            cursor.skip(list_head(len(kinds)))
        return [_read(cursor, kind) for kind in kinds]
    except (UnexpectedValue, pa.ArrowInvalid):
        return None


def _read(cursor: Cursor, kind: pa.DataType) -> pa.Array:
    if is_text(kind):
        return cursor.texts(kind)()
    if _is_moment(kind):
        encoded = cursor.extensions().dictionary_encode()
        moments = [decode(each) for each in encoded.dictionary.to_pylist()]
        micros = np.array([0 if each is None else _micros(each, kind) for each in moments], np.int64)
        valid = np.array([each is not None for each in moments], np.bool_)
        return column_of(micros // _MICROS[kind.unit], kind, valid).take(encoded.indices)
    column = cursor.integers()
    return column if column.type == kind else pc.cast(column, kind)


def _micros(moment: object, kind: pa.DataType) -> int:
    if not isinstance(moment, datetime) or (moment.tzinfo is None) != (kind.tz is None):
        raise UnexpectedValue
    return (moment - (_EPOCH if kind.tz is None else _EPOCH.replace(tzinfo=UTC))) // timedelta(microseconds=1)


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit in _MICROS and kind.tz in (None, "UTC")


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind))


def _values(column: pa.Array) -> pa.Array:
    """Return the bytes of each value."""
    kind = column.type
    if is_text(kind):
        return packed(column)
    if _is_whole(kind):
        return _whole(column)
    encoded = column.dictionary_encode(null_encoding="encode")
    values = column_values(encoded.dictionary)
    values = normal(values) if pa.types.is_floating(kind) else values
    return binary_array(encode_each(values)).take(encoded.indices)


def _whole(column: pa.Array) -> pa.Array:
    """Return whole numbers in as few bytes as can be, nil for null."""
    numbers, valid = numbers_in(column).astype(np.int64), valid_in(column)
    cells, sizes = np.empty((len(numbers), 9), np.uint8), np.ones(len(numbers), np.int64)
    cells[:, 0] = numbers.astype(np.uint8)  # from -32 to 127 a number is its own byte
    rest = (numbers < -32) | (numbers > 127)
    if valid is not None:
        rest &= valid
    for size in (1, 2, 4, 8):
        if not rest.any():
            break
        top = 1 << (8 * size)
        fits = rest if size == 8 else rest & (numbers < top) & (numbers >= -(top >> 1))
        some = np.flatnonzero(fits)
        if len(some):
            values = numbers[some]
            cells[some, 0] = np.where(values < 0, INTS[size], UNSIGNEDS[size])
            cells[some, 1 : 1 + size] = values.astype(f">i{size}").view(np.uint8).reshape(-1, size)
            sizes[some] = 1 + size
            rest = rest & ~fits
    if valid is not None:
        cells[~valid, 0] = NIL
    return cut(cells, sizes)


def _heads(lengths: Numbers) -> pa.Array:
    """Return what tuples of such lengths begin with."""
    different, which = np.unique(lengths, return_inverse=True)
    heads = []
    for length in different.tolist():
        fixed = _LONGEST_FIXED.get(length)
        if fixed is not None:
            heads.append(bytes([fixed, TUPLE]))
        else:
            size = 1 if length <= 0xFF else 2 if length <= 0xFFFF else 4
            heads.append(bytes([_LENGTHS[size]]) + length.to_bytes(size, "big") + bytes([TUPLE]))
    return binary_array(heads).take(indices_of(which))
