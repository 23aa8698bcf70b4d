"""Sessions of one gap with SQL aggregates, by columns: stretches of time of a key that overlap or touch are one session.

Open sessions lie in state by when they end, in buckets of time, so that those that are due are reached without a look at the others. A
session that grows leaves its bucket for another one. Rows that are not late are applied before those that may be: a row behind the
watermark is late unless it touches a session that is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, binary_array, column_of, indices_of, joined, numbers_in
from poundlock.operators.columns.aggregation import Aggregation, FunctionAggregation, SpansAndSums
from poundlock.operators.columns.encoding import decode_spans, encode_spans
from poundlock.operators.columns.groups import Groups, grouped, overlapping
from poundlock.operators.columns.operator import ColumnChunk, EncodedRows, PartialsOperator, Slice, WindowColumns
from poundlock.operators.columns.partials import Partials, SessionAggregation, in_ranges
from poundlock.operators.columns.sent import SentPartials
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.windows.base import CONTENTS

_PARTS_OF_A_GAP, _LEAST_MS = 8, 1_000
"""In how many buckets the sessions are that end within a gap, unless a bucket were shorter than this."""


@dataclass(frozen=True)
class ColumnSessions(WindowColumns[SessionAggregation]):
    """Event-time sessions of one gap with their default trigger, no lateness, no evictor and SQL aggregates."""

    @property
    def singly(self) -> bool:
        """Whether some rows are needed one by one: those that may be late."""
        return True

    def alone(self, times: Numbers, watermark: int) -> Flags:
        """Return which rows would be late if they touched no session; `times`: event times."""
        flags: Flags = times + self.partial.gap - 1 <= watermark
        return flags

    def operator(self) -> ColumnSessionOperator:
        """Return a new operator."""
        return ColumnSessionOperator(self)


@dataclass
class _Bucket:
    """What changed of the sessions that end within a stretch of time: those that are new or grew, and the rows that are gone."""

    aggregates: Aggregation
    added: list[Partials] = field(default_factory=list)
    removed: list[Partials] = field(default_factory=list)

    def __call__(self) -> EncodedRows:
        """Return the rows that are to be written: without a value where a session is gone."""
        rows = Partials.joined([*self.added, *self.removed])
        keep = np.arange(len(rows)) < sum(map(len, self.added))
        values = self.aggregates.encode(rows.held[2:]).take(column_of(np.arange(len(rows)), pa.int64(), keep))
        return EncodedRows(rows.hashes, rows.keys, values, encode_spans(*_bounds(rows)))


class ColumnSessionOperator(PartialsOperator):
    """Event-time sessions of SQL aggregates."""

    def __init__(self, sessions: ColumnSessions) -> None:
        super().__init__(sessions)
        self._sessions, self._partial = sessions, sessions.partial
        self._aggregates = sessions.partial.held
        self._width = max(sessions.partial.gap // _PARTS_OF_A_GAP, _LEAST_MS)
        self._waiting: list[SentPartials] = []  # each by hash
        self._changed: dict[Slice, _Bucket] = {}

    def bind(self, group: KeyGroup) -> None:
        own = self._partial.aggregates
        whole = isinstance(own, FunctionAggregation)
        kind = f"spans, {own.described[0]}" if whole else "spans"
        group.declare(CONTENTS, kind, windowed=True, holds=own.described if own.places else ())
        for bucket in group.namespaces(CONTENTS):
            self._wait_for(bucket, bucket[0])

    # --- elements -------------------------------------------------------------------------------------------------------

    def take(self, group: KeyGroup, parts: Sequence[SentPartials]) -> None:
        self.use(group)
        self._waiting += [part for part in parts if len(part)]

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        times = self._partial.times(rows, 0)
        singles = self._partial.of_each(rows, times)
        late = self._late(singles)
        gone = np.flatnonzero(late)
        yield from self.send_late(rows.take(indices_of(gone)), times[gone])
        by_hash = np.argsort(singles.hashes, kind="stable")
        self._waiting.append(SentPartials.of(singles.take(by_hash[~late[by_hash]])))

    def _late(self, singles: Partials) -> Flags:
        """Return which rows, taken in their order, touch no session that is open."""
        rows = Partials.joined([*(part.unpacked() for part in self._waiting), singles])
        own = len(rows) - len(singles)
        groups = grouped(rows.hashes, rows.keys)
        number = _numbers(groups)
        asked = _flags(number[own:], len(groups))
        wanted = np.flatnonzero(asked)
        of_single = np.searchsorted(wanted, number[own:])
        known: list[list[tuple[int, int]]] = [[] for _ in wanted]
        open_ = self._open(rows.take(groups.firsts[wanted]))
        starts, ends = _bounds(open_.rows)
        for key, start, end in zip(open_.keys.tolist(), starts.tolist(), ends.tolist(), strict=True):
            known[key].append((start, end))
        starts, ends = _bounds(rows)
        for row in np.flatnonzero(asked[number[:own]]).tolist():
            known[int(np.searchsorted(wanted, number[row]))].append((int(starts[row]), int(ends[row])))
        late = np.ones(len(singles), np.bool_)
        for row, key in enumerate(of_single.tolist()):
            start, end = int(starts[own + row]), int(ends[own + row])
            if any(start <= to and end >= at for at, to in known[key]):
                late[row] = False
                known[key].append((start, end))
        return late

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[Any]:
        self.use(group)
        self._apply()
        yield from super().advance_watermark(group, watermark)

    def _apply(self) -> None:
        """Merge what came with the sessions of its keys that are open, a range of keys at a time: those of others are none of their business."""
        waiting, self._waiting = self._waiting, []
        for some in in_ranges(waiting, SentPartials.unpacked):
            self._merge(Partials.joined(some))

    def _merge(self, new: Partials) -> None:
        open_ = self._open(new.take(grouped(new.hashes, new.keys).firsts))
        rows = Partials.joined([open_.rows, new])
        groups = overlapping(rows.hashes, rows.keys, *_bounds(rows))
        number = _numbers(groups)
        held = self._aggregates.merge(rows.held, groups)
        sessions = replace(rows.take(groups.firsts), held=held)
        touched = _flags(number[len(open_.rows) :], len(groups))
        of_open = number[: len(open_.rows)]
        # A session whose bounds stay takes the place of its row.
        same = [now[of_open] == before for now, before in zip(_bounds(sessions), _bounds(open_.rows), strict=True)]
        moved = touched[of_open] & ~(same[0] & same[1])
        for place, bucket in enumerate(open_.buckets):
            gone = np.flatnonzero(moved & (open_.bucket_of == place))
            if len(gone):
                self._changed.setdefault(bucket, self._bucket()).removed.append(open_.rows.take(gone))
        self._add(sessions.take(np.flatnonzero(touched)))

    def _add(self, sessions: Partials) -> None:
        """Put sessions into the buckets that their ends are in."""
        ends = _bounds(sessions)[1]
        begins = ends // self._width * self._width
        order = np.argsort(begins, kind="stable")
        edges = np.flatnonzero(np.diff(begins[order], prepend=begins.min() - 1, append=begins.max() + 1))
        for first, stop in pairwise(edges.tolist()):
            own, begin = order[first:stop], int(begins[order[first]])
            bucket = (begin, begin + self._width)
            self._changed.setdefault(bucket, self._bucket()).added.append(sessions.take(own))
            self._wait_for(bucket, int(ends[own].min()))

    def _open(self, wanted: Partials) -> _Open:
        """Return the sessions in state of some keys, which stand by hash."""
        buckets = self.group.namespaces(CONTENTS)
        parts = [wanted.take(np.empty(0, np.int64))]
        keys, bucket_of = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for place, bucket in enumerate(buckets):
            numbers, there = self.rows.look_up(CONTENTS, bucket, wanted.hashes, wanted.keys)
            if len(numbers):
                parts.append(self._decoded(there))
                keys.append(numbers)
                bucket_of.append(np.full(len(numbers), place))
        return _Open(Partials.joined(parts), np.concatenate(keys), np.concatenate(bucket_of), buckets)

    def _decoded(self, rows: Any) -> Partials:
        zeros = np.zeros(len(rows.hashes), np.int64)
        held = self._partial.aggregates.decode(rows.values)
        return Partials(rows.hashes, rows.keys, zeros, zeros, [*decode_spans(rows.subkeys), *held])

    # --- firing ---------------------------------------------------------------------------------------------------------

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk]:  # type: ignore[override]
        watermark, bucket = self.group.watermark, entry
        changed = self._changed.pop(bucket, None) or self._bucket()
        stored = self._stored(bucket, changed)
        rows = Partials.joined([*stored, *changed.added])
        due = _due(rows, watermark)
        if due.any():
            yield from self._fire(rows.take(np.flatnonzero(due)))
        if bucket[1] - 2 <= watermark:  # the last that can end in it has
            self.group.drop(CONTENTS, bucket)
            return
        left = np.flatnonzero(~due)
        if len(left):
            self._wait_for(bucket, int(_bounds(rows)[1][left].min()))
        # One that was added may stand for a row in state, which must not come back.
        removed = [part.take(np.flatnonzero(_due(part, watermark))) for part in (*stored, *changed.added)]
        added = [part.take(np.flatnonzero(~_due(part, watermark))) for part in changed.added]
        self._changed[bucket] = self._bucket(added, [*changed.removed, *removed])

    def _bucket(self, added: Sequence[Partials] = (), removed: Sequence[Partials] = ()) -> _Bucket:
        return _Bucket(self._partial.aggregates, list(added), list(removed))

    def _stored(self, bucket: Slice, changed: _Bucket) -> list[Partials]:
        """Return the sessions that state has in a bucket, without those that are gone or of which there is a newer row."""
        there = self.rows.entries_of(CONTENTS, bucket)
        if not len(there):
            return [] if changed.added else [_nothing(self._aggregates)]
        rows = self._decoded(there)
        others = [*changed.removed, *changed.added]
        return [rows.take(np.flatnonzero(~_among(rows, Partials.joined(others)))) if others else rows]

    def _fire(self, rows: Partials) -> Iterator[ColumnChunk]:
        starts, ends = _bounds(rows)
        order = np.lexsort((rows.hashes, ends))
        rows, output = rows.take(order), self._sessions.output
        results = self._partial.aggregates.results(rows.held[2:], [result.type for result in output.results])
        return output.chunks(rows.keys, results, starts[order], ends[order])

    def _wait_for(self, bucket: Slice, end: int) -> None:
        """Look at a bucket when a session with an end is due; at the next watermark if that has passed."""
        self.group.event_timers.register(max(end - 1, self.group.watermark + 1), bucket)

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        self._apply()
        for bucket, changed in self._changed.items():
            if any(map(len, (*changed.added, *changed.removed))):
                self.rows.append(CONTENTS, bucket, changed)
        self._changed = {}


@dataclass(frozen=True)
class _Open:
    """Sessions in state: for each the number of its key among those that were asked for, and its bucket."""

    rows: Partials
    keys: Numbers
    bucket_of: Numbers
    buckets: Sequence[Slice]


def _nothing(aggregates: SpansAndSums) -> Partials:
    none = np.empty(0, np.int64)
    held = [pa.nulls(0, kind) for kind in aggregates.types]
    return Partials(none.view(np.uint64), binary_array([]), none, none, held)


def _numbers(groups: Groups) -> Numbers:
    """Return the number of each row's group."""
    numbers = np.empty(len(groups.order), np.int64)
    numbers[groups.order] = np.repeat(np.arange(len(groups)), groups.counts)
    return numbers


def _bounds(rows: Partials) -> tuple[Numbers, Numbers]:
    """Return when sessions begin and end."""
    return numbers_in(rows.held[0]), numbers_in(rows.held[1])


def _due(rows: Partials, watermark: int) -> Flags:
    due: Flags = _bounds(rows)[1] - 1 <= watermark
    return due


def _among(rows: Partials, others: Partials) -> Flags:
    """Return which sessions are among others; those of a key do not overlap, so where one begins tells it."""
    starts = np.concatenate([_bounds(rows)[0], _bounds(others)[0]])
    groups = grouped(np.concatenate([rows.hashes, others.hashes]), joined([rows.keys, others.keys]), starts)
    number = _numbers(groups)
    among: Flags = _flags(number[len(rows) :], len(groups))[number[: len(rows)]]
    return among


def _flags(numbers: Numbers, n: int) -> Flags:
    """Return which of the numbers below n are there."""
    flags = np.zeros(n, np.bool_)
    flags[numbers] = True
    return flags
