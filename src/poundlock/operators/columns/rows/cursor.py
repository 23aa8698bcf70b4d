"""Values read out of bytes of msgpack by columns: a cursor stands in each of many values, and all move on together.

What they have in common is read at once: a record of the very columns, values of one type. Where one of them has something else the
reader returns None, and whoever asked reads them one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import TerminalError
from poundlock.formats.arrays import Flags, Numbers, column_of, ends_in, is_binary, is_text
from poundlock.formats.chunk import NoOrigin, Records
from poundlock.formats.convert import to_batch
from poundlock.formats.reject import Reject
from poundlock.operators.columns.rows.packing import (
    BINARY,
    BYTES,
    EIGHT_BYTES,
    FALSE,
    FLOAT,
    INT,
    LIST,
    LONG_LIST,
    LONG_MAP,
    LONGEST_LIST,
    MAP,
    NIL,
    TEXT,
    TRUE,
    header,
    instant_code,
    is_instant,
    unpacked,
)
from poundlock.operators.keyed.codec import encode


def columns_of(records: Sequence[dict[str, Any]], schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of records of state; raises as `records_of`."""
    bad: list[Reject] = []
    columns = to_batch(Records(records, NoOrigin("state")), schema, bad.append).batch.columns
    if bad:
        raise TerminalError(
            f"state holds a record that is not of the columns there are: {bad[0].reason}",
            next="give the step another name, which begins with no state, or let its input have the types it had",
        )
    return list(columns)


class Cursor:
    """Places in bytes of msgpack, one in each of some values, which move on as what stands there is read."""

    def __init__(self, data: npt.NDArray[np.uint8], at: Numbers) -> None:
        self._data, self._at = data, at
        self._words = np.ndarray((len(data) - 7,), ">u8", data, strides=(1,))

    @classmethod
    def of(cls, values: pa.Array) -> Cursor:
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
        before = header(MAP, LONG_MAP, len(schema))
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
        missing = tags == NIL
        valid = ~missing if missing.any() else None
        if pa.types.is_integer(kind) and kind != pa.uint64():
            return self._integers(tags, kind, valid)
        if kind in (pa.float64(), pa.float32()):
            return self._eight(tags == FLOAT, 1, ">f8", pa.float64(), kind, valid)
        if pa.types.is_boolean(kind):
            self._at = self._at + 1
            known = (tags == FALSE) | (tags == TRUE) | missing
            return column_of(tags == TRUE, kind, valid) if known.all() else None
        if is_instant(kind):
            there = (tags == EIGHT_BYTES) & (self._data[self._at + 1] == instant_code(kind))
            return self._eight(there, 2, ">i8", pa.timestamp("us", kind.tz), kind, valid)
        if is_text(kind) or is_binary(kind):
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
        sizes = (_TEXT_SIZES if is_text(kind) else _BINARY_SIZES)[tags]
        if (sizes < 0).any():
            return None
        lengths = self._lengths(tags, sizes)
        lengths = np.where(sizes == 0, (tags & 0x1F).astype(np.int64), lengths)
        lengths = lengths if valid is None else np.where(valid, lengths, 0)
        texts = self._slice(self._at + 1 + sizes, lengths)
        self._at = self._at + 1 + sizes + lengths
        bits = None if valid is None else column_of(valid, pa.bool_()).buffers()[1]
        column = pa.Array.from_buffers(BYTES, len(texts), [bits, *texts.buffers()[1:]])
        return _cast(column, kind)

    def _others(self, tags: npt.NDArray[np.uint8], kind: pa.DataType, missing: Flags) -> pa.Array | None:
        """Read values that the codec of single values wrote, each with a length: numbers of many digits, dates and the like."""
        sizes = _EXTENSION_SIZES[tags]
        if (sizes < 0).any():
            return None
        lengths = np.where(missing, 1, np.where(tags == _EXTENSION, 3 + self._data[self._at + 1], 2 + sizes))
        values = unpacked(self._slice(self._at, lengths.astype(np.int64)))
        self._at = self._at + lengths
        return columns_of([{"value": value} for value in values], pa.schema([("value", kind)]))[0]

    def list_lengths(self) -> Numbers | None:
        """Read what lists begin with; None where there is another value."""
        tags = self._data[self._at]
        sizes = _LIST_SIZES[tags]
        if (sizes < 0).any():
            return None
        lengths = np.where(sizes == 0, (tags & 0x0F).astype(np.int64), self._lengths(tags, sizes))
        self._at = self._at + 1 + sizes
        return lengths

    def at(self, places: Numbers) -> Cursor:
        """Return a cursor at some of the places."""
        return Cursor(self._data, self._at[places])

    def move(self, places: Numbers, to: Cursor) -> None:
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
        return pa.Array.from_buffers(BYTES, len(lengths), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _sizes(known: dict[int, int]) -> Numbers:
    """Return how many bytes say how long a value is, or are it, by its first byte; -1: it is no value of the kind."""
    sizes = np.full(256, -1, np.int64)
    sizes[list(known)] = list(known.values())
    sizes[NIL] = 0
    return sizes


_UNSIGNED, _EXTENSION = 0xCF, 0xC7
_INT_SIZES = _sizes(
    dict.fromkeys((*range(0x80), *range(0xE0, 0x100)), 0)
    | {0xCC: 1, 0xCD: 2, 0xCE: 4, _UNSIGNED: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, INT: 8}
)
_TEXT_SIZES = _sizes(dict.fromkeys(range(0xA0, 0xC0), 0) | {0xD9: 1, 0xDA: 2, TEXT: 4})
_BINARY_SIZES = _sizes({0xC4: 1, 0xC5: 2, BINARY: 4})
_LIST_SIZES = _sizes(dict.fromkeys(range(LIST, LIST + 16), 0) | {LONG_LIST: 2, LONGEST_LIST: 4})
_LIST_SIZES[NIL] = -1
_EXTENSION_SIZES = _sizes({_EXTENSION: 0, 0xD4: 1, 0xD5: 2, 0xD6: 4, EIGHT_BYTES: 8, 0xD8: 16})


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return a column of a type; None where that cannot hold its values."""
    try:
        return column if column.type == kind else pc.cast(column, kind)
    except pa.ArrowInvalid:
        return None
