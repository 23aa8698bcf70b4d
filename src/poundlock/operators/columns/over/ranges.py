"""What stretches of a column come to: each stretch is of rows from one place up to another, and stretches may overlap as they like.

Sums of whole numbers are differences of running ones. Those of floating point numbers are put together of sums of 1, 2, 4, … rows, so
that nothing is added that is taken off again; the greatest number is likewise the greater of two such pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from poundlock.formats.arrays import Flags, Numbers, ranges

Sums = Callable[[Numbers, Numbers], npt.NDArray[Any]]
_AT_ONCE = 1 << 22  # places that are written out at a time


def whole_sums(numbers: Numbers) -> Sums:
    """Return what gives the sums of stretches of whole numbers, which wrap around."""
    total = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(numbers, out=total[1:])
    return lambda first, stop: total[stop] - total[first]


def float_sums(numbers: npt.NDArray[np.float64]) -> Sums:
    """Return what gives the sums of stretches of floating point numbers."""

    def sums(first: Numbers, stop: Numbers) -> npt.NDArray[np.float64]:
        out = np.zeros(len(first))
        at, left, level, width = first.copy(), stop - first, numbers, 1
        with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are sums like others
            while len(left) and int(left.max()) > 0:
                odd = np.flatnonzero(left & 1)
                out[odd] += level[at[odd]]
                at[odd] += width
                left >>= 1
                level = level[: max(len(level) - width, 0)] + level[width:]
                width *= 2
        return out

    return sums


def greatest(ranks: Numbers) -> Callable[[Numbers, Numbers], Numbers]:
    """Return what gives the greatest number of stretches, none of which is empty."""

    def most(first: Numbers, stop: Numbers) -> Numbers:
        out = np.empty(len(first), np.int64)
        left = stop - first
        level, width = ranks, 1
        while len(left):
            fits = np.flatnonzero((left >= width) & (left < 2 * width))
            out[fits] = np.maximum(level[first[fits]], level[stop[fits] - width])
            if int(left.max()) < 2 * width:
                break
            level = np.maximum(level[: len(level) - width], level[width:])
            width *= 2
        return out

    return most


def first_shown(shown: Flags) -> Callable[[Numbers, Numbers], Numbers]:
    """Return what gives the first place of stretches that is shown, -1 where there is none."""
    count = len(shown)
    following = np.append(np.where(shown, np.arange(count), count), count)
    following = np.minimum.accumulate(following[::-1])[::-1]

    def firsts(first: Numbers, stop: Numbers) -> Numbers:
        at = following[first]
        return np.where(at < stop, at, -1)

    return firsts


def last_shown(shown: Flags) -> Callable[[Numbers, Numbers], Numbers]:
    """Return what gives the last place of stretches that is shown, -1 where there is none."""
    before = np.append(-1, np.maximum.accumulate(np.where(shown, np.arange(len(shown)), -1)))

    def lasts(first: Numbers, stop: Numbers) -> Numbers:
        at = before[stop]
        return np.where(at >= first, at, -1)

    return lasts


def sums_below(
    numbers: Numbers, weights: Sequence[Numbers], first: Numbers, stop: Numbers, limit: Numbers
) -> list[Numbers]:
    """Return of each stretch the sums of weights of those places whose number is below a limit.

    Numbers are parted by their bits, the highest first, and a stretch is followed through the parts.

    Args:
        numbers: not below 0.
        weights: several of each place.
        limit: of each stretch, not below 0.
    """
    out = [np.zeros(len(first), np.int64) for _ in weights]
    bits = int(max(numbers.max(initial=0), limit.max(initial=0))).bit_length()
    first, stop = first.copy(), stop.copy()
    for bit in range(bits - 1, -1, -1):
        zero = (numbers >> bit) & 1 == 0
        before = np.append(0, np.cumsum(zero))
        counted = (limit >> bit) & 1 == 1
        low, high = before[first], before[stop]
        for total, weight in zip(out, weights, strict=True):
            sums = whole_sums(np.where(zero, weight, 0))
            total[counted] += sums(first[counted], stop[counted])
        zeros = int(before[-1])
        first, stop = np.where(counted, zeros + first - low, low), np.where(counted, zeros + stop - high, high)
        order = np.concatenate([np.flatnonzero(zero), np.flatnonzero(~zero)])
        numbers, weights = numbers[order], [weight[order] for weight in weights]
    return out


def written_out(first: Numbers, stop: Numbers) -> Iterator[tuple[slice, Numbers, Numbers]]:
    """Yield the places of stretches one behind the other, some stretches at a time: which, the stretch of each place, the places."""
    counts = stop - first
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + _AT_ONCE, "right")), start + 1)
        some = slice(start, end)
        yield some, np.repeat(np.arange(start, end), counts[some]), ranges(first[some], counts[some])
        start = end
