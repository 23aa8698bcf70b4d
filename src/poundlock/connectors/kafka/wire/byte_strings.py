"""Byte strings of many records as one buffer and where each lies in it, so that rows are cut, chosen and ordered without a copy of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import binary_array, ends_in, valid_in
from poundlock.state.hashing import KeyKind, hashes_of_bytes

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ByteStrings:
    """A byte string a row: pieces of a buffer. Pieces lie in the order of `bounds`, rows take them in any."""

    data: npt.NDArray[np.uint8]
    bounds: Integers  # where each piece begins and, one behind another, ends; ascending
    piece: Integers  # that each row is: from bounds[piece] to bounds[piece + 1]
    length: Integers  # how many bytes each row has; none where it is null
    null: npt.NDArray[np.bool_] | None = None  # which rows have none; None: all have one

    def __len__(self) -> int:
        return len(self.piece)

    @property
    def start(self) -> Integers:
        """Where each row begins."""
        places: Integers = self.bounds[self.piece]
        return places

    def hashes(self, kind: KeyKind = KeyKind.BYTES) -> npt.NDArray[np.uint64]:
        """Return a hash of each row, the same in every process and version; null has that of no bytes."""
        return hashes_of_bytes(self.data, self.start, self.length, kind)

    def take(self, rows: Integers | slice) -> ByteStrings:
        """Return some rows in an order of one's own, with no more of the buffer than lies between the first and the last of them."""
        piece, null = self.piece[rows], None if self.null is None else self.null[rows]
        if not len(piece):
            return ByteStrings(self.data[:0], np.zeros(1, np.int64), piece, piece, null)
        first, last = int(piece.min()), int(piece.max())
        bounds = self.bounds[first : last + 2]
        data = self.data[int(bounds[0]) : int(bounds[-1])]
        return ByteStrings(data, bounds - bounds[0], piece - first, self.length[rows], null)

    def at(self, row: int) -> bytes | None:
        """Return one row."""
        if self.null is not None and self.null[row]:
            return None
        first = int(self.bounds[self.piece[row]])
        return self.data[first : first + int(self.length[row])].tobytes()


def of_column(column: pa.Array) -> ByteStrings:
    """Return the rows of a binary or string column."""
    bounds = ends_in(column)
    first, after = int(bounds[0]), int(bounds[-1])
    buffer = column.buffers()[2]
    data = np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)[first:after]
    bounds, length, valid = bounds - first, np.diff(bounds), valid_in(column)
    if valid is None:
        return ByteStrings(data, bounds, np.arange(len(column)), length)
    if length[~valid].any():  # bytes that are hidden by a null, as Arrow's if_else leaves them
        return of_spans(data, bounds[:-1], bounds[:-1] + np.where(valid, length, 0), ~valid)
    return ByteStrings(data, bounds, np.arange(len(column)), length, ~valid)


def of_lines(data: memoryview, ends: Integers) -> ByteStrings:
    """Return the lines of a buffer, each without the line end that stands where it ends."""
    starts = np.zeros(len(ends), np.int64)
    starts[1:] = ends[:-1] + 1
    return of_spans(np.frombuffer(data, np.uint8), starts, ends, None)


def of_spans(
    data: npt.NDArray[np.uint8], starts: Integers, ends: Integers, null: npt.NDArray[np.bool_] | None
) -> ByteStrings:
    """Return the bytes from each start to each end, none of which lies before the one in front of it."""
    bounds = np.empty(2 * len(ends), np.int64)
    bounds[0::2], bounds[1::2] = starts, ends
    return ByteStrings(data, bounds, np.arange(0, 2 * len(ends), 2), ends - starts, null)


def of_list(values: Sequence[bytes | None]) -> ByteStrings:
    """Return byte strings of Python."""
    return of_column(binary_array(values))


def of_bytes(value: bytes, rows: int) -> ByteStrings:
    """Return the same byte string for every row."""
    data, size = np.frombuffer(value, np.uint8), len(value)
    return ByteStrings(data, np.array([0, size]), np.zeros(rows, np.int64), np.full(rows, size))


def joined(parts: Sequence[ByteStrings]) -> ByteStrings:
    """Return rows one behind the other."""
    if len(parts) == 1:
        return parts[0]
    nulls = [np.zeros(len(part), np.bool_) if part.null is None else part.null for part in parts]
    return ByteStrings(
        *_one_buffer(parts),
        np.concatenate([part.piece + at for part, at in zip(parts, _before(parts), strict=True)]),
        np.concatenate([part.length for part in parts]),
        np.concatenate(nulls) if any(part.null is not None for part in parts) else None,
    )


def _one_buffer(parts: Sequence[ByteStrings]) -> tuple[npt.NDArray[np.uint8], Integers]:
    """Return the buffers one behind the other, and the bounds in it."""
    begins = accumulate((len(part.data) for part in parts[:-1]), initial=0)
    bounds = np.concatenate([part.bounds + at for part, at in zip(parts, begins, strict=True)])
    return np.concatenate([part.data for part in parts]), bounds


def _before(parts: Sequence[ByteStrings]) -> list[int]:
    """Return how many pieces come before those of each part when the buffers lie one behind the other."""
    return list(accumulate((len(part.bounds) for part in parts[:-1]), initial=0))


def interleaved(columns: Sequence[ByteStrings], end: ByteStrings) -> tuple[npt.NDArray[np.uint8], Integers]:
    """Return the bytes of all columns of the first row, of the second and so on, and where each row begins.

    Behind the last one comes the one row of `end`, which is counted as one more.
    """
    n, width = len(columns[0]), len(columns)
    parts = [*columns, end]
    data, bounds = _one_buffer(parts)
    before = _before(parts)
    places = np.empty(n * width + 1, np.int32)
    for k, column in enumerate(columns):
        np.add(column.piece, before[k], out=places[k:-1:width], casting="unsafe")
    places[-1] = before[-1]
    # Arrow gathers pieces faster than numpy does.
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    wanted = pa.Array.from_buffers(pa.int32(), len(places), [None, pa.py_buffer(places)])
    _, ends, gathered = pieces.take(wanted).buffers()
    starts = np.frombuffer(ends, np.int32, n * width + 1)[::width].astype(np.int64)
    return np.zeros(0, np.uint8) if gathered is None else np.frombuffer(gathered, np.uint8), starts
