"""Rows of two streams that belong together: the same key, and a time within two bounds of the other's.

One side's rows are put in order of key and time once; what a row of the other side matches is then a stretch of them, which two binary
searches tell. Pairs come in the order of the searching rows, for each in the order of time, and of one time as they came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, indices_of, joined
from poundlock.operators.columns.groups import Hashes, grouped
from poundlock.operators.columns.joins.kept_rows import StoredRows, read_as
from poundlock.operators.columns.operator import CHUNK_ROWS, EncodedRows
from poundlock.operators.columns.records import encode_records, joined_rows

_LARGE = 1 << 62
_BYTES_AT_ONCE = 64 << 20  # of pairs in a chunk, about


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
        if flags.all():
            return self
        places = np.flatnonzero(flags)
        rows = indices_of(places)
        return TimedRows(self.hashes[places], self.keys.take(rows), self.times[places], self.records.take(rows))

    def __call__(self) -> EncodedRows:
        """Return them as state keeps them."""
        return EncodedRows(self.hashes, self.keys, encode_records(self.records), times=self.times)

    def slice(self, start: int, stop: int) -> TimedRows:
        """Return a stretch of the rows, without a copy."""
        n = stop - start
        return TimedRows(
            self.hashes[start:stop], self.keys.slice(start, n), self.times[start:stop], self.records.slice(start, n)
        )

    @classmethod
    def joined(cls, parts: Sequence[TimedRows]) -> TimedRows:
        """Return the rows of all parts, one behind the other; of one part it is the very same."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.hashes for part in parts]),
            joined([part.keys for part in parts]),
            np.concatenate([part.times for part in parts]),
            joined_rows([part.records for part in parts]),
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


def ranges(starts: Numbers, counts: Numbers) -> Numbers:
    """Return start, start + 1, … of each range, one behind the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def places_of(kept: Numbers, n: int) -> Numbers:
    """Return for each of n rows its place among those that were kept; of one that was not it is any."""
    places = np.zeros(n, np.int64)
    places[kept] = np.arange(len(kept))
    return places


def at_once(sides: Sequence[pa.RecordBatch]) -> int:
    """Return how many pairs of rows are made at once, so that wide rows do not fill the memory."""
    size = 1 + sum(int(rows.nbytes) // max(int(rows.num_rows), 1) for rows in sides)
    return max(1, min(CHUNK_ROWS, _BYTES_AT_ONCE // size))


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


class HeldRows:
    """Rows of a side of a join: those that state has, and those that came in this checkpoint.

    Args:
        parts: in the order they came.
        schema: the columns that are kept of a row.
    """

    def __init__(self, parts: Sequence[StoredRows | TimedRows], schema: pa.Schema) -> None:
        self._schema = schema
        self._parts = parts = [part for part in parts if len(part)]
        if parts:
            self.hashes: Hashes = np.concatenate([part.hashes for part in parts])
            self.keys = joined([part.keys for part in parts])
            self.times: Numbers = np.concatenate([part.times for part in parts])
        self._length = sum(map(len, parts))

    def __len__(self) -> int:
        return self._length

    def records(self, used: Numbers, names: Sequence[str]) -> tuple[pa.RecordBatch, Numbers]:
        """Return the rows that are used, and those that came in this checkpoint, as columns; and the place of each here.

        Args:
            used: places, ascending.
            names: the columns that are needed.
        """
        rows: list[pa.RecordBatch] = []
        kept: list[Numbers] = []
        first = 0
        for layout, parts in groupby(self._parts, key=_layout):
            some = list(parts)
            end = first + sum(map(len, some))
            own = np.arange(first, end) if layout is None else used[(used >= first) & (used < end)]
            if layout is None:
                rows += [part.records.select(list(names)) for part in some if isinstance(part, TimedRows)]
            elif len(own):
                values = [part.values for part in some if isinstance(part, StoredRows)]
                rows.append(read_as(joined(values).take(indices_of(own - first)), layout, self._schema, names))
            kept.append(own)
            first = end
        nothing = [pa.nulls(0, self._schema.field(name).type) for name in names]
        rows = rows or [pa.RecordBatch.from_arrays(nothing, list(names))]
        return joined_rows(rows), np.concatenate([*kept, np.empty(0, np.int64)])


def _layout(part: StoredRows | TimedRows) -> str | None:
    return part.layout if isinstance(part, StoredRows) else None
