"""Records of state by columns: a dict of a row's columns for each, in msgpack, as it is written where records are worked one by one.

Numbers, texts, byte strings and times are written and read by columns; the values of other columns go through the codec of single
values. What is read is the same whoever wrote it, and a column that a record does not have is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import TerminalError
from poundlock.formats.arrays import (
    Flags,
    Numbers,
    binary_array,
    column_of,
    ends_in,
    flags_in,
    indices_of,
    joined,
    numbers_in,
    valid_in,
)
from poundlock.formats.chunk import NoOrigin, Records
from poundlock.formats.convert import column_values, to_batch
from poundlock.formats.reject import Reject
from poundlock.operators.keyed.codec import LOCAL_MICROS, UTC_MICROS, decode_each, encode, encode_each

_NIL, _FALSE, _TRUE = 0xC0, 0xC2, 0xC3  # what msgpack begins values with
_INT, _FLOAT, _EIGHT_BYTES = 0xD3, 0xCB, 0xD7
_SHORT_TEXT, _SHORT_MOST, _TEXT, _BINARY = 0xA0, 31, 0xDB, 0xC6
_LIST, _LONG_LIST, _MAP, _LONG_MAP = 0x90, 0xDC, 0x80, 0xDE
_SHORT = 15  # a list or map of so many has its length in its first byte
_BYTES = pa.large_binary()


def packed(column: pa.Array) -> pa.Array:
    """Return the bytes of each value, large_binary."""
    kind, valid = column.type, valid_in(column)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return _tagged([_INT], numbers_in(column).astype(">i8"), valid)
    if kind in (pa.float64(), pa.float32()):
        return _tagged([_FLOAT], numbers_in(column).astype(">f8"), valid)
    if pa.types.is_boolean(kind):
        return _fixed((_FALSE + flags_in(column)).astype(np.uint8).reshape(-1, 1), valid)
    if _is_instant(kind):
        micros = numbers_in(column) * {"s": 1_000_000, "ms": 1000, "us": 1}[kind.unit]
        return _tagged([_EIGHT_BYTES, _instant_code(kind)], micros.astype(">i8"), valid)
    if _is_text(kind) or _is_binary(kind):
        return _packed_texts(column, is_text=_is_text(kind), valid=valid)
    return binary_array(encode_each(column_values(column)))


def packed_lists(columns: Sequence[pa.Array]) -> pa.Array:
    """Return a list of the values of each row, from the bytes of them."""
    return _joined([_header(_LIST, _LONG_LIST, len(columns)), *columns])


def packed_records(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """Return the record of each row: a dict of its columns."""
    parts: list[bytes | pa.Array] = []
    before = _header(_MAP, _LONG_MAP, len(names))
    for name, column in zip(names, columns, strict=True):
        parts += [before + encode(name), packed(column)]
        before = b""
    return _joined(parts)


def packed_groups(rows: pa.Array, counts: Numbers) -> pa.Array:
    """Return lists of so many of some rows each, one behind the other, from the bytes of them."""
    starts = np.cumsum(counts) - counts
    long = bool(len(counts)) and int(counts.max()) > _SHORT
    headers = np.empty((len(counts), 3 if long else 1), np.uint8)
    headers[:, 0] = _LONG_LIST if long else _LIST + counts
    if long:
        headers[:, 1:] = counts.astype(">u2").view(np.uint8).reshape(-1, 2)
    ends = ends_in(rows)
    data = np.frombuffer(rows.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    at = ends[starts] - ends[0]
    width = headers.shape[1]
    out = np.empty(len(data) + headers.size, np.uint8)
    is_header = np.zeros(len(out), np.bool_)
    places = at + width * np.arange(len(counts))
    for byte in range(width):
        is_header[places + byte] = True
        out[places + byte] = headers[:, byte]
    out[~is_header] = data
    out_ends = np.append(places, len(out)).astype(np.int64)
    return pa.Array.from_buffers(_BYTES, len(counts), [None, pa.py_buffer(out_ends), pa.py_buffer(out)], 0)


def unpacked(values: pa.Array) -> list[Any]:
    """Return the values of bytes, of which none is null."""
    ends = ends_in(values)
    data = values.buffers()[2]
    return decode_each(b"" if data is None else bytes(memoryview(data)[ends[0] : ends[-1]]), len(values))


def records_of(values: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of records that were packed, of which none is null. Raises TerminalError: one has values of other types."""
    columns = _Cursor.of(values).record(schema)
    return _columns_of(unpacked(values), schema) if columns is None else columns


def timed_records_of(values: pa.Array, schema: pa.Schema) -> tuple[pa.Array, list[pa.Array]]:
    """Return times, and the columns of records, of lists of the two; raises as `records_of`."""
    cursor = _Cursor.of(values)
    times = cursor.read(pa.int64()) if cursor.passes(bytes([_LIST + 2])) else None
    columns = None if times is None else cursor.record(schema)
    if times is not None and columns is not None:
        return times, columns
    held = unpacked(values)
    (times,) = _columns_of([{"time": time} for time, _ in held], pa.schema([("time", pa.int64())]))
    return times, _columns_of([record for _, record in held], schema)


def lists_of_records(values: pa.Array, schema: pa.Schema) -> tuple[Numbers, list[pa.Array]]:
    """Return how many records each of some lists has, and the columns of all of them; raises as `records_of`."""
    cursor = _Cursor.of(values)
    counts = cursor.list_lengths()
    parts: list[list[pa.Array]] = []
    places: list[Numbers] = []
    for turn in range(0 if counts is None else int(counts.max(initial=0))):
        own = np.flatnonzero(counts > turn)
        one = cursor.at(own)
        columns = one.record(schema)
        if columns is None:
            counts = None
            break
        cursor.move(own, one)
        parts.append(columns)
        places.append(own)
    if counts is not None and parts:
        order = indices_of(np.argsort(np.concatenate(places), kind="stable"))
        return counts, [joined(list(column)).take(order) for column in zip(*parts, strict=True)]
    lists = unpacked(values)
    lengths = np.array(list(map(len, lists)), np.int64)
    return lengths, _columns_of([record for each in lists for record in each], schema)


def _columns_of(records: Sequence[dict[str, Any]], schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of records of state; raises as `records_of`."""
    bad: list[Reject] = []
    columns = to_batch(Records(records, NoOrigin("state")), schema, bad.append).batch.columns
    if bad:
        raise TerminalError(
            f"state holds a record that is not of the columns there are: {bad[0].reason}",
            next="give the step another name, which begins with no state, or let its input have the types it had",
        )
    return list(columns)


class _Cursor:
    """Places in bytes of msgpack, one in each of some values, which move on as what stands there is read."""

    def __init__(self, data: npt.NDArray[np.uint8], at: Numbers) -> None:
        self._data, self._at = data, at
        self._words = np.ndarray((len(data) - 7,), ">u8", data, strides=(1,))

    @classmethod
    def of(cls, values: pa.Array) -> _Cursor:
        """Return a cursor at the beginning of values."""
        ends, data = ends_in(values), values.buffers()[2]
        held = np.frombuffer(b"" if data is None else data, np.uint8)[ends[0] : ends[-1]]
        return cls(np.concatenate([held, np.zeros(16, np.uint8)]), ends[:-1] - ends[0])

    def passes(self, text: bytes) -> bool:
        """Return whether the same bytes stand at all places, and move on behind them."""
        for first in range(0, len(text), 8):
            part = text[first : first + 8]
            bits = np.uint64(64 - 8 * len(part))
            at = np.minimum(self._at + first, len(self._words) - 1)
            if (self._words[at] >> bits != int.from_bytes(part, "big")).any():
                return False
        self._at = self._at + len(text)
        return True

    def record(self, schema: pa.Schema) -> list[pa.Array] | None:
        """Read records of the very columns; None where one is another, or has a value that is not read by columns."""
        columns = []
        before = _header(_MAP, _LONG_MAP, len(schema))
        for field in schema:
            column = self.read(field.type) if self.passes(before + encode(field.name)) else None
            if column is None:
                return None
            columns.append(column)
            before = b""
        return columns

    def read(self, kind: pa.DataType) -> pa.Array | None:
        """Read a value of a type at each place; None where there is another one, or it is not read by columns."""
        tags = self._data[self._at]
        missing = tags == _NIL
        valid = ~missing if missing.any() else None
        if pa.types.is_integer(kind) and kind != pa.uint64():
            return self._integers(tags, kind, valid)
        if kind in (pa.float64(), pa.float32()):
            return self._eight(tags == _FLOAT, 1, ">f8", pa.float64(), kind, valid)
        if pa.types.is_boolean(kind):
            self._at = self._at + 1
            known = (tags == _FALSE) | (tags == _TRUE) | missing
            return column_of(tags == _TRUE, kind, valid) if known.all() else None
        if _is_instant(kind):
            is_instant = (tags == _EIGHT_BYTES) & (self._data[self._at + 1] == _instant_code(kind))
            return self._eight(is_instant, 2, ">i8", pa.timestamp("us", kind.tz), kind, valid)
        if _is_text(kind) or _is_binary(kind):
            return self._texts(tags, kind, valid)
        return self._others(tags, kind, missing)

    def _integers(self, tags: npt.NDArray[np.uint8], kind: pa.DataType, valid: Flags | None) -> pa.Array | None:
        sizes = _INT_SIZES[tags]
        if (sizes < 0).any():
            return None
        bits = np.uint64(64) - (np.maximum(sizes, 1) * 8).astype(np.uint64)
        words = self._words[self._at + 1].astype(np.uint64)
        signed = words.view(np.int64) >> bits.view(np.int64)
        unsigned = words >> bits
        if ((tags == _UNSIGNED) & (words >> np.uint64(63) != 0)).any():
            return None
        numbers = np.where((tags & 0xFC) == 0xD0, signed, unsigned.view(np.int64))
        numbers = np.where(sizes == 0, tags.view(np.int8).astype(np.int64), numbers)
        self._at = self._at + 1 + sizes
        return _cast(column_of(numbers, pa.int64(), valid), kind)

    def _eight(
        self, there: Flags, before: int, dtype: str, held: pa.DataType, kind: pa.DataType, valid: Flags | None
    ) -> pa.Array | None:
        """Read numbers of eight bytes behind so many others."""
        if not (there if valid is None else there | ~valid).all():
            return None
        numbers = self._words[self._at + before].view(dtype)
        self._at = self._at + (before + 8 if valid is None else np.where(valid, before + 8, 1))
        return _cast(column_of(numbers.astype(dtype[1:]), held, valid), kind)

    def _texts(self, tags: npt.NDArray[np.uint8], kind: pa.DataType, valid: Flags | None) -> pa.Array | None:
        sizes = (_TEXT_SIZES if _is_text(kind) else _BINARY_SIZES)[tags]
        if (sizes < 0).any():
            return None
        lengths = self._lengths(tags, sizes)
        lengths = np.where(sizes == 0, (tags & 0x1F).astype(np.int64), lengths)
        lengths = lengths if valid is None else np.where(valid, lengths, 0)
        texts = self._slice(self._at + 1 + sizes, lengths)
        self._at = self._at + 1 + sizes + lengths
        bits = None if valid is None else column_of(valid, pa.bool_()).buffers()[1]
        column = pa.Array.from_buffers(_BYTES, len(texts), [bits, *texts.buffers()[1:]])
        return _cast(column, kind)

    def _others(self, tags: npt.NDArray[np.uint8], kind: pa.DataType, missing: Flags) -> pa.Array | None:
        """Read values that the codec of single values wrote, each with a length: numbers of many digits, dates and the like."""
        sizes = _EXTENSION_SIZES[tags]
        if (sizes < 0).any():
            return None
        lengths = np.where(missing, 1, np.where(tags == _EXTENSION, 3 + self._data[self._at + 1], 2 + sizes))
        values = unpacked(self._slice(self._at, lengths.astype(np.int64)))
        self._at = self._at + lengths
        return _columns_of([{"value": value} for value in values], pa.schema([("value", kind)]))[0]

    def list_lengths(self) -> Numbers | None:
        """Read what lists begin with; None where there is another value."""
        tags = self._data[self._at]
        short, long = (tags & 0xF0) == _LIST, tags == _LONG_LIST
        if not (short | long).all():
            return None
        lengths = np.where(
            short, (tags & 0x0F).astype(np.int64), (self._words[self._at + 1] >> np.uint64(48)).astype(np.int64)
        )
        self._at = self._at + np.where(short, 1, 3)
        return lengths

    def at(self, places: Numbers) -> _Cursor:
        """Return a cursor at some of the places."""
        return _Cursor(self._data, self._at[places])

    def move(self, places: Numbers, to: _Cursor) -> None:
        """Move some of the places to where another cursor stands."""
        self._at = self._at.copy()
        self._at[places] = to._at

    def _lengths(self, tags: npt.NDArray[np.uint8], sizes: Numbers) -> Numbers:
        """Return the numbers of so many bytes behind the places."""
        bits = np.uint64(64) - (np.maximum(sizes, 1) * 8).astype(np.uint64)
        lengths: Numbers = (self._words[self._at + 1] >> bits).astype(np.int64)
        return lengths

    def _slice(self, starts: Numbers, lengths: Numbers) -> pa.Array:
        """Return the bytes of so many from each of some places on."""
        ends = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        data = self._data[np.arange(int(ends[-1])) + np.repeat(starts - ends[:-1], lengths)]
        return pa.Array.from_buffers(_BYTES, len(lengths), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _sizes(known: dict[int, int]) -> Numbers:
    """Return how many bytes say how long a value is, or are it, by its first byte; -1: it is no value of the kind."""
    sizes = np.full(256, -1, np.int64)
    sizes[list(known)] = list(known.values())
    sizes[_NIL] = 0
    return sizes


_UNSIGNED, _EXTENSION = 0xCF, 0xC7
_INT_SIZES = _sizes(
    dict.fromkeys((*range(0x80), *range(0xE0, 0x100)), 0)
    | {0xCC: 1, 0xCD: 2, 0xCE: 4, _UNSIGNED: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, _INT: 8}
)
_TEXT_SIZES = _sizes(dict.fromkeys(range(0xA0, 0xC0), 0) | {0xD9: 1, 0xDA: 2, _TEXT: 4})
_BINARY_SIZES = _sizes({0xC4: 1, 0xC5: 2, _BINARY: 4})
_EXTENSION_SIZES = _sizes({_EXTENSION: 0, 0xD4: 1, 0xD5: 2, 0xD6: 4, _EIGHT_BYTES: 8, 0xD8: 16})


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return a column of a type; None where that cannot hold its values."""
    try:
        return column if column.type == kind else pc.cast(column, kind)
    except pa.ArrowInvalid:
        return None


def _header(short: int, long: int, count: int) -> bytes:
    return bytes([short + count]) if count <= _SHORT else bytes([long]) + count.to_bytes(2, "big")


def _joined(parts: Sequence[bytes | pa.Array]) -> pa.Array:
    given = [pa.scalar(part, _BYTES) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*given, pa.scalar(b"", _BYTES))


def _tagged(tag: Sequence[int], numbers: npt.NDArray[Any], valid: Flags | None) -> pa.Array:
    """Return numbers of eight bytes behind a tag."""
    out = np.empty((len(numbers), len(tag) + 8), np.uint8)
    out[:, : len(tag)] = tag
    out[:, len(tag) :] = numbers.view(np.uint8).reshape(-1, 8)
    return _fixed(out, valid)


def _fixed(rows: npt.NDArray[np.uint8], valid: Flags | None) -> pa.Array:
    """Return byte strings of one length; nil where there is a null."""
    n, width = rows.shape
    ends = np.arange(n + 1, dtype=np.int64) * width
    bits = None if valid is None else column_of(valid, pa.bool_()).buffers()[1]
    values = pa.Array.from_buffers(_BYTES, n, [bits, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(rows))])
    return values if valid is None else pc.fill_null(values, pa.scalar(bytes([_NIL]), _BYTES))


def _packed_texts(column: pa.Array, *, is_text: bool, valid: Flags | None) -> pa.Array:
    lengths = np.diff(ends_in(column)) if len(column) else np.empty(0, np.int64)
    if is_text and (not len(lengths) or int(lengths.max()) <= _SHORT_MOST):
        headers = (_SHORT_TEXT + lengths).astype(np.uint8).reshape(-1, 1)
    else:
        headers = np.empty((len(column), 5), np.uint8)
        headers[:, 0] = _TEXT if is_text else _BINARY
        headers[:, 1:] = lengths.astype(">u4").view(np.uint8).reshape(-1, 4)
    values = _joined([_fixed(headers, None), column.cast(_BYTES)])
    return values if valid is None else pc.fill_null(values, pa.scalar(bytes([_NIL]), _BYTES))


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit != "ns" and kind.tz in (None, "UTC")


def _instant_code(kind: pa.DataType) -> int:
    return LOCAL_MICROS if kind.tz is None else UTC_MICROS


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
