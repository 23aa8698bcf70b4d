"""Whole rows as the bytes that state keeps, and back, by columns: a row is a list in msgpack, one item a column.

Numbers, dates and times are whole numbers of the width of their type, texts and bytes are what they are, a decimal is its 16 bytes;
an item of any other type is the bytes that the codec of single values makes of it. The types are needed to read them: state that is
kept so says them in its manifest, as the one text that `layout_of` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats import ddl
from poundlock.formats.arrays import (
    Flags,
    Numbers,
    binary_array,
    column_of,
    ends_in,
    is_binary,
    is_text,
    joined,
    numbers_in,
    valid_in,
)
from poundlock.formats.convert import column_values
from poundlock.operators.keyed.codec import decode, encode_each

LAYOUT = "rows of "
"""What the text begins with that says the columns of rows that are kept whole."""

_Bytes = npt.NDArray[np.uint8]
_NIL, _TRUE, _BIN_OF_16 = 0xC0, 0xC3, (0xC4, 16)
_INTS, _FLOATS = {1: 0xD0, 2: 0xD1, 4: 0xD2, 8: 0xD3}, {4: 0xCA, 8: 0xCB}
_TEXT, _TEXT_MOST = 0xA0, 31  # a text of up to so many bytes has its length in its first byte
_TEXTS, _BINS = {1: 0xD9, 2: 0xDA, 4: 0xDB}, {1: 0xC4, 2: 0xC5, 4: 0xC6}  # by how many bytes a length has
_PAD = 8  # bytes behind the last, so that a number can be read from each place


def layout_of(schema: pa.Schema) -> str | None:
    """Return the columns of rows as the text that stands in a manifest, None where one is of a type that has no name in DDL."""
    try:
        layout = LAYOUT + ddl.render(schema)
    except DefinitionError:
        return None
    return layout if columns_of(layout).types == schema.types else None


@lru_cache(64)
def columns_of(layout: str) -> pa.Schema:
    """Return the columns that a text of a manifest says."""
    return ddl.parse(layout.removeprefix(LAYOUT))


def encode_records(rows: pa.RecordBatch) -> pa.Array:
    """Return each row as the bytes of a list, large_binary."""
    n, head = rows.num_rows, binary_array([_list_head(rows.num_columns)])[0]
    if not rows.num_columns:
        return binary_array([head.as_py()] * n)
    nothing = binary_array([b""])[0]
    return pc.binary_join_element_wise(head, *map(_items, rows.columns), nothing)


def decode_records(values: pa.Array, schema: pa.Schema, wanted: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return rows that were encoded.

    Args:
        schema: their columns.
        wanted: those that are to be read; None = all.

    Raises:
        TerminalError: they have other columns.
    """
    ends = ends_in(values)
    data = values.buffers()[2]
    held = np.frombuffer(b"" if data is None else data, np.uint8)
    cursor = _Cursor(np.concatenate([held[ends[0] : ends[-1]], np.zeros(_PAD, np.uint8)]), ends[:-1] - ends[0])
    cursor.skip(_list_head(len(schema)))
    names = set(schema.names if wanted is None else wanted)
    columns = [cursor.read(field.type, build=field.name in names) for field in schema]
    fields = [(field, column) for field, column in zip(schema, columns, strict=True) if column is not None]
    if not fields:
        return pa.RecordBatch.from_arrays([], schema=pa.schema([]))
    return pa.RecordBatch.from_arrays(
        [column for _, column in fields], schema=pa.schema([field for field, _ in fields])
    )


def _list_head(width: int) -> bytes:
    return bytes([0x90 + width]) if width <= 15 else b"\xdc" + width.to_bytes(2, "big")


def _is_whole(kind: pa.DataType) -> bool:
    tests = (pa.types.is_signed_integer, pa.types.is_temporal)
    return any(test(kind) for test in tests) and not pa.types.is_interval(kind)


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float32(kind) or pa.types.is_float64(kind))


# --- to bytes -----------------------------------------------------------------------------------------------------------


def _items(column: pa.Array) -> pa.Array:
    """Return the bytes of each value of a column, large_binary."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return _fixed((numbers_in(column) + (_TRUE - 1)).reshape(-1, 1), valid_in(column))
    if _is_whole(kind) or _is_float(kind):
        width = kind.bit_width // 8
        cells = np.empty((len(column), 1 + width), np.uint8)
        cells[:, 0] = _FLOATS[width] if _is_float(kind) else _INTS[width]
        cells[:, 1:] = numbers_in(column).astype(_big(kind)).view(np.uint8).reshape(-1, width)
        return _fixed(cells, valid_in(column))
    if pa.types.is_decimal128(kind):
        cells = np.empty((len(column), 18), np.uint8)
        cells[:, :2] = _BIN_OF_16
        words = np.frombuffer(column.buffers()[1] or b"", np.uint8, 16 * len(column), 16 * column.offset)
        cells[:, 2:] = words.reshape(-1, 16)
        return _fixed(cells, valid_in(column))
    if is_text(kind) or is_binary(kind):
        return _texts(column, text=is_text(kind))
    return _texts(binary_array(encode_each(column_values(column))), text=False)


def _big(kind: pa.DataType) -> str:
    """Return how numpy calls the numbers of a type, written from their highest byte on."""
    return f">{'f' if _is_float(kind) else 'i'}{kind.bit_width // 8}"


def _fixed(cells: _Bytes, valid: Flags | None) -> pa.Array:
    """Return the rows of a matrix; one byte where there is no value."""
    n, width = cells.shape
    if valid is None:
        return _large_binary(cells.reshape(-1), np.arange(n + 1, dtype=np.int64) * width)
    cells[~valid, 0] = _NIL
    lengths = np.where(valid, width, 1)
    return _large_binary(cells[np.arange(width) < lengths[:, None]], _ends(lengths))


def _texts(column: pa.Array, *, text: bool) -> pa.Array:
    ends, valid = ends_in(column), valid_in(column)
    lengths, data = np.diff(ends), column.buffers()[2]
    content = np.frombuffer(b"" if data is None else data, np.uint8)[ends[0] : ends[-1]]
    if valid is not None:
        content = content[np.repeat(valid, lengths)] if lengths[~valid].any() else content
        lengths = np.where(valid, lengths, 0)
    digits = np.where(lengths > 0xFFFF, 4, np.where(lengths > 0xFF, 2, 1))
    if text:
        digits[lengths <= _TEXT_MOST] = 0
    tags = np.array([0, *((_TEXTS if text else _BINS).get(n, 0) for n in range(1, 5))], np.uint8)[digits]
    if text:
        tags = np.where(digits == 0, _TEXT + lengths, tags)
    if valid is not None:
        tags, digits = np.where(valid, tags, _NIL), np.where(valid, digits, 0)
    out_ends = _ends(1 + digits + lengths)
    out, is_head = np.empty(int(out_ends[-1]), np.uint8), np.zeros(int(out_ends[-1]), np.bool_)
    starts = out_ends[:-1]
    is_head[starts], out[starts] = True, tags
    for digit in range(int(digits.max(initial=0))):
        some = np.flatnonzero(digits > digit)
        at = starts[some] + 1 + digit
        is_head[at], out[at] = True, (lengths[some] >> 8 * (digits[some] - 1 - digit)) & 0xFF
    out[~is_head] = content
    return _large_binary(out, out_ends)


def _ends(lengths: Numbers) -> Numbers:
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ends


def _large_binary(data: _Bytes, ends: Numbers) -> pa.Array:
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers, 0)


# --- from bytes ---------------------------------------------------------------------------------------------------------


class _Cursor:
    """Reads the items of many rows, one column after the other.

    Args:
        data: with some bytes behind the last row.
        at: where the next item of each row begins.
    """

    def __init__(self, data: _Bytes, at: Numbers) -> None:
        self._data, self._at = data, at

    def skip(self, constant: bytes) -> None:
        """Go behind bytes that all rows begin with."""
        for place, byte in enumerate(constant):
            self._expect(self._data[self._at + place] == byte)
        self._at = self._at + len(constant)

    def read(self, kind: pa.DataType, *, build: bool = True) -> pa.Array | None:
        """Return the next column; None where it is only to be passed over."""
        tags = self._data[self._at]
        valid = tags != _NIL
        if pa.types.is_boolean(kind):
            self._expect(~valid | (tags == _TRUE) | (tags == _TRUE - 1))
            self._at = self._at + 1
            return column_of(tags == _TRUE, kind, valid) if build else None
        if _is_whole(kind) or _is_float(kind):
            return self._number(kind, tags, valid, build=build)
        if pa.types.is_decimal128(kind):
            self._expect(~valid | (tags == _BIN_OF_16[0]))
            at, self._at = self._at + 2, self._at + np.where(valid, 18, 1)
            return self._wide(at, kind, valid) if build else None
        return self._text(kind, tags, valid, build=build)

    def _number(self, kind: pa.DataType, tags: _Bytes, valid: Flags, *, build: bool) -> pa.Array | None:
        width = kind.bit_width // 8
        self._expect(~valid | (tags == (_FLOATS[width] if _is_float(kind) else _INTS[width])))
        at, self._at = self._at + 1, self._at + np.where(valid, 1 + width, 1)
        if not build:
            return None
        numbers = np.ndarray((len(self._data) - width + 1,), _big(kind), self._data, strides=(1,))[at]
        return column_of(numbers.astype(_big(kind).replace(">", "<")), kind, valid)

    def _wide(self, at: Numbers, kind: pa.DataType, valid: Flags) -> pa.Array:
        at = np.where(valid, at, 0)
        if len(self._data) < 16:  # all of them are null
            return pa.nulls(len(at), kind)
        values = np.ndarray((len(self._data) - 15,), np.dtype("V16"), self._data, strides=(1,))[at]
        return column_of(values, kind, valid)

    def _text(self, kind: pa.DataType, tags: _Bytes, valid: Flags, *, build: bool) -> pa.Array | None:
        tags_of = _TEXTS if is_text(kind) else _BINS
        short = (tags & 0xE0 == _TEXT) if is_text(kind) else np.zeros(len(tags), np.bool_)
        lengths, heads = np.where(short, tags & _TEXT_MOST, 0).astype(np.int64), np.ones(len(tags), np.int64)
        known = short | ~valid
        for digits, tag in tags_of.items():
            some = np.flatnonzero(tags == tag)
            if len(some):
                numbers = np.ndarray((len(self._data) - digits + 1,), f">u{digits}", self._data, strides=(1,))
                lengths[some], heads[some], known[some] = numbers[self._at[some] + 1], 1 + digits, True
        self._expect(known)
        starts = self._at + heads
        self._at = starts + lengths
        if not build:
            return None
        ends = _ends(lengths)
        content = self._data[np.repeat(starts - ends[:-1], lengths) + np.arange(int(ends[-1]))]
        if is_text(kind) or is_binary(kind):
            return _text_column(content, ends, kind, valid)
        items = _large_binary(content, ends).to_pylist()
        return pa.array([decode(item) for item in items], kind)

    def _expect(self, right: Flags) -> None:
        if not right.all():
            raise TerminalError(
                "a row in state has other columns than its manifest says", next="report this as a bug, with the state"
            )


def _text_column(content: _Bytes, ends: Numbers, kind: pa.DataType, valid: Flags) -> pa.Array:
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(ends if wide else ends.astype(np.int32)), pa.py_buffer(content)]
    return pa.Array.from_buffers(kind, len(valid), buffers, int(len(valid) - np.count_nonzero(valid)))


def joined_rows(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return rows of the same columns, one behind the other; of one part it is the very same."""
    if len(parts) == 1:
        return parts[0]
    columns: list[Any] = [joined(list(column)) for column in zip(*(part.columns for part in parts), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=parts[0].schema)
