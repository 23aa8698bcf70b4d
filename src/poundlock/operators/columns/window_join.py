"""The window join by columns: rows lie whole in slices of time, and are matched by key when a window is due.

A slice is a stretch of time within which all rows are in the same windows, so a row is kept once however many windows it is in; a
slice goes away with the last of them. Windows come out by their ends, in each the keys by hash, and of a key each left row in the
order it came with all right ones; in windows that overlap, rows stand by slice first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, indices_of
from poundlock.operators.columns.joins import SIDES, ColumnJoinOperator, HashKeys, JoinSide
from poundlock.operators.columns.matching import HeldRows, TimedRows, at_once, match_ranges, places_of
from poundlock.operators.columns.operator import ColumnChunk
from poundlock.operators.columns.pairs import PairFunction, PairOutput, SomePairs
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.output import OutputChunk
from poundlock.operators.windows.aligned import slice_of
from poundlock.operators.windows.base import CONTENTS
from poundlock.stream.windows.assigners import AlignedWindows
from poundlock.stream.windows.window import TimeWindow

_KIND = "joined slices"
_AT_ONCE = 1 << 20  # rows of a window that are matched at a time


@dataclass(frozen=True)
class ColumnWindowJoin:
    """A join of two streams in windows that lie the same for all keys. Picklable.

    Args:
        assigner: the windows, with their default trigger, no lateness and no evictor.
        sides: left and right.
        output: what becomes of pairs.
        hash_keys: the hash of keys, by which rows were sent.
    """

    assigner: AlignedWindows
    sides: tuple[JoinSide, JoinSide]
    output: PairOutput | PairFunction
    hash_keys: HashKeys

    def operator(self) -> ColumnWindowJoinOperator:
        """Return a new operator."""
        return ColumnWindowJoinOperator(self)


class ColumnWindowJoinOperator(ColumnJoinOperator):
    """Joins the rows of each key and window."""

    def __init__(self, join: ColumnWindowJoin) -> None:
        super().__init__(join.sides, join.output, join.hash_keys)
        self._assigner = join.assigner
        self._event_time = join.assigner.is_event_time()
        offset_and_width = slice_of(join.assigner)
        assert offset_and_width is not None
        self._offset, self._width = offset_and_width

    def bind(self, group: KeyGroup) -> None:
        group.declare(
            CONTENTS, _KIND
        )  # where the operator of single records has its state, so that neither passes over the other's
        for side, name in zip(self.sides, SIDES, strict=True):
            group.declare(name, _KIND, merges=(side.layout,))
        for start in {start for name in SIDES for start, _ in group.namespaces(name)}:
            self._set_timers(start)

    # --- rows -----------------------------------------------------------------------------------------------------------

    def take_side(self, group: KeyGroup, rows: pa.RecordBatch, side: int) -> Iterator[ColumnChunk | OutputChunk]:
        self.use(group)
        if self._event_time:
            times = self.event_times(rows, side, "a join in windows")
        else:
            times = np.full(rows.num_rows, group.processing_time, np.int64)
        slices = times - (times - self._offset) % self._width
        different, which = np.unique(slices, return_inverse=True)
        gone = [self._event_time and self._last(start) <= group.watermark for start in different.tolist()]
        late = np.array(gone, np.bool_)[which]
        yield from self.send_late(rows, times, late, side)
        own = self.taken(rows, slices, ~late, side)
        if len(own):
            self.added[side].append(own)
            for start in np.unique(own.times).tolist():
                self._set_timers(start)

    def _last(self, start: int) -> int:
        """Return the last ms of the last window that a slice is in."""
        return max(window.end for window in self._assigner.windows_at(start)) - 1

    def _set_timers(self, start: int) -> None:
        """Make the windows of a slice fire at their ends, if those are to come, and the slice go away behind the last."""
        timers = self.group.event_timers if self._event_time else self.group.processing_timers
        for window in self._assigner.windows_at(start):
            if not self._event_time or window.end - 1 > self.group.watermark:
                timers.register(window.end - 1, (window.start, window.end))
        timers.register(self._last(start), (start,))

    # --- firing ---------------------------------------------------------------------------------------------------------

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk | OutputChunk]:  # type: ignore[override]
        if len(entry) == 2:
            yield from self._fire(TimeWindow(*entry))
            return
        (start,) = entry
        for side, name in enumerate(SIDES):
            self.group.drop(name, (start, start + self._width))
            left = [rows.where(rows.times != start) for rows in self.added[side]]
            self.added[side] = [rows for rows in left if len(rows)]

    def _fire(self, window: TimeWindow) -> Iterator[ColumnChunk | OutputChunk]:
        sides = [self._parts(side, window) for side in (0, 1)]
        if all(sides):
            for left, right in _in_ranges(sides):
                yield from self._pairs(
                    HeldRows(*left, self.sides[0].schema), HeldRows(*right, self.sides[1].schema), window
                )

    def _parts(self, side: int, window: TimeWindow) -> list[Any]:
        """Return what there is of a side in a window: of each slice what state has, oldest first, and what was added, by hash."""
        parts: list[Any] = []
        for start in range(window.start, window.end, self._width):
            parts += self.rows.rows_of(SIDES[side], (start, start + self._width))
            added = [rows.where(rows.times == start) for rows in self.added[side]]
            for rows in added:
                if len(rows):
                    order = np.argsort(rows.hashes, kind="stable")
                    parts.append(
                        TimedRows(
                            rows.hashes[order],
                            rows.keys.take(indices_of(order)),
                            rows.times[order],
                            rows.records.take(indices_of(order)),
                        )
                    )
        return [part for part in parts if len(part)]

    def _pairs(self, left: HeldRows, right: HeldRows, window: TimeWindow) -> Iterator[ColumnChunk | OutputChunk]:
        if not len(left) or not len(right):
            return
        order = np.argsort(left.hashes, kind="stable")
        searched = left.hashes[order], left.keys.take(indices_of(order)), np.zeros(len(left), np.int64)
        matched = match_ranges(searched, (right.hashes, right.keys, np.zeros(len(right), np.int64)), (0, 0))
        if not matched.counts.any():
            return
        needed = [self.emitter.needed(side, self.sides[side].schema) for side in (0, 1)]
        lefts, left_kept = left.records(np.sort(order[matched.counts > 0]), needed[0])
        rights, right_kept = right.records(matched.used, needed[1])
        at = [places_of(left_kept, len(left)), places_of(right_kept, len(right))]
        keys, times = left.keys.take(indices_of(left_kept)), [left.times[left_kept], right.times[right_kept]]
        for own, other in matched.pairs(at_once([lefts, rights])):
            places = [at[0][order[own]], at[1][other]]
            last: Numbers = np.full(len(own), window.end - 1, np.int64)
            yield from self.emitter.emit(self.group, SomePairs([lefts, rights], places, keys, times, last))

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        for side, added in enumerate(self.added):
            if added:
                rows = TimedRows.joined(added)
                for start in np.unique(rows.times).tolist():
                    self.rows.append(SIDES[side], (start, start + self._width), rows.where(rows.times == start))
        self.added = [[], []]


def _in_ranges(sides: Sequence[Sequence[Any]]) -> Iterator[list[tuple[list[Any], list[TimedRows]]]]:
    """Yield the rows of both sides by ranges of hashes, those of state and those that were added, so that memory does not follow how
    many keys a window has."""
    parts = [part for side in sides for part in side]
    low, high = min(int(part.hashes[0]) for part in parts), max(int(part.hashes[-1]) for part in parts)
    count = -(-sum(map(len, parts)) // _AT_ONCE)
    edges = [low + (high - low) * number // count for number in range(1, count)]
    begins = {id(part): 0 for part in parts}
    for edge in [*edges, None]:
        some: list[tuple[list[Any], list[TimedRows]]] = []
        for side in sides:
            stored: list[Any] = []
            added: list[TimedRows] = []
            for part in side:
                end = len(part) if edge is None else int(np.searchsorted(part.hashes, np.uint64(edge)))
                cut = part.slice(begins[id(part)], end)
                begins[id(part)] = end
                (added if isinstance(part, TimedRows) else stored).append(cut)
            some.append((stored, added))
        yield some
