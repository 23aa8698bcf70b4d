"""Windows that lie the same for all keys, with SQL aggregates, by columns: a window is the slices of time in it.

A checkpoint's rows come added up by slice and key and are put beside what state has of the slice; nothing is looked up. When a
window is due its slices are merged, and a slice goes away with the last window that it is in. An element that comes after its
window fired makes it fire again, one by one; where the trigger purges, with that element alone. Slices in a gap between windows
are of no window.

By the clock, what comes in the last millisecond of a slice is behind the firing of the window that ends with it. Such rows are kept
apart until that window has fired once more, with these alone, and are part of the slice from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, indices_of, joined, ranges
from poundlock.operators.columns.aggregation import Aggregation
from poundlock.operators.columns.groups import Groups, grouped
from poundlock.operators.columns.operator import ColumnChunk, EncodedRows, PartialsOperator, WindowColumns
from poundlock.operators.columns.partials import Partials, SliceAggregation, in_ranges, merged
from poundlock.operators.columns.sent import SentPartials, merged_by_hash
from poundlock.operators.keyed.group import MAX, MIN, KeyGroup
from poundlock.operators.windows.base import CONTENTS
from poundlock.stream.windows.assigners import AlignedWindows
from poundlock.stream.windows.builtin_assigners import Sliding, Tumbling
from poundlock.stream.windows.builtin_triggers import PurgingTrigger
from poundlock.stream.windows.window import TimeWindow

UNFIRED = "unfired"
"""The state of slices of which a window has fired without these rows."""


@dataclass(frozen=True)
class ColumnWindows(WindowColumns[SliceAggregation]):
    """Windows that lie the same for all keys, with their default trigger or one that purges, no evictor and aggregates by columns."""

    @property
    def assigner(self) -> AlignedWindows:
        """The windows."""
        assert isinstance(self.partial.assigner, AlignedWindows)
        return self.partial.assigner

    @property
    def has_gaps(self) -> bool:
        """Whether there are times that are in no window."""
        return isinstance(self.assigner, Sliding) and self.assigner.slide_ms > self.assigner.size_ms

    @property
    def purges(self) -> bool:
        """Whether a window that fires is empty from then on, though it may fire again."""
        of = self.spec
        return of.assigner.is_event_time() and of.allowed_lateness_ms > 0 and isinstance(of.trigger, PurgingTrigger)

    @property
    def singly(self) -> bool:
        """Whether rows of windows that have fired are needed one by one: to fire again, or to be late; in a gap each is late by its own time."""
        return self.spec.assigner.is_event_time() and (
            self.spec.allowed_lateness_ms > 0 or self.spec.late_tag is not None or self.has_gaps
        )

    def alone(self, times: Numbers, watermark: int) -> Flags:
        """Return which rows are in a window that fired by a watermark, or may be late in a gap; `times`: when the slice of each begins."""
        different, which = np.unique(times, return_inverse=True)
        flags: Flags = np.array([self._is_behind(start, watermark) for start in different.tolist()], np.bool_)[which]
        return flags

    def _is_behind(self, start: int, watermark: int) -> bool:
        ends = [window.end for window in self.assigner.windows_at(start)]
        return (min(ends) - 1 if ends else start + self.spec.allowed_lateness_ms) <= watermark

    def operator(self) -> ColumnWindowOperator:
        """Return a new operator."""
        return ColumnWindowOperator(self)


class ColumnWindowOperator(PartialsOperator):
    """Tumbling, sliding and cumulative windows of SQL aggregates."""

    def __init__(self, windows: ColumnWindows) -> None:
        super().__init__(windows)
        self._windows, self._partial = windows, windows.partial
        self._aggregates = windows.partial.aggregates
        self._event_time = windows.spec.assigner.is_event_time()
        # A tumbling window by the clock that has fired is gone, and one that there is has yet to fire.
        self._outlasts = not self._event_time and not isinstance(windows.assigner, Tumbling)
        self._added: dict[int, list[SentPartials]] = {}
        self._unfired: dict[int, list[SentPartials]] = {}

    def bind(self, group: KeyGroup) -> None:
        group.declare(CONTENTS, "slices", merges=self._aggregates.described)
        fired = group.watermark if self._event_time else group.clock_before if self._outlasts else MIN
        for start, end in group.namespaces(CONTENTS):
            if self._event_time and self._goes(start) <= fired:
                group.drop(CONTENTS, (start, end))  # the lateness was longer before the job was changed
            else:
                self._set_timers(start, fired)
        if self._outlasts:
            group.declare(UNFIRED, "slices", merges=self._aggregates.described)
            for start, end in group.namespaces(UNFIRED):
                self._set_timers(start, end - 2)

    # --- elements -------------------------------------------------------------------------------------------------------

    def take(self, group: KeyGroup, parts: Sequence[SentPartials]) -> None:
        self.use(group)
        slices: dict[int, list[SentPartials]] = {}
        for part in parts:
            for begin, rows in _by_slice(part):
                slices.setdefault(begin, []).append(rows)
        for begin in sorted(slices):
            self._add(begin, slices.pop(begin))

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        slices = self._partial.times(rows, group.processing_time)
        late = self._late(rows, slices)
        if late.any():
            gone = rows.take(indices_of(np.flatnonzero(late)))
            yield from self.send_late(gone, self._partial.event_times(gone))
        taken = np.flatnonzero(~late)
        rows, slices = rows.take(indices_of(taken)), slices[taken]
        yield from self._fire_again(rows, slices)
        for begin, some in _by_slice(SentPartials.of(self._partial.of(rows, slices))):
            self._add(begin, [some])

    def _add(self, begin: int, parts: Sequence[SentPartials]) -> None:
        """Put rows of a slice, each part by hash, beside what there is of it."""
        watermark = self.group.watermark
        if self._event_time and self._closes(begin) <= watermark:
            self.late_dropped += sum(int(part.counts.sum()) for part in parts)
            return
        if not self._windows.assigner.windows_at(begin) or (self._event_time and self._goes(begin) <= watermark):
            return
        added = self._unfired if self._has_fired(begin) else self._added
        if begin not in added:
            self._set_timers(begin, watermark if self._event_time else MIN)
        one = parts[0] if len(parts) == 1 else SentPartials.of(merged_by_hash(parts, self._aggregates))
        added.setdefault(begin, []).append(one)

    def _has_fired(self, begin: int) -> bool:
        """Return whether by the clock a window that ends with a slice has fired, though rows of the slice still come."""
        end = begin + self._partial.width
        return self._outlasts and self.group.processing_time >= end - 1 and self._window_to(end) is not None

    def _window_to(self, end: int) -> TimeWindow | None:
        """Return the window that ends with a slice; None if none does."""
        windows = self._windows.assigner.windows_at(end - self._partial.width)
        return next((window for window in windows if window.end == end), None)

    def _late(self, rows: pa.RecordBatch, slices: Numbers) -> Flags:
        """Return which rows are late: no window takes them any more, or they are in a gap and behind the watermark themselves."""
        watermark = self.group.watermark
        different, which = np.unique(slices, return_inverse=True)
        late: Flags = np.array([self._closes(start) <= watermark for start in different.tolist()], np.bool_)[which]
        if self._windows.has_gaps:
            in_gap = np.array([not self._windows.assigner.windows_at(at) for at in different.tolist()], np.bool_)[which]
            late |= in_gap & (self._partial.event_times(rows) + self.spec.allowed_lateness_ms <= watermark)
        return late

    def _fire_again(self, rows: pa.RecordBatch, slices: Numbers) -> Iterator[ColumnChunk]:
        """Fire the windows that have fired once more for each row that came to them."""
        if self._windows.purges:
            yield from self._fire_alone(rows, slices)
            return
        windows: dict[TimeWindow, None] = {}
        _, firsts = np.unique(slices, return_index=True)
        for start in slices[np.sort(firsts)].tolist():
            for window in self._windows.assigner.windows_at(start):
                if self._has_passed(window):
                    windows[window] = None
        for window in windows:
            places = np.flatnonzero((slices >= window.start) & (slices < window.end))
            own = rows.take(indices_of(places))
            yield from self._fire_each(window, own)

    def _fire_alone(self, rows: pa.RecordBatch, slices: Numbers) -> Iterator[ColumnChunk]:
        """Fire for each row the windows of it that have fired: they are empty but for that row."""
        if not rows.num_rows:
            return
        different, which = np.unique(slices, return_inverse=True)
        fired = [
            [window for window in self._windows.assigner.windows_at(start) if self._has_passed(window)]
            for start in different.tolist()
        ]
        counts = np.array(list(map(len, fired)), np.int64)
        own = ranges((np.cumsum(counts) - counts)[which], counts[which])
        spans = np.array([window for windows in fired for window in windows], np.int64).reshape(-1, 2)[own]
        singles = self._partial.of_each(rows, slices)
        each = singles.take(np.repeat(np.arange(len(singles)), counts[which]))
        yield from self._results(each, spans[:, 0], spans[:, 1])

    def _has_passed(self, window: TimeWindow) -> bool:
        """Return whether a window has fired, and still takes elements."""
        return window.end - 1 <= self.group.watermark < self.spec.cleanup_time(window.end - 1)

    def _fire_each(self, window: TimeWindow, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        """Fire a window for each row: with what state has of its key, the rows of its key before it, and the row."""
        singles = self._partial.of_each(rows, np.zeros(rows.num_rows, np.int64))
        groups = grouped(singles.hashes, singles.keys)
        group_of = np.empty(len(singles), np.int64)
        turn = np.empty(len(singles), np.int64)
        group_of[groups.order] = np.repeat(np.arange(len(groups)), groups.counts)
        turn[groups.order] = np.arange(len(singles)) - np.repeat(groups.starts, groups.counts)
        held, place_of = self._looked_up(window, singles.take(groups.firsts))
        fired: list[tuple[Numbers, Partials]] = []
        for number in range(int(turn.max(initial=-1)) + 1):
            # In one turn every key has one row, and it had one in each turn before.
            places = np.flatnonzero(turn == number)
            held = self._one_more(held, place_of[group_of[places]], singles.take(places))
            place_of[group_of[places]] = np.arange(len(places))
            fired.append((places, held))
        if fired:
            order = np.argsort(np.concatenate([places for places, _ in fired]))
            yield from self._of_window(window, Partials.joined([each for _, each in fired]).take(order))

    def _one_more(self, held: Partials, places: Numbers, rows: Partials) -> Partials:
        """Return rows, each behind what is held at its place; -1 where nothing is."""
        has = places >= 0
        counts = 1 + has.astype(np.int64)
        starts = np.cumsum(counts) - counts
        order = np.empty(int(counts.sum()), np.int64)
        order[starts[has]] = places[has]
        order[starts + counts - 1] = len(held) + np.arange(len(rows))
        both = Partials.joined([held, rows])
        return replace(rows, held=self._aggregates.merge(both.held, Groups(order, starts)))

    def _looked_up(self, window: TimeWindow, wanted: Partials) -> tuple[Partials, Numbers]:
        """Return what state has of a window for some keys, and where what each of them has is; -1 where there is nothing."""
        hashes = np.sort(wanted.hashes)
        parts = [wanted.take(np.empty(0, np.int64))]
        for part in self._parts(window):
            at = np.minimum(np.searchsorted(hashes, part.hashes), len(hashes) - 1)
            parts.append(self._decoded(part.take(np.flatnonzero(hashes[at] == part.hashes))))
        there = merged(parts, self._aggregates)
        both = grouped(np.concatenate([there.hashes, wanted.hashes]), joined([there.keys, wanted.keys]))
        pairs = both.starts[both.counts == 2]
        places = np.full(len(wanted), -1, np.int64)
        places[both.order[pairs + 1] - len(there)] = both.order[pairs]
        return there, places

    # --- firing ---------------------------------------------------------------------------------------------------------

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk]:  # type: ignore[override]
        window = TimeWindow(*entry)
        if time == window.end - 1 and window in self._windows.assigner.windows_at(window.start):
            for rows in in_ranges(self._unfired_parts(window) or self._parts(window), self._decoded, _columns_of):
                yield from self._of_window(window, merged(rows, self._aggregates))
        if window.end - window.start == self._partial.width and time >= self._goes(window.start):
            self._added.pop(window.start, None)
            self.group.drop(CONTENTS, entry)

    def _unfired_parts(self, window: TimeWindow) -> list[Any]:
        """Return what a window that has fired has yet to fire with, and make it part of its slice."""
        if not self._outlasts:
            return []
        own = (window.end - self._partial.width, window.end)
        parts = [SentPartials.of(self._decoded(part)) for part in self.rows.rows_of(UNFIRED, own)]
        if parts:
            self._added.setdefault(own[0], []).extend(parts)
            self.group.drop(UNFIRED, own)
        return parts

    def _parts(self, window: TimeWindow) -> list[Any]:
        """Return what there is of a window, in the order of time: of each slice what state has and what was added, each by hash."""
        parts: list[Any] = []
        for start in range(window.start, window.end, self._partial.width):
            parts += self.rows.rows_of(CONTENTS, (start, start + self._partial.width))
            parts += self._added.get(start, [])
        return parts

    def _decoded(self, part: Any) -> Partials:
        """Return a part of a window without its slices. What state has lies in mapped files, of which only some is to be decoded at a time."""
        if isinstance(part, SentPartials):
            return part.unpacked_as_one_slice()
        zeros = np.zeros(len(part), np.int64)
        return Partials(part.hashes, part.keys, zeros, zeros, self._aggregates.decode(part.values))

    def _of_window(self, window: TimeWindow, rows: Partials) -> Iterator[ColumnChunk]:
        return self._results(rows, np.full(len(rows), window.start), np.full(len(rows), window.end))

    def _results(self, rows: Partials, starts: Numbers, ends: Numbers) -> Iterator[ColumnChunk]:
        """Yield the results of accumulators of windows with some bounds, ms."""
        output = self._windows.output
        results = self._aggregates.results(rows.held, [result.type for result in output.results])
        return output.chunks(rows.keys, results, starts, ends)

    # --- slices ---------------------------------------------------------------------------------------------------------

    def _last(self, start: int) -> int:
        """Return the last millisecond of the last window of a slice; MAX where it is in none."""
        return max((window.end for window in self._windows.assigner.windows_at(start)), default=MAX + 1) - 1

    def _closes(self, start: int) -> int:
        """Return when no window of a slice takes elements any more; MAX where it is in none."""
        return self.spec.cleanup_time(self._last(start))

    def _goes(self, start: int) -> int:
        """Return when nothing more comes out of a slice; MAX where it is in no window."""
        return self._last(start) if self._windows.purges else self._closes(start)

    def _set_timers(self, start: int, fired: int) -> None:
        """Make the windows of a slice fire at their ends, and the slice go away behind the last.

        Args:
            fired: up to which time, ms, they have.
        """
        timers = self.group.event_timers if self._event_time else self.group.processing_timers
        for window in self._windows.assigner.windows_at(start):
            if window.end - 1 > fired:
                timers.register(window.end - 1, (window.start, window.end))
        if fired < (goes := self._goes(start)) < MAX:
            timers.register(goes, (start, start + self._partial.width))

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        for table, added in ((CONTENTS, self._added), (UNFIRED, self._unfired)):
            for start, parts in added.items():
                self.rows.append(table, (start, start + self._partial.width), _Added(parts, self._aggregates))
        self._added, self._unfired = {}, {}


def _columns_of(part: Any) -> Sequence[pa.Array]:
    """Return the columns that a part of a window is in."""
    return part.columns() if isinstance(part, SentPartials) else [part.keys, part.values]


def _by_slice(rows: SentPartials) -> Iterator[tuple[int, SentPartials]]:
    """Yield when each slice begins, and the rows of it; rows stand in the order of slices."""
    slices = rows.slices
    edges = np.flatnonzero(np.diff(slices, prepend=slices[:1] - 1)).tolist()
    for start, stop in pairwise([*edges, len(rows)]):
        yield int(slices[start]), rows.slice(start, stop)


@dataclass(frozen=True)
class _Added:
    """What was added to a slice."""

    parts: Sequence[SentPartials]
    aggregates: Aggregation

    def __call__(self) -> EncodedRows:
        rows = merged_by_hash(self.parts, self.aggregates)
        return EncodedRows(rows.hashes, rows.keys, self.aggregates.encode(rows.held))
