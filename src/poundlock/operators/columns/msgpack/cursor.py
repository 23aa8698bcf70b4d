"""Values read out of bytes of msgpack by columns: a cursor stands in each of many values, and all move on together.

What they have in common is read at once: the same bytes, values of one type. Values that all are of one length are read where they lie,
as a matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of, copied, ends_in, is_text, with_nulls
from poundlock.operators.columns.msgpack.tags import (
    BINARIES,
    EXTENSION,
    EXTENSION_OF_8,
    FALSE,
    INT,
    INTS,
    LIST,
    LISTS,
    NIL,
    SHORT_MOST,
    SHORT_TEXT,
    SHORT_TEXT_MOST,
    TEXTS,
    TRUE,
    UNSIGNED,
)

Build = Callable[[], pa.Array]
"""Makes the column of values that a cursor went past."""

_PAD = 24  # bytes behind the last, so that a number can be read from each place
_MOST_NARROW = (1 << 31) - 1  # bytes that a column of texts with ends of 32 bits is cut out of


class UnexpectedValue(ValueError):
    """A cursor stands before something else than what was to be read."""


class Cursor:
    """Places in bytes of msgpack, one in each of some values, which move on as what stands there is read.

    Every method that reads raises UnexpectedValue where one of the values has something else; the cursor is of no use from then on.

    Args:
        values: byte strings, none of which is null.
    """

    def __init__(self, values: pa.Array) -> None:
        ends, data = ends_in(values), values.buffers()[2]
        self._data = np.frombuffer(b"" if data is None else data, np.uint8)[ends[0] : ends[-1]]
        self._has_pad = False
        self._ends = ends[1:] - ends[0]
        self._at: range | Numbers = ends[:-1] - ends[0]
        lengths = np.diff(ends)
        if len(lengths) and lengths[0] and (lengths == lengths[0]).all():
            self._at = range(0, len(self._data), int(lengths[0]))

    # --- what stands at the places --------------------------------------------------------------------------------------

    def skip(self, constant: bytes) -> None:
        """Go behind bytes that stand at all places."""
        for first in range(0, len(constant), 8):
            part = constant[first : first + 8]
            bits = np.uint64(64 - 8 * len(part))
            if (self._numbers(">u8", self._at, first) >> bits != int.from_bytes(part, "big")).any():
                raise UnexpectedValue
        self._move(len(constant))

    def fixed(self, head: bytes, dtype: str, kind: pa.DataType) -> Build:
        """Go past values of one width behind the same bytes, or nil.

        Args:
            head: the bytes before each value.
            dtype: how numpy calls the values.
            kind: the type of their column, which has the same width.
        """
        valid = self._valid_behind(head)
        at, width = self._at, len(head) + np.dtype(dtype).itemsize
        self._move(width if valid is None else np.where(valid, width, 1))

        def build() -> pa.Array:
            numbers = self._numbers(dtype, at, len(head))
            return column_of(numbers.astype(numbers.dtype.newbyteorder("=")), kind, valid)

        return build

    def flags(self) -> Build:
        """Go past truth values or nil."""
        tags = self._numbers("u1", self._at)
        valid = _valid((tags == FALSE) | (tags == TRUE), tags)
        self._move(1)
        return lambda: column_of(tags == TRUE, pa.bool_(), valid)

    def texts(self, kind: pa.DataType) -> Build:
        """Go past texts, byte strings where the type is none of text, or nil."""
        tags = self._numbers("u1", self._at)
        valid = _valid(tags != NIL, tags)
        starts, lengths = self._places() + 1, tags & SHORT_TEXT_MOST
        is_short = tags & 0xE0 == SHORT_TEXT
        if not is_text(kind) or not (is_short if valid is None else is_short | ~valid).all():
            sizes = _known((_TEXT_SIZES if is_text(kind) else _BINARY_SIZES)[tags])
            starts, lengths = starts + sizes, np.where(sizes == 0, lengths, self._lengths(sizes))
        ends = starts + lengths
        self._at = ends

        def build() -> pa.Array:
            column = self._cut(starts, ends, kind)
            return column if valid is None else with_nulls(column, valid)

        return build

    def integers(self) -> pa.Array:
        """Read whole numbers of any number of bytes, or nil, as 64 bits."""
        tags = self._numbers("u1", self._at)
        if ((tags == INT) | (tags == NIL)).all():
            return self.fixed(bytes([INT]), ">i8", pa.int64())()
        sizes, valid = _known(_INT_SIZES[tags]), _valid(tags != NIL, tags)
        bits = np.uint64(64) - (np.maximum(sizes, 1) * 8).astype(np.uint64)
        words = self._numbers(">u8", self._at, 1).astype(np.uint64)
        if ((tags == UNSIGNED) & (words >> np.uint64(63) != 0)).any():
            raise UnexpectedValue
        signed, unsigned = words.view(np.int64) >> bits.view(np.int64), (words >> bits).view(np.int64)
        numbers = np.where((tags & 0xFC) == INTS[1], signed, unsigned)
        numbers = np.where(sizes == 0, tags.view(np.int8), numbers)
        self._move(1 + sizes)
        return column_of(numbers, pa.int64(), valid)

    def extensions(self) -> pa.Array:
        """Read values that have a code of their own, or nil: the whole bytes of each, large_binary."""
        tags = self._numbers("u1", self._at)
        sizes = _known(_EXTENSION_SIZES[tags])
        lengths = np.where(tags == EXTENSION, 3 + self._numbers("u1", self._at, 1).astype(np.int64), 2 + sizes)
        starts = self._places()
        self._at = starts + np.where(tags == NIL, 1, lengths)
        return self._cut(starts, self._at, pa.large_binary())

    def enter_extensions(self, code: int) -> None:
        """Go behind what values of a code of their own begin with: all of them have this one, and none is nil."""
        tags = self._numbers("u1", self._at)
        heads = _known(_EXTENSION_HEADS[tags])
        self._move(heads)
        if (self._data[self._places() - 1] != code).any():
            raise UnexpectedValue

    def list_lengths(self) -> Numbers:
        """Read what lists begin with: how many each has."""
        tags = self._numbers("u1", self._at)
        sizes = _known(_LIST_SIZES[tags])
        lengths = np.where(sizes == 0, tags & SHORT_MOST, self._lengths(sizes))
        self._move(1 + sizes)
        return lengths

    def rest(self) -> pa.Array:
        """Return what is left of each value, large_binary."""
        return self._cut(self._places(), self._ends, pa.large_binary())

    # --- the places -----------------------------------------------------------------------------------------------------

    def at(self, places: Numbers) -> Cursor:
        """Return a cursor at some of the places."""
        self._pad()
        some = copy(self)
        some._at = self._places()[places]
        return some

    def move(self, places: Numbers, to: Cursor) -> None:
        """Move some of the places to where another cursor stands."""
        self._at = self._places().copy()
        self._at[places] = to._places()

    def _places(self) -> Numbers:
        at = self._at
        return np.arange(at.start, at.stop, at.step) if isinstance(at, range) else at

    def _move(self, by: int | Numbers) -> None:
        at = self._at
        self._at = (
            range(at.start + by, at.stop + by, at.step)
            if isinstance(at, range) and isinstance(by, int)
            else self._places() + by
        )

    def _valid_behind(self, head: bytes) -> Flags | None:
        """Return which values stand behind some bytes, the others are nil; None = all do."""
        tags = self._numbers("u1", self._at)
        there: Flags = tags == head[0]
        for behind, byte in enumerate(head[1:], 1):
            there &= self._numbers("u1", self._at, behind) == byte
        return _valid(there, tags)

    def _lengths(self, sizes: Numbers) -> Numbers:
        """Return the numbers of so many bytes behind the first."""
        bits = np.uint64(64) - (np.maximum(sizes, 1) * 8).astype(np.uint64)
        lengths: Numbers = (self._numbers(">u8", self._at, 1) >> bits).astype(np.int64)
        return lengths

    def _numbers(self, dtype: str, at: range | Numbers, behind: int = 0) -> npt.NDArray[Any]:
        """Return the numbers so many bytes behind places."""
        width = np.dtype(dtype).itemsize
        if isinstance(at, range):
            if at[-1] + behind + width > len(self._data):
                self._pad()
            return np.ndarray((len(at),), dtype, self._data, at.start + behind, (at.step,))
        self._pad()
        numbers: npt.NDArray[Any] = np.ndarray((len(self._data) - width + 1,), dtype, self._data, 0, (1,))[at + behind]
        return numbers

    def _pad(self) -> None:
        if not self._has_pad:
            self._data, self._has_pad = np.concatenate([self._data, np.zeros(_PAD, np.uint8)]), True

    def _cut(self, starts: Numbers, ends: Numbers, kind: pa.DataType) -> pa.Array:
        """Return the bytes from each start to each end as a column of a type."""
        if len(self._data) <= _MOST_NARROW:
            return copied(self._data, starts, ends, kind)
        return copied(self._data, starts, ends, pa.large_string() if is_text(kind) else pa.large_binary()).cast(kind)


def _valid(there: Flags, tags: npt.NDArray[np.uint8]) -> Flags | None:
    """Return which values there are, the others are nil; None = all."""
    if there.all():
        return None
    if not (there | (tags == NIL)).all():
        raise UnexpectedValue
    return there


def _known(sizes: Numbers) -> Numbers:
    if (sizes < 0).any():
        raise UnexpectedValue
    return sizes


def _sizes(known: dict[int, int]) -> Numbers:
    """Return how many bytes say how long a value is, or are it, by its first byte; -1: it is no value of the kind."""
    sizes = np.full(256, -1, np.int64)
    sizes[list(known)] = list(known.values())
    return sizes


def _by_tag(tags: dict[int, int]) -> dict[int, int]:
    return {tag: size for size, tag in tags.items()}


_SHORT_INTS = (*range(0x80), *range(0xE0, 0x100))
_INT_SIZES = _sizes(dict.fromkeys(_SHORT_INTS, 0) | {NIL: 0, 0xCC: 1, 0xCD: 2, 0xCE: 4, UNSIGNED: 8} | _by_tag(INTS))
_TEXT_SIZES = _sizes(dict.fromkeys(range(SHORT_TEXT, SHORT_TEXT + 32), 0) | {NIL: 0} | _by_tag(TEXTS))
_BINARY_SIZES = _sizes({NIL: 0} | _by_tag(BINARIES))
_LIST_SIZES = _sizes(dict.fromkeys(range(LIST, LIST + 16), 0) | _by_tag(LISTS))
_EXTENSION_HEADS = _sizes({EXTENSION: 3, 0xC8: 4, 0xC9: 6, **dict.fromkeys(range(0xD4, 0xD9), 2)})
_EXTENSION_SIZES = _sizes({NIL: 0, EXTENSION: 0, 0xD4: 1, 0xD5: 2, 0xD6: 4, EXTENSION_OF_8: 8, 0xD8: 16})
