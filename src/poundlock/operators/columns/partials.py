"""What the rows of a window's slice add up to for each key, made where rows are read: it is what travels, and what state keeps.

A slice is a stretch of time within which all rows are in the same windows. Rows with one key and slice become one row: the key's
hash and bytes, the slice, how many rows there were, and the accumulators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, indices_of, joined, numbers_in
from poundlock.operators.columns.aggregation import Aggregation, SpansAndSums
from poundlock.operators.columns.groups import Groups, Hashes, grouped, grouped_by_code, overlapping
from poundlock.operators.columns.rows.keys import HashKeys, RowKeys, times_in
from poundlock.operators.local_times import LocalTimes
from poundlock.operators.pieces import content_bytes
from poundlock.operators.windows.aligned import slice_of
from poundlock.stream.windows.assigners import WindowAssigner, require_time
from poundlock.stream.windows.builtin_assigners import Tumbling

_AT_ONCE = 1 << 16  # rows that are merged at a time, where they have not more bytes than
_BYTES_AT_ONCE = 128 << 20
PLACE = "__place"
"""The column of a number that ascends in the order in which rows came, where aggregates keep it."""


@dataclass(frozen=True, slots=True)
class Partials:
    """Rows that were added up, one for a key and slice.

    Args:
        hashes: of the keys.
        keys: their bytes, large_binary.
        slices: when each slice, or session, begins, ms.
        counts: of how many rows each is.
        held: the columns of the accumulators.
    """

    hashes: Hashes
    keys: pa.Array
    slices: Numbers
    counts: Numbers
    held: Sequence[pa.Array]

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, rows: Numbers) -> Partials:
        """Return some of the rows, by their places."""
        indices = indices_of(rows)
        held = [column.take(indices) for column in self.held]
        return Partials(self.hashes[rows], self.keys.take(indices), self.slices[rows], self.counts[rows], held)

    def slice(self, start: int, stop: int) -> Partials:
        """Return a stretch of the rows, without a copy."""
        n = stop - start
        held = [column.slice(start, n) for column in self.held]
        return Partials(
            self.hashes[start:stop], self.keys.slice(start, n), self.slices[start:stop], self.counts[start:stop], held
        )

    @classmethod
    def joined(cls, parts: Sequence[Partials]) -> Partials:
        """Return the rows of all parts, one behind the other; of one part it is the very same."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.hashes for part in parts]),
            joined([part.keys for part in parts]),
            np.concatenate([part.slices for part in parts]),
            np.concatenate([part.counts for part in parts]),
            [joined(columns) for columns in zip(*(part.held for part in parts), strict=True)],
        )


def merges_by_time(assigner: WindowAssigner) -> bool:
    """Return whether what the rows of a window came to is merged in the order of event time, which is not that in which they came."""
    return assigner.is_event_time() and not isinstance(assigner, Tumbling)


def merged(parts: Sequence[Partials], aggregates: Aggregation, width: int = 1) -> Partials:
    """Return one row for each slice and key, in that order; parts stand in the order of the rows that they are of.

    Args:
        width: of the slices, ms.
    """
    rows = Partials.joined(parts)
    groups = grouped(rows.hashes, rows.keys, rows.slices, width)
    firsts = groups.firsts
    keys = rows.keys.take(indices_of(firsts))
    return Partials(
        rows.hashes[firsts],
        keys,
        rows.slices[firsts],
        np.add.reduceat(rows.counts[groups.order], groups.starts) if len(groups) else rows.counts,
        aggregates.merge(rows.held, groups),
    )


def in_ranges(
    parts: Sequence[Any],
    decoded: Callable[[Any], Partials],
    content: Callable[[Any], Sequence[pa.Array]],
) -> Iterator[list[Partials]]:
    """Yield the rows of parts, each by hash, by ranges of hashes, so that memory does not follow how many there are, nor how wide.

    Args:
        parts: partials, what was sent of some, or rows of state in mapped files.
        decoded: makes partials of what is in a range.
        content: the columns that hold what a part has.
    """
    whole = [part for part in parts if len(part)]
    rows = sum(map(len, whole))
    if not rows:
        return
    in_bytes = sum(content_bytes(content(part)) for part in whole)
    count = max(-(-rows // _AT_ONCE), -(-in_bytes // _BYTES_AT_ONCE))
    edges = _edges(min(int(p.hashes[0]) for p in whole), max(int(p.hashes[-1]) for p in whole), count)
    begins = [0] * len(whole)
    for edge in [*edges, None]:
        ends = [len(p) if edge is None else int(np.searchsorted(p.hashes, np.uint64(edge))) for p in whole]
        some = [decoded(p.slice(b, e)) for p, b, e in zip(whole, begins, ends, strict=True) if e > b]
        begins = ends
        if some:
            yield some


def _edges(low: int, high: int, count: int) -> list[int]:
    """Return what divides hashes into so many ranges; they lie evenly."""
    return [low + (high - low) * number // count for number in range(1, count)]


@dataclass(frozen=True)
class RowAggregation:
    """How rows become partials. Picklable.

    Args:
        keys: the columns of the key.
        time: the column of event time, a timestamp; None where windows end by the clock.
        arguments: the columns that aggregates are of.
        assigner: the windows.
        hash_keys: the hash of keys, by which they were sent.
        local: the wall clocks that windows follow; None: that of UTC. All times of the step are theirs then.
    """

    keys: tuple[str, ...]
    time: str | None
    arguments: tuple[str, ...]
    aggregates: Aggregation
    assigner: Any
    hash_keys: HashKeys
    local: LocalTimes | None = None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of a row that are needed, each once."""
        return tuple(dict.fromkeys([*self.keys, *([] if self.time is None else [self.time]), *self._given]))

    @cached_property
    def _given(self) -> tuple[str, ...]:
        """What aggregates are given."""
        return (*self.arguments, *([PLACE] if self.aggregates.places else []))

    @property
    def places(self) -> Sequence[int]:
        """Which of the accumulators' columns say at which place a value came; where there are some, rows have the column `PLACE`."""
        return self.aggregates.places

    def times(self, rows: pa.RecordBatch, clock: int) -> Numbers:
        """Return what tells the windows of each row, ms; `clock` counts where there is no event time.

        Raises:
            DefinitionError: a row has no event time.
        """
        raise NotImplementedError

    def of(self, rows: pa.RecordBatch, times: Numbers) -> Partials:
        """Return what rows add up to.

        Args:
            times: of each, as `times` gave them.
        """
        raise NotImplementedError

    def clock_of(self, now: int) -> int:
        """Return the clock, ms, that rows are given windows by: of wall times the one that is."""
        return now if self.local is None else self.local.at(now)

    def reached(self, instant: int) -> int:
        """Return how far time has come, ms, for windows that fire: of wall times the last that is over."""
        return instant if self.local is None else self.local.over_at(instant)

    def due(self, time: int) -> int:
        """Return the instant, ms, at which a time that a window waits for has been reached."""
        return time if self.local is None else self.local.end(time)

    def instants(self, times: Numbers) -> Numbers:
        """Return the instants, ms, of times that windows have reached."""
        return times if self.local is None else self.local.ends(times)

    def event_times(self, rows: pa.RecordBatch) -> Numbers:
        """Return the event time of each row, ms.

        Raises:
            DefinitionError: one has none.
        """
        column = rows.column(self.time)
        if column.null_count:
            require_time(None, self.assigner)
        return times_in(column) if self.local is None else self.local.of(times_in(column))

    @property
    def _key(self) -> RowKeys:
        return RowKeys(self.keys, self.hash_keys)

    def hashed(self, rows: pa.RecordBatch) -> tuple[Hashes, pa.Array | None]:
        """Return what `RowKeys.hashed` does."""
        return self._key.hashed(rows)

    def of_each(self, rows: pa.RecordBatch, times: Numbers) -> Partials:
        """Return each row added up alone, in the order they came."""
        places = np.arange(rows.num_rows)
        return self.added(rows, self.hashed(rows)[0], times, Groups(places, places))

    def added(self, rows: pa.RecordBatch, hashes: Hashes, times: Numbers, groups: Groups) -> Partials:
        """Return one partial for each group of rows; its time is that of the group's first row."""
        firsts = groups.firsts
        return Partials(
            hashes[firsts],
            self._key.encoded(rows, firsts),
            times[firsts],
            groups.counts,
            self.aggregates.partial([rows.column(name) for name in self._given], groups),
        )


@dataclass(frozen=True)
class SliceAggregation(RowAggregation):
    """Adds up rows by key and slice of time; `times` are when slices begin."""

    @cached_property
    def _slice(self) -> tuple[int, int]:
        offset_and_width = slice_of(self.assigner)
        assert offset_and_width is not None
        return offset_and_width

    @property
    def width(self) -> int:
        """How long a slice is, ms."""
        return self._slice[1]

    def times(self, rows: pa.RecordBatch, clock: int) -> Numbers:
        offset, width = self._slice
        if self.time is None:
            return np.full(rows.num_rows, clock - (clock - offset) % width, np.int64)
        times = self.event_times(rows)
        low, high = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        first = low - (low - offset) % width
        if high < first + width:
            return np.full(len(times), first, np.int64)
        result: Numbers = times - (times - offset) % width
        return result

    def of(self, rows: pa.RecordBatch, times: Numbers) -> Partials:
        return self._of_few(rows, times) or self._of_many(rows, times)

    def _of_few(self, rows: pa.RecordBatch, times: Numbers) -> Partials | None:
        """Return what rows of few keys add up to: each key is hashed and compared once."""
        numbered = self._key.numbered(rows)
        if numbered is None:
            return None
        codes, keys = numbers_in(numbered.indices), numbered.dictionary
        hashes = self.hash_keys([keys])
        groups = grouped_by_code(codes, hashes, keys, times, self.width)
        return None if groups is None else self.added(rows, hashes[codes], times, groups)

    def _of_many(self, rows: pa.RecordBatch, times: Numbers) -> Partials:
        hashes, keys = self.hashed(rows)
        return self.added(rows, hashes, times, grouped(hashes, keys, times, self.width))


@dataclass(frozen=True)
class SessionAggregation(RowAggregation):
    """Adds up rows by key and session, as far as these rows alone tell; `times` are event times, or the clock.

    The first two accumulators are when a session begins and when it ends, ms.
    """

    @property
    def gap(self) -> int:
        """The gap, ms."""
        return int(self.assigner.gap_ms)

    @cached_property
    def held(self) -> SpansAndSums:
        """What accumulators are: begin and end, then the user's."""
        return SpansAndSums(self.aggregates)

    @property
    def places(self) -> Sequence[int]:
        return self.held.places

    def times(self, rows: pa.RecordBatch, clock: int) -> Numbers:
        return np.full(rows.num_rows, clock, np.int64) if self.time is None else self.event_times(rows)

    def of(self, rows: pa.RecordBatch, times: Numbers) -> Partials:
        hashes, keys = self.hashed(rows)
        return self.added(rows, hashes, times, overlapping(hashes, keys, times, times + self.gap))

    def added(self, rows: pa.RecordBatch, hashes: Hashes, times: Numbers, groups: Groups) -> Partials:
        own = super().added(rows, hashes, times, groups)
        return replace(own, held=self.held.partial(times, self.gap, own.held, groups))
