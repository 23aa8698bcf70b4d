"""The window join by columns: rows lie whole in slices of time, and are matched by key when a window is due.

A slice is a stretch of time within which all rows are in the same windows, so a row is kept once however many windows it is in; a
slice goes away with the last of them. Windows come out by their ends, in each the keys by hash, and of a key each left row in the
order it came with all right ones; in windows that overlap, rows stand by slice first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, indices_of
from poundlock.operators.columns.joins.held_rows import HeldRows, Part, pair_chunks
from poundlock.operators.columns.joins.matching import AddedRows, TimedRows, match_ranges
from poundlock.operators.columns.joins.pairs import PairFunction, PairOutput, SomePairs
from poundlock.operators.columns.joins.sides import ColumnJoinOperator, HashKeys, JoinSide
from poundlock.operators.columns.msgpack.values import unpacked
from poundlock.operators.columns.operator import ColumnChunk
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.output import OutputChunk
from poundlock.operators.windows.aligned import slice_of
from poundlock.operators.windows.base import CONTENTS
from poundlock.stream.windows.assigners import AlignedWindows
from poundlock.stream.windows.window import TimeWindow

_AT_ONCE = 1 << 20  # rows of a window that are matched at a time
_OF_A_SIDE = 1 << 22  # so many of one side, where a key has more of them


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

    kind: ClassVar[str] = "joined slices"

    def __init__(self, join: ColumnWindowJoin) -> None:
        super().__init__(join.sides, join.output, join.hash_keys)
        self._assigner = join.assigner
        self._event_time = join.assigner.is_event_time()
        offset_and_width = slice_of(join.assigner)
        assert offset_and_width is not None
        self._offset, self._width = offset_and_width
        self._added: list[dict[int, list[TimedRows]]] = [{}, {}]  # by side and slice the rows of this checkpoint
        self._panes: set[tuple[int, int]] = set()  # windows that the operator of single records began

    def bind(self, group: KeyGroup) -> None:
        # There the operator of single records has its state, so that it does not pass over this one's.
        group.declare(CONTENTS, self.kind, replaces=("panes",))
        for tables in self.tables:
            tables.declare(group)
        for start in {start for tables in self.tables for start, _ in tables.namespaces(group)}:
            self._set_timers(start)
        self._panes = set(group.namespaces(CONTENTS))
        for start, end in sorted(self._panes):
            if self._event_time and end - 1 <= group.watermark:  # it has fired, and was kept for late elements
                self._drop_pane((start, end))
            else:
                timers = group.event_timers if self._event_time else group.processing_timers
                timers.register(end - 1, (start, end))

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
        for start, rows_of_slice in own.parted(own.times):
            known = self._added[side].setdefault(start, [])
            if not known:
                self._set_timers(start)
            known.append(rows_of_slice)

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
            self._drop_pane(entry)
            return
        (start,) = entry
        for side, tables in enumerate(self.tables):
            tables.drop(self.group, (start, start + self._width))
            self._added[side].pop(start, None)

    def _fire(self, window: TimeWindow) -> Iterator[ColumnChunk | OutputChunk]:
        sides = [[*first, *self._parts(side, window)] for side, first in enumerate(self._in_pane(window))]
        if all(sides):
            for lefts, rights in in_ranges(sides):
                for left, right in product(_pieces(lefts), _pieces(rights)):
                    held = [HeldRows(some, side.schema) for some, side in zip((left, right), self.sides, strict=True)]
                    yield from self._pairs(held[0], held[1], window)

    def _in_pane(self, window: TimeWindow) -> tuple[list[TimedRows], list[TimedRows]]:
        """Return the rows of each side in a window that the operator of single records began: a list of [side, record] for each key."""
        sides: tuple[list[TimedRows], list[TimedRows]] = [], []
        if (window.start, window.end) not in self._panes:
            return sides
        entries = self.rows.entries_of(CONTENTS, (window.start, window.end))
        held = unpacked(entries.values)
        for number, parts in enumerate(sides):
            own = [(place, record) for place, each in enumerate(held) for side, record in each if side == number]
            if own:
                of = np.array([place for place, _ in own], np.int64)
                times = np.full(len(own), window.start, np.int64)
                parts.append(self.from_records(number, entries, of, times, [record for _, record in own]))
        return sides

    def _drop_pane(self, pane: tuple[int, int]) -> None:
        if pane in self._panes:
            self._panes.remove(pane)
            self.group.drop(CONTENTS, pane)

    def _parts(self, side: int, window: TimeWindow) -> list[Part]:
        """Return what there is of a side in a window: of each slice what state has, oldest first, and what was added, by hash."""
        parts: list[Part] = []
        for start in range(window.start, window.end, self._width):
            parts += self.tables[side].rows_of(self.rows, (start, start + self._width))
            for rows in self._added[side].get(start, ()):
                parts.append(rows.take(np.argsort(rows.hashes, kind="stable")))
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
        for lefts, rights in pair_chunks(matched, (left, right), order, needed):
            last: Numbers = np.full(len(lefts.places), window.end - 1, np.int64)
            yield from self.emitter.emit(self.group, SomePairs(lefts, rights, last))

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        for tables, added in zip(self.tables, self._added, strict=True):
            for start, parts in added.items():
                tables.append(self.rows, (start, start + self._width), AddedRows(parts))
        self._added = [{}, {}]


def in_ranges(
    sides: Sequence[Sequence[Part]],
) -> Iterator[list[list[Part]]]:
    """Yield the rows of both sides by ranges of hashes, so that memory does not follow how many keys a window has."""
    parts = [part for side in sides for part in side]
    low, high = min(int(part.hashes[0]) for part in parts), max(int(part.hashes[-1]) for part in parts)
    count = -(-sum(map(len, parts)) // _AT_ONCE)
    edges = [low + (high - low) * number // count for number in range(1, count)]
    begins = {id(part): 0 for part in parts}
    for edge in [*edges, None]:
        some: list[list[Part]] = []
        for side in sides:
            cuts: list[Part] = []
            for part in side:
                end = len(part) if edge is None else int(np.searchsorted(part.hashes, np.uint64(edge)))
                cuts.append(part.slice(begins[id(part)], end))
                begins[id(part)] = end
            some.append(cuts)
        yield some


def _pieces(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield rows some at a time, where one key has very many."""
    if sum(map(len, parts)) <= _OF_A_SIDE:
        yield list(parts)
        return
    for part in parts:
        for start in range(0, len(part), _OF_A_SIDE):
            yield [part.slice(start, min(start + _OF_A_SIDE, len(part)))]
