"""The window join of SQL by columns: rows that have their window as columns, of any kind of join.

The bounds of the window are among the keys, and a row's time is the last ms of it: so it is in a window of that one ms, which is due
when the watermark passes it. What comes out is final.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, indices_of
from poundlock.operators.columns.joins.held_rows import HeldRows, pair_chunks
from poundlock.operators.columns.joins.kinds import JoinedColumns, without_key
from poundlock.operators.columns.joins.matching import match_ranges
from poundlock.operators.columns.joins.sides import HashKeys, JoinSide
from poundlock.operators.columns.joins.window_join import ColumnWindowJoin, ColumnWindowJoinOperator, in_ranges
from poundlock.operators.columns.operator import ColumnChunk
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.output import MAIN, OutputChunk
from poundlock.stream.windows.builtin_assigners import TumblingEventTimeWindows
from poundlock.stream.windows.window import TimeWindow


@dataclass(frozen=True)
class ColumnSqlWindowJoin:
    """A join of rows that have their window as columns. Picklable.

    Args:
        sides: left and right; the time of a row is the last ms of its window.
        output: what comes out.
        hash_keys: the hash of keys, by which rows were sent.
    """

    sides: tuple[JoinSide, JoinSide]
    output: JoinedColumns
    hash_keys: HashKeys

    def operator(self) -> ColumnSqlWindowJoinOperator:
        """Return a new operator."""
        return ColumnSqlWindowJoinOperator(self)


class ColumnSqlWindowJoinOperator(ColumnWindowJoinOperator):
    """Joins side 0, left, with side 1, right."""

    def __init__(self, join: ColumnSqlWindowJoin) -> None:
        super().__init__(ColumnWindowJoin(TumblingEventTimeWindows("1 ms"), join.sides, join.output, join.hash_keys))
        self._of = join.output

    def take_side(self, group: KeyGroup, rows: pa.RecordBatch, side: int) -> Iterator[ColumnChunk | OutputChunk]:
        without = without_key(rows, self.sides[side].keys)
        if without.any():
            self.use(group)
            yield from self._without_match(rows.take(indices_of(np.flatnonzero(without))), side)
            rows = rows.take(indices_of(np.flatnonzero(~without)))
        if rows.num_rows:
            yield from super().take_side(group, rows, side)

    def _without_match(self, rows: pa.RecordBatch, side: int) -> Iterator[ColumnChunk]:
        """Yield rows that cannot have a match, if those come out."""
        times = self.event_times(rows, side, "a join in windows")
        late = times <= self.group.watermark
        self.late_dropped += int(np.count_nonzero(late))
        if self._of.padded(side) and not self._of.alone_when_matched and not late.all():
            places = np.flatnonzero(~late)
            yield ColumnChunk(MAIN, self._of.alone(side, rows.take(indices_of(places))), times[places])

    def _fire(self, window: TimeWindow) -> Iterator[ColumnChunk | OutputChunk]:
        parts = [self._parts(side, window) for side in (0, 1)]
        if not any(parts):
            return
        for some in in_ranges(parts):
            left, right = (HeldRows(own, side.schema) for own, side in zip(some, self.sides, strict=True))
            yield from self._of_keys(left, right, window.end - 1)

    def _of_keys(self, left: HeldRows, right: HeldRows, time: int) -> Iterator[ColumnChunk]:
        """Yield what comes of all rows of some keys."""
        of = self._of
        flags = [np.zeros(len(held), np.bool_) for held in (left, right)]
        if len(left) and len(right):
            order = np.argsort(left.hashes, kind="stable")
            searched = left.hashes[order], left.keys.take(indices_of(order)), np.zeros(len(left), np.int64)
            matched = match_ranges(searched, (right.hashes, right.keys, np.zeros(len(right), np.int64)), (0, 0))
            if of.condition is None and of.kind in ("semi", "anti"):
                flags[0][order[matched.counts > 0]] = True
            elif matched.counts.any():
                needed = [of.needed(side) for side in (0, 1)]
                for lefts, rights in pair_chunks(matched, (left, right), order, needed):
                    rows, true = of.matched(lefts, rights)
                    for each, paired in zip(flags, (lefts, rights), strict=True):
                        each[paired.used[paired.places[true]]] = True
                    if rows.num_rows and of.kind not in ("semi", "anti"):
                        yield ColumnChunk(MAIN, rows, np.full(rows.num_rows, time))
        for side, held in enumerate((left, right)):
            if of.padded(side):
                places = np.flatnonzero(flags[side] == of.alone_when_matched)
                for rows, _ in of.alone_of(side, held, places):
                    times: Numbers = np.full(rows.num_rows, time)
                    yield ColumnChunk(MAIN, rows, times)
