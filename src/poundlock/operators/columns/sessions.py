"""Sessions of one gap with SQL aggregates, by columns: stretches of time of a key that overlap or touch are one session.

Open sessions lie in state by when they end, in buckets of time, so that those that are due are reached without a look at the others. A
session that grows leaves its bucket for another one. With an allowed lateness those that fired lie in buckets of their own, each of
which goes as a whole. Rows that are not late are applied before those that may be: a row behind the watermark is late unless it touches
a session that is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, binary_array, column_of, indices_of, joined, numbers_in
from poundlock.operators.columns.aggregation import Aggregation, FunctionAggregation, SpansAndSums
from poundlock.operators.columns.encoding import decode_spans, encode_spans
from poundlock.operators.columns.groups import Groups, Hashes, grouped, overlapping
from poundlock.operators.columns.joining import Firings, KnownSessions, running
from poundlock.operators.columns.operator import ColumnChunk, EncodedRows, PartialsOperator, Slice, WindowColumns
from poundlock.operators.columns.partials import Partials, SessionAggregation, in_ranges
from poundlock.operators.columns.sent import SentPartials
from poundlock.operators.keyed.codec import encode
from poundlock.operators.keyed.group import MAX, MIN, KeyGroup
from poundlock.operators.windows.base import CONTENTS
from poundlock.stream.windows.builtin_triggers import PurgingTrigger

FIRED = "fired"
"""The state of sessions that fired and may grow as late rows come."""

_PARTS_OF_A_GAP, _LEAST_MS = 8, 1_000
"""In how many buckets the sessions are that end within a gap, unless a bucket were shorter than this."""
_PARTS_OF_A_LATENESS = 64
"""In how many buckets the sessions are that fired within an allowed lateness, unless one were shorter than those that are open have."""


@dataclass(frozen=True)
class ColumnSessions(WindowColumns[SessionAggregation]):
    """Sessions of one gap with their default trigger or one that purges, no evictor and SQL aggregates."""

    @property
    def singly(self) -> bool:
        """Whether some rows are needed one by one: those that may be late."""
        return self.spec.assigner.is_event_time()

    def alone(self, times: Numbers, watermark: int) -> Flags:
        """Return which rows would be late, or fire at once, if they touched no session; `times`: event times."""
        flags: Flags = times + self.partial.gap - 1 <= watermark
        return flags

    def operator(self) -> ColumnSessionOperator:
        """Return a new operator."""
        return ColumnSessionOperator(self)


class _Place(NamedTuple):
    """A bucket: sessions that end within a stretch of time, and the table that they are in."""

    table: str
    bucket: Slice


@dataclass
class _Changes:
    """What changed of the sessions in a bucket: those that are new or grew, and the rows that are gone.

    Args:
        aggregates: of what sessions hold; None: of nothing, since they were purged.
    """

    aggregates: Aggregation | None
    added: list[Partials] = field(default_factory=list)
    removed: list[Partials] = field(default_factory=list)

    def __call__(self) -> EncodedRows:
        """Return the rows that are to be written: without a value where a session is gone."""
        rows = Partials.joined([*self.added, *self.removed])
        keep = np.arange(len(rows)) < sum(map(len, self.added))
        if self.aggregates is None:
            values, places = binary_array([encode(None)]), np.zeros(len(rows), np.int64)
        else:
            values, places = self.aggregates.encode(rows.held[2:]), np.arange(len(rows))
        return EncodedRows(
            rows.hashes, rows.keys, values.take(column_of(places, pa.int64(), keep)), encode_spans(*_bounds(rows))
        )


class ColumnSessionOperator(PartialsOperator):
    """Sessions of SQL aggregates, by event time or by the clock."""

    def __init__(self, sessions: ColumnSessions) -> None:
        super().__init__(sessions)
        self._sessions, self._partial = sessions, sessions.partial
        self._aggregates = sessions.partial.held
        self._event_time = sessions.spec.assigner.is_event_time()
        self._lateness = sessions.spec.allowed_lateness_ms if self._event_time else 0
        self._purges = self._lateness > 0 and isinstance(sessions.spec.trigger, PurgingTrigger)
        width = max(sessions.partial.gap // _PARTS_OF_A_GAP, _LEAST_MS)
        self._widths = {CONTENTS: width, FIRED: max(self._lateness // _PARTS_OF_A_LATENESS, width)}
        self._waiting: list[SentPartials] = []  # each by hash
        self._changed: dict[_Place, _Changes] = {}

    def bind(self, group: KeyGroup) -> None:
        own = self._partial.aggregates
        kind = f"spans, {own.described[0]}" if isinstance(own, FunctionAggregation) else "spans"
        holds = own.described if own.places else ()
        group.declare(CONTENTS, kind, windowed=True, holds=holds)
        if self._purges:
            group.declare(FIRED, "purged spans", windowed=True)
        elif self._lateness:
            group.declare(FIRED, kind, windowed=True, holds=holds)
        for bucket in group.namespaces(CONTENTS):
            self._wait_for(_Place(CONTENTS, bucket), bucket[0] - 1)
        for bucket in group.namespaces(FIRED):
            self._wait_for_lateness(_Place(FIRED, bucket))

    # --- elements -------------------------------------------------------------------------------------------------------

    def take(self, group: KeyGroup, parts: Sequence[SentPartials]) -> None:
        self.use(group)
        self._waiting += [part for part in parts if len(part)]

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        times = self._partial.times(rows, 0)
        singles = self._partial.of_each(rows, times)
        new = Partials.joined([singles, *self._waiting_of(singles.hashes)])
        by_key = grouped(new.hashes, new.keys)
        key_of = by_key.numbers
        open_ = self._open(new, by_key)
        parts = Partials.joined([open_.rows, new.slice(len(singles), len(new))])
        groups = overlapping(parts.hashes, parts.keys, *_bounds(parts))
        session_key = np.concatenate([open_.keys, key_of[len(singles) :]])[groups.firsts]
        known = KnownSessions(len(by_key), session_key, *map(numbers_in, self._aggregates.bounds(parts.held, groups)))
        late, firings = known.join(
            key_of[: len(singles)],
            times,
            gap=self._partial.gap,
            fires_to=group.watermark,
            late_to=self._gone_to,
        )
        gone = np.flatnonzero(late)
        yield from self.send_late(rows.take(indices_of(gone)), times[gone])
        if len(firings):
            yield from self._fire_with(singles, firings, parts, groups)
        counts = singles.counts.copy()
        if self._purges:  # what came out is not held any more
            counts[firings.rows] = 0
        by_hash = np.argsort(singles.hashes, kind="stable")
        self._waiting.append(SentPartials.of(replace(singles, counts=counts).take(by_hash[~late[by_hash]])))

    def _waiting_of(self, hashes: Hashes) -> list[Partials]:
        """Return what waits of keys with some hashes."""
        wanted, parts = np.sort(hashes), []
        for part in self._waiting:
            at = np.minimum(np.searchsorted(wanted, part.hashes), len(wanted) - 1)
            parts.append(part.take(np.flatnonzero(wanted[at] == part.hashes)).unpacked())
        return parts

    def _fire_with(self, rows: Partials, firings: Firings, parts: Partials, groups: Groups) -> Iterator[ColumnChunk]:
        """Fire sessions with rows that came to them.

        Args:
            parts: of the sessions that the rows touched; `groups`: those of each session.
        """
        own, which = self._partial.aggregates, indices_of(firings.rows)
        held = [column.take(which) for column in rows.held[2:]]
        if not self._purges:
            held = running(firings, own.merge(parts.held[2:], groups), held, own)
        yield from self._results(rows.keys.take(which), held, firings.starts, firings.ends)

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[Any]:
        self.use(group)
        self._apply()
        yield from super().advance_watermark(group, watermark)

    def _apply(self) -> None:
        """Merge what came with the sessions of its keys that are there, a range of keys at a time: those of others are none of their business."""
        waiting, self._waiting = self._waiting, []
        for some in in_ranges(waiting, SentPartials.unpacked, SentPartials.columns):
            self._merge(Partials.joined(some))

    def _merge(self, new: Partials) -> None:
        open_ = self._open(new, grouped(new.hashes, new.keys))
        n = len(open_.rows)
        rows = Partials.joined([open_.rows, new])
        groups = overlapping(rows.hashes, rows.keys, *_bounds(rows))
        number = groups.numbers
        touched = _flags(number[n:], len(groups))
        sessions = self._merged(rows, groups.of_rows(touched[number]))
        self._add(sessions)
        # A session whose bounds and place stay takes the place of its row.
        gone = np.flatnonzero(touched[number[:n]])
        became = (np.cumsum(touched) - 1)[number[gone]]
        now = np.stack([*_bounds(sessions), *self._where(_bounds(sessions)[1])])
        before = np.stack([*_bounds(open_.rows), *open_.where])
        moved = gone[(now[:, became] != before[:, gone]).any(axis=0)]
        for at, place in enumerate(open_.places):
            own = moved[open_.place_of[moved] == at]
            if len(own):
                self._changes(place).removed.append(open_.rows.take(own))

    def _merged(self, parts: Partials, groups: Groups) -> Partials:
        """Return the session of each group of parts. Parts that were purged tell its bounds alone."""
        own, sessions = self._partial.aggregates, parts.take(groups.firsts)
        bounds = self._aggregates.bounds(parts.held, groups)
        if not self._purges:
            return replace(sessions, held=[*bounds, *own.merge(parts.held[2:], groups)])
        counts = np.add.reduceat(parts.counts[groups.order], groups.starts)
        places = column_of(np.cumsum(counts > 0) - 1, pa.int64(), counts > 0)
        held = own.merge(parts.held[2:], groups.of_rows(parts.counts > 0))
        return replace(sessions, counts=counts, held=[*bounds, *(column.take(places) for column in held)])

    def _add(self, sessions: Partials) -> None:
        """Put sessions into the buckets that their ends are in."""
        ends = _bounds(sessions)[1]
        fired, begins = self._where(ends)
        for table, own in ((CONTENTS, np.flatnonzero(~fired)), (FIRED, np.flatnonzero(fired))):
            own = own[np.argsort(begins[own], kind="stable")]
            for some in np.split(own, np.flatnonzero(np.diff(begins[own])) + 1) if len(own) else ():
                begin = int(begins[some[0]])
                place = _Place(table, (begin, begin + self._widths[table]))
                self._changes(place).added.append(sessions.take(some))
                if table == FIRED:
                    self._wait_for_lateness(place)
                else:
                    self._wait_for(place, int(ends[some].min()) - 1)

    def _where(self, ends: Numbers) -> tuple[Flags, Numbers]:
        """Return which of the sessions with some ends are among those that fired, and when the bucket of each begins."""
        fired = (ends - 1 <= self._now) & (self._lateness > 0)
        widths = np.where(fired, self._widths[FIRED], self._widths[CONTENTS])
        return fired, ends // widths * widths

    def _open(self, new: Partials, by_key: Groups) -> _Open:
        """Return the sessions in state that rows may touch. Their keys stand in groups."""
        firsts = indices_of(by_key.firsts)
        hashes, keys = new.hashes[by_key.firsts], new.keys.take(firsts)
        earliest = np.minimum.reduceat(_bounds(new)[0][by_key.order], by_key.starts)
        parts, numbers, place_of = [new.slice(0, 0)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        tables = [CONTENTS, FIRED] if self._lateness else [CONTENTS]
        places = [_Place(table, bucket) for table in tables for bucket in self.group.namespaces(table)]
        for at, (table, bucket) in enumerate(places):
            asked = np.flatnonzero(earliest < bucket[1])  # of others no row begins before the last session ends
            if not len(asked):
                continue
            matched, there = self.rows.look_up(table, bucket, hashes[asked], keys.take(indices_of(asked)))
            if len(matched):
                rows = self._decoded(table, there)
                gone_to = self._gone_to if table == FIRED else self._now  # by the clock some have fired by now
                kept = np.flatnonzero(_bounds(rows)[1] - 1 > gone_to)
                parts.append(rows.take(kept))
                numbers.append(asked[matched[kept]])
                place_of.append(np.full(len(kept), at))
        return _Open(Partials.joined(parts), np.concatenate(numbers), np.concatenate(place_of), places)

    def _decoded(self, table: str, rows: Any) -> Partials:
        n, own = len(rows.hashes), self._partial.aggregates
        purged = table == FIRED and self._purges
        held = [pa.nulls(n, kind) for kind in own.types] if purged else own.decode(rows.values)
        counts = np.full(n, 0 if purged else 1, np.int64)
        return Partials(rows.hashes, rows.keys, np.zeros(n, np.int64), counts, [*decode_spans(rows.subkeys), *held])

    # --- firing ---------------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> int:
        """What sessions end by, ms."""
        return self.group.watermark if self._event_time else self.group.processing_time

    @property
    def _gone_to(self) -> int:
        """The last timestamp, ms, of sessions that are gone."""
        return MAX if self._now == MAX else max(self._now - self._lateness, MIN)

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk]:  # type: ignore[override]
        place: _Place = entry
        changed = self._changed.pop(place, None) or self._nothing_changed(place)
        if place.table == FIRED:
            self.group.drop(*place)
            return
        stored = self._stored(place, changed)
        rows = Partials.joined([*stored, *changed.added])
        due = self._due(rows)
        if due.any():
            yield from self._fire(rows.take(np.flatnonzero(due)))
        if due.all():
            self.group.drop(*place)
            return
        self._wait_for(place, int(_bounds(rows)[1][~due].min()) - 1)
        # One that was added may stand for a row in state, which must not come back.
        changes = self._changes(place)
        changes.removed += [
            *changed.removed,
            *(p.take(np.flatnonzero(self._due(p))) for p in (*stored, *changed.added)),
        ]
        changes.added += [part.take(np.flatnonzero(~self._due(part))) for part in changed.added]

    def _changes(self, place: _Place) -> _Changes:
        return self._changed.setdefault(place, self._nothing_changed(place))

    def _nothing_changed(self, place: _Place) -> _Changes:
        return _Changes(None if place.table == FIRED and self._purges else self._partial.aggregates)

    def _stored(self, place: _Place, changed: _Changes) -> list[Partials]:
        """Return the sessions that state has in a bucket, without those that are gone or of which there is a newer row."""
        there = self.rows.entries_of(*place)
        if not len(there):
            return [] if changed.added else [_nothing(self._aggregates)]
        rows = self._decoded(place.table, there)
        others = [*changed.removed, *changed.added]
        return [rows.take(np.flatnonzero(~_among(rows, Partials.joined(others)))) if others else rows]

    def _due(self, rows: Partials) -> Flags:
        due: Flags = _bounds(rows)[1] - 1 <= self._now
        return due

    def _fire(self, rows: Partials) -> Iterator[ColumnChunk]:
        """Fire sessions at their end; those that late rows may come to stay."""
        starts, ends = _bounds(rows)
        order = np.lexsort((rows.hashes, ends))
        rows = rows.take(order)
        yield from self._results(rows.keys, rows.held[2:], starts[order], ends[order])
        kept = np.flatnonzero(ends[order] - 1 > self._gone_to)
        if len(kept):
            self._add(rows.take(kept))

    def _results(
        self, keys: pa.Array, held: Sequence[pa.Array], starts: Numbers, ends: Numbers
    ) -> Iterator[ColumnChunk]:
        output = self._sessions.output
        results = self._partial.aggregates.results(held, [result.type for result in output.results])
        return output.chunks(keys, results, starts, ends)

    def _wait_for(self, place: _Place, last: int) -> None:
        """Look at a bucket when `last` (ms) has passed; at the next watermark if it has already."""
        if self._event_time:
            self.group.event_timers.register(max(last, self.group.watermark + 1), place)
        else:
            self.group.processing_timers.register(last, place)

    def _wait_for_lateness(self, place: _Place) -> None:
        """Have a bucket of sessions that fired go when the last that can be in it has been there for its lateness."""
        gone = place.bucket[1] - 2 + self._lateness
        if gone < MAX:
            self._wait_for(place, gone)

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        self._apply()
        for place, changed in self._changed.items():
            if any(map(len, (*changed.added, *changed.removed))):
                self.rows.append(*place, changed)
        self._changed = {}


@dataclass(frozen=True)
class _Open:
    """Sessions in state: for each the number of its key among those that were asked for, and of its place."""

    rows: Partials
    keys: Numbers
    place_of: Numbers
    places: Sequence[_Place]

    @property
    def where(self) -> Numbers:
        """Of each whether it is among those that fired, as 0 or 1, and when its bucket begins."""
        places = np.array([(place.table == FIRED, place.bucket[0]) for place in self.places], np.int64)
        where: Numbers = places.reshape(-1, 2).T[:, self.place_of]
        return where


def _nothing(aggregates: SpansAndSums) -> Partials:
    none = np.empty(0, np.int64)
    held = [pa.nulls(0, kind) for kind in aggregates.types]
    return Partials(none.view(np.uint64), binary_array([]), none, none, held)


def _bounds(rows: Partials) -> tuple[Numbers, Numbers]:
    """Return when sessions begin and end."""
    return numbers_in(rows.held[0]), numbers_in(rows.held[1])


def _among(rows: Partials, others: Partials) -> Flags:
    """Return which sessions are among others; those of a key do not overlap, so where one begins tells it."""
    starts = np.concatenate([_bounds(rows)[0], _bounds(others)[0]])
    groups = grouped(np.concatenate([rows.hashes, others.hashes]), joined([rows.keys, others.keys]), starts)
    number = groups.numbers
    among: Flags = _flags(number[len(rows) :], len(groups))[number[: len(rows)]]
    return among


def _flags(numbers: Numbers, n: int) -> Flags:
    """Return which of the numbers below n are there."""
    flags = np.zeros(n, np.bool_)
    flags[numbers] = True
    return flags
