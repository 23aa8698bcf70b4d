"""Rows of one buffer to their buckets: whole blocks, slices, or one gather by sorted index, never row by row.

Within a bucket rows keep their order; rejected rows are in nobody's slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    cuts = (np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()
    n = len(codes)
    if len(cuts) * _FEW_RUNS < n or len(cuts) < 8:
        yield from _runs(data, ends, codes, times, cuts)
        return
    index = order(codes)
    offsets = np.empty(n + 1, np.int32 if len(data) < _WIDE else np.int64)
    offsets[0] = 0
    np.add(ends, 1, out=offsets[1:], casting="unsafe")
    kind = pa.binary() if offsets.dtype == np.int32 else pa.large_binary()
    rows = pa.Array.from_buffers(kind, n, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    taken = rows.take(pa.array(index))
    bounds = np.frombuffer(taken.buffers()[1], offsets.dtype, len(index) + 1)
    sorted_codes = codes[index]
    sorted_times = None if times is None else times[index]
    sorted_ends = np.subtract(bounds[1:], 1, dtype=np.int64)
    cuts = (np.flatnonzero(sorted_codes[1:] != sorted_codes[:-1]) + 1).tolist()
    gathered = memoryview(taken.buffers()[2]) if len(index) else memoryview(b"")
    yield from _runs(gathered, sorted_ends, sorted_codes, sorted_times, cuts)


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


def _runs(
    data: memoryview,
    ends: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int32],
    times: npt.NDArray[np.float64] | None,
    cuts: list[int],
) -> Iterator[Slice]:
    first = base = 0
    n = len(codes)
    if not n:
        return
    for after in (*cuts, n):
        stop = int(ends[after - 1]) + 1
        code = int(codes[first])
        if code != REJECTED:
            part = None if times is None else times[first:after]
            yield Slice(code, data[base:stop], ends[first:after], base, part)
        first, base = after, stop
