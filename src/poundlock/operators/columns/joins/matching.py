"""Rows of two streams that belong together: the same key, and a time within two bounds of the other's.

One side's rows are put in order of key and time once; what a row of the other side matches is then a stretch of them, which two binary
searches tell. Pairs come in the order of the searching rows, for each in the order of time, and of one time as they came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, indices_of, joined, ranges
from poundlock.operators.columns.groups import Hashes, grouped
from poundlock.operators.columns.operator import EncodedRows
from poundlock.operators.columns.records import encode_records

_LARGE = 1 << 62


@dataclass(frozen=True, slots=True)
class TimedRows:
    """Whole rows with the hash and the bytes of their keys, and their times.

    Args:
        hashes: of the keys.
        keys: their bytes, large_binary.
        times: in ms.
        records: the rows.
    """

    hashes: Hashes
    keys: pa.Array
    times: Numbers
    records: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.hashes)

    def where(self, flags: Flags) -> TimedRows:
        """Return some of the rows."""
        return self if flags.all() else self.take(np.flatnonzero(flags))

    def take(self, places: Numbers) -> TimedRows:
        """Return rows by their places."""
        rows = indices_of(places)
        return TimedRows(self.hashes[places], self.keys.take(rows), self.times[places], self.records.take(rows))

    def parted(self, starts: Numbers) -> Iterator[tuple[int, TimedRows]]:
        """Yield the rows by a number that each has, such as when its stretch of time begins; those of one number in their order."""
        order = np.argsort(starts, kind="stable")
        rows = self if (starts[1:] >= starts[:-1]).all() else self.take(order)
        different, first = np.unique(starts[order], return_index=True)
        bounds = pairwise([*first.tolist(), len(rows)])
        for number, (start, stop) in zip(different.tolist(), bounds, strict=True):
            yield number, rows.slice(start, stop)

    @property
    def width(self) -> int:
        """About how many bytes a row has."""
        return int(self.records.nbytes) // max(len(self), 1)

    def slice(self, start: int, stop: int) -> TimedRows:
        """Return a stretch of the rows, without a copy."""
        n = stop - start
        return TimedRows(
            self.hashes[start:stop], self.keys.slice(start, n), self.times[start:stop], self.records.slice(start, n)
        )


@dataclass(frozen=True, slots=True)
class AddedRows:
    """Rows that are to be written.

    Args:
        parts: in the order they came. Their texts would not all fit into one column.
    """

    parts: Sequence[TimedRows]

    def __call__(self) -> EncodedRows:
        """Return them as state keeps them."""
        return EncodedRows(
            np.concatenate([part.hashes for part in self.parts]),
            joined([part.keys for part in self.parts]),
            joined([encode_records(part.records) for part in self.parts]),
            times=np.concatenate([part.times for part in self.parts]),
        )


def of_hashes(held: Any, wanted: Hashes) -> Numbers:
    """Return the places of the rows whose hash is among some.

    Args:
        held: rows of state, by hash.
        wanted: ascending, each once.
    """
    if not len(held.hashes) or not len(wanted):
        return np.empty(0, np.int64)
    if len(held.hashes) <= 4 * len(wanted):
        at = np.minimum(np.searchsorted(wanted, held.hashes), len(wanted) - 1)
        return np.flatnonzero(wanted[at] == held.hashes)
    first, stop = (np.searchsorted(held.hashes, wanted, side) for side in ("left", "right"))
    return ranges(first, stop - first)


class Pairs(NamedTuple):
    """Pairs of rows: the place of each one's row among those that were searched for, and among those that were searched."""

    own: Numbers
    other: Numbers


@dataclass(frozen=True, slots=True)
class MatchRanges:
    """What some rows match among others.

    Args:
        order: the places of the others, by key and time.
        first: where in `order` the matches of each row begin.
        counts: how many matches each row has.
    """

    order: Numbers
    first: Numbers
    counts: Numbers

    @property
    def used(self) -> Numbers:
        """The places of the others that match any row, ascending."""
        some = self.counts > 0
        n = len(self.order) + 1
        begins, ends = (
            np.bincount(self.first[some], minlength=n),
            np.bincount((self.first + self.counts)[some], minlength=n),
        )
        return np.sort(self.order[np.cumsum(begins - ends)[:-1] > 0])

    def pairs(self, at_once: int) -> Iterator[Pairs]:
        """Yield the pairs, at most so many at once."""
        ends = np.cumsum(self.counts)
        total = int(ends[-1]) if len(ends) else 0
        for begin in range(0, total, at_once):
            numbers = np.arange(begin, min(begin + at_once, total))
            own = np.searchsorted(ends, numbers, "right")
            yield Pairs(own, self.order[self.first[own] + numbers - (ends - self.counts)[own]])


def match_ranges(
    own: tuple[Hashes, pa.Array, Numbers], others: tuple[Hashes, pa.Array, Numbers], bounds: tuple[int, int]
) -> MatchRanges:
    """Return what rows match among others: those of the same key whose time is within the bounds of theirs.

    Args:
        own: hashes and bytes of keys, and times in ms.
        others: likewise; those of one key and time stand as they came.
        bounds: from where to where, relative to a row's time, the times of its matches are, ms.
    """
    n = len(own[0])
    groups = grouped(np.concatenate([own[0], others[0]]), joined([own[1], others[1]]))
    key_of = np.empty(len(groups.order), np.int64)
    key_of[groups.order] = np.repeat(np.arange(len(groups)), groups.counts)
    times, span, first, stop = _places(own[2], others[2], bounds, len(groups))
    words = key_of[n:] * span + times
    order = np.argsort(words, kind="stable")
    words, begin = words[order], key_of[:n] * span
    starts = np.searchsorted(words, begin + first)
    return MatchRanges(order, starts, np.maximum(np.searchsorted(words, begin + stop) - starts, 0))


def _places(own: Numbers, others: Numbers, bounds: tuple[int, int], keys: int) -> tuple[Numbers, int, Numbers, Numbers]:
    """Return the times of the others as numbers below a span, that, and from which to before which number the matches of each row are."""
    lower, upper = bounds
    base = int(others.min())
    span = int(others.max()) - base + 1
    if span * keys < _LARGE:
        return others - base, span, np.clip(own + (lower - base), 0, span), np.clip(own + (upper - base + 1), 0, span)
    different, places = np.unique(others, return_inverse=True)
    stop = np.searchsorted(different, own + upper, "right")
    return places, len(different), np.searchsorted(different, own + lower), stop
