"""Rows of one buffer to their buckets: whole blocks, slices, or one gather by sorted index, never row by row.

Within a bucket rows keep their order; rejected rows are in nobody's slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.connectors.files.buckets.assignment import REJECTED, Assignment

_FEW_RUNS = 32
_WIDE = 1 << 31


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of one bucket, back to back."""

    bucket: int  # number of the bucket
    data: memoryview  # their bytes, line ends included
    ends: npt.NDArray[np.int64]  # position of the last byte of each row, counted from `base`
    base: int  # position of the first byte of `data` in the same count
    times: npt.NDArray[np.float64] | None  # event times, or None


def route(data: memoryview, ends: npt.NDArray[np.int64], assignment: Assignment) -> Iterator[Slice]:
    """Yield the rows of a buffer by bucket, rejected ones left out. One bucket costs nothing, few runs cost slices."""
    codes, times = assignment.codes, assignment.times
    if isinstance(codes, int):
        yield Slice(codes, data[: int(ends[-1]) + 1], ends, 0, times)
        return
    n, cuts = len(codes), int(np.count_nonzero(codes[1:] != codes[:-1]))
    if cuts * _FEW_RUNS < n or cuts < 8:
        yield from _slices(data, ends, codes, times)
        return
    index = order(codes)
    offsets = np.empty(n + 1, np.int32 if len(data) < _WIDE else np.int64)
    offsets[0] = 0
    np.add(ends, 1, out=offsets[1:], casting="unsafe")
    kind = pa.binary() if offsets.dtype == np.int32 else pa.large_binary()
    rows = pa.Array.from_buffers(kind, n, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    taken = rows.take(pa.array(index))
    bounds = np.frombuffer(taken.buffers()[1], offsets.dtype, len(index) + 1)
    sorted_ends = np.subtract(bounds[1:], 1, dtype=np.int64)
    gathered = memoryview(taken.buffers()[2]) if len(index) else memoryview(b"")
    yield from _slices(gathered, sorted_ends, codes[index], None if times is None else times[index])


def order(codes: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Return the rows sorted by bucket, those of one bucket in their order, rejected ones left out."""
    # 8- and 16-bit keys are sorted by radix, about ten times faster than 32-bit ones; -1 becomes the greatest of them.
    most = codes.max()
    narrow = codes.astype(np.uint8 if most < 0xFF else np.uint16) if most < 0xFFFF else codes
    index = np.argsort(narrow, kind="stable")
    if codes.min() != REJECTED:
        return index
    rejected = int((codes == REJECTED).sum())
    return index[rejected:] if narrow is codes else index[: len(index) - rejected]


def _slices(
    data: memoryview, ends: npt.NDArray[np.int64], codes: npt.NDArray[np.int32], times: npt.NDArray[np.float64] | None
) -> Iterator[Slice]:
    base = 0
    for code, first, after in runs(codes):
        stop = int(ends[after - 1]) + 1
        if code != REJECTED:
            part = None if times is None else times[first:after]
            yield Slice(code, data[base:stop], ends[first:after], base, part)
        base = stop


def runs(codes: npt.NDArray[np.int32]) -> Iterator[tuple[int, int, int]]:
    """Yield each run of equal codes: the code, its first row, and the row after its last."""
    if len(codes):
        cuts = (np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()
        for first, after in pairwise((0, *cuts, len(codes))):
            yield int(codes[first]), first, after
