"""The interval join of SQL by columns, inner, left, right or full: what comes out is final.

Rows lie in state as those of the interval join of streams do, whole, in buckets of time. A row of a side that comes out without a match,
too, has a number; which of them have had a match is kept beside them, in buckets of the same time. Once the watermark is past the last
possible match of such a row, and it had none, it comes out with nulls for the other side.

No row is dropped because it is late: it is matched with what there is, and if nothing that is to come can match it, it is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of, flags_in, indices_of, joined, numbers_in, valid_in
from poundlock.operators.columns.groups import Hashes
from poundlock.operators.columns.joins.buckets import by_bucket
from poundlock.operators.columns.joins.held_rows import HeldRows, pair_chunks
from poundlock.operators.columns.joins.kept_rows import SideTables, StoredRows, read_as
from poundlock.operators.columns.joins.kinds import JoinedColumns, without_key
from poundlock.operators.columns.joins.matching import AddedRows, TimedRows, match_ranges, of_hashes
from poundlock.operators.columns.joins.sides import SIDES, ColumnJoinOperator, HashKeys, JoinSide
from poundlock.operators.columns.operator import ColumnChunk, Slice
from poundlock.operators.columns.records import columns_of, joined_rows, layout_of
from poundlock.operators.keyed.group import MAX, MIN, KeyGroup
from poundlock.operators.keyed.output import MAIN, OutputChunk

_AT_ONCE = 1 << 20  # rows that are taken at a time, and rows of the other side that may match some, about
_NUMBER, _MATCHED = "__number", "__matched"
"""Columns of a row that may come out without a match: tells it apart from others, and whether it had one when it was kept."""
_MARKS = np.dtype([("hash", np.uint64), ("number", np.int64)])
_MARK = pa.schema([(_NUMBER, pa.int64())])


@dataclass(frozen=True)
class ColumnSqlIntervalJoin:
    """An interval join of some kind. Picklable.

    Args:
        lower_ms: a right row is of a pair if left time + lower <= right time <= left time + upper; `upper_ms` likewise.
        sides: left and right.
        output: what comes out.
        hash_keys: the hash of keys, by which rows were sent.
    """

    lower_ms: int
    upper_ms: int
    sides: tuple[JoinSide, JoinSide]
    output: JoinedColumns
    hash_keys: HashKeys

    def operator(self) -> ColumnSqlIntervalJoinOperator:
        """Return a new operator."""
        return ColumnSqlIntervalJoinOperator(self)

    @property
    def kept_sides(self) -> tuple[JoinSide, JoinSide]:
        """The sides with the columns that are kept of a row."""
        left, right = (
            replace(side, layout=_numbered(side.layout)) if self.output.padded(number) else side
            for number, side in enumerate(self.sides)
        )
        return left, right


def _numbered(layout: str) -> str:
    return _layout(pa.schema([*columns_of(layout), *_MARK, (_MATCHED, pa.bool_())]))


def _layout(schema: pa.Schema) -> str:
    made = layout_of(schema)
    assert made is not None
    return made


@dataclass(frozen=True)
class _Added:
    """Rows that came in this checkpoint, and which of them have had a match."""

    rows: TimedRows
    matched: Flags

    def __len__(self) -> int:
        return len(self.rows)

    def slice(self, start: int, stop: int) -> _Added:
        """Return a stretch of the rows, of which the flags are the same ones."""
        return _Added(self.rows.slice(start, stop), self.matched[start:stop])


@dataclass(frozen=True)
class _Candidates:
    """Rows of a side that may match.

    Args:
        stored: those that state has, each part with its bucket.
        added: those that came, each part with the places of its rows among them.
    """

    stored: Sequence[tuple[Slice, StoredRows]]
    added: Sequence[tuple[_Added, Numbers]]

    def __len__(self) -> int:
        return sum(len(part) for _, part in self.stored) + sum(len(places) for _, places in self.added)

    def held(self, schema: pa.Schema) -> HeldRows:
        """Return them as one."""
        return HeldRows(
            [*(part for _, part in self.stored), *(each.rows.take(places) for each, places in self.added)], schema
        )


class ColumnSqlIntervalJoinOperator(ColumnJoinOperator):
    """Joins side 0, left, with side 1, right."""

    kind: ClassVar[str] = "rows of an interval join"

    def __init__(self, join: ColumnSqlIntervalJoin) -> None:
        super().__init__(join.kept_sides, join.output, join.hash_keys)
        self._of = join.output
        lower, upper = join.lower_ms, join.upper_ms
        # From where to where, relative to a row of a side, the other side's rows are; the last of them may be that long behind it.
        self._bounds = (lower, upper), (-upper, -lower)
        self._stay_ms = upper, -lower
        self._marks = [SideTables(f"{name}-matched", "matched rows", _layout(_MARK)) for name in SIDES]
        self._new: list[list[TimedRows]] = [[], []]
        self._count = 0
        self._added: list[list[_Added]] = [[], []]
        self._kept: list[list[TimedRows]] = [[], []]
        self._newly_matched: list[dict[Slice, list[TimedRows]]] = [{}, {}]
        self._before = MIN

    def bind(self, group: KeyGroup) -> None:
        for side, tables in enumerate(self.tables):
            tables.declare(group)
            self._marks[side].declare(group)
            for bucket in tables.namespaces(group):
                self._wait_for(side, bucket)

    def take_side(self, group: KeyGroup, rows: pa.RecordBatch, side: int) -> Iterator[ColumnChunk | OutputChunk]:
        self.use(group)
        times = self.event_times(rows, side, "an interval join")
        alone = without_key(rows, self.sides[side].keys)
        if self._of.padded(side):
            numbers = group.arrived + np.arange(rows.num_rows)
            group.arrived += rows.num_rows
            rows = rows.append_column(_NUMBER, column_of(numbers, pa.int64()))
            rows = rows.append_column(_MATCHED, _flags(np.zeros(rows.num_rows, np.bool_)))
            if alone.any():
                places = np.flatnonzero(alone)
                yield ColumnChunk(MAIN, self._of.alone(side, rows.take(indices_of(places))), times[places])
        own = self.taken(rows, times, ~alone, side)
        if len(own):
            self._new[side].append(own)
            self._count += len(own)
            if self._count >= _AT_ONCE:
                yield from self._match()

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[Any]:
        self.use(group)
        yield from self._match()
        self._before = group.watermark
        yield from super().advance_watermark(group, watermark)
        yield from self._settle()

    # --- pairs ----------------------------------------------------------------------------------------------------------

    def _match(self) -> Iterator[ColumnChunk]:
        """Yield the pairs of the rows that came with those that there were, and with each other."""
        new, self._new, self._count = self._new, [[], []], 0
        own = [_one(parts) for parts in new]
        yield from self._pairs(1, own[1], self._added[0])
        if own[1] is not None:
            self._added[1].append(own[1])
        yield from self._pairs(0, own[0], self._added[1])
        if own[0] is not None:
            self._added[0].append(own[0])

    def _pairs(
        self, side: int, own: _Added | None, others: Sequence[_Added], before: int | None = None
    ) -> Iterator[ColumnChunk]:
        """Yield the pairs of some rows with those of the other side.

        Where very many may match, each half of the rows is searched for by itself, as long as that makes them fewer.

        Args:
            others: rows of the other side that came in this checkpoint.
            before: how many may have matched what these rows are a half of; None: they are no half.
        """
        if own is None:
            return
        candidates = self._candidates(1 - side, own.rows, others, self._bounds[side])
        count = len(candidates)
        if not count:
            return
        if count > _AT_ONCE and len(own) > 1 and (before is None or count <= before * 3 // 4):
            middle = len(own) // 2
            for half in (own.slice(0, middle), own.slice(middle, len(own))):
                yield from self._pairs(side, half, others, count)
            return
        searched, held = HeldRows([own.rows], self.sides[side].schema), candidates.held(self.sides[1 - side].schema)
        matched = match_ranges(
            (own.rows.hashes, own.rows.keys, own.rows.times), (held.hashes, held.keys, held.times), self._bounds[side]
        )
        if not matched.counts.any():
            return
        hit = np.zeros(len(held), np.bool_)
        needed = [self._of.needed(each) for each in (side, 1 - side)]
        for rows, opposite in pair_chunks(matched, (searched, held), np.arange(len(own)), needed):
            left, right = (rows, opposite) if side == 0 else (opposite, rows)
            pairs, true = self._of.matched(left, right)
            own.matched[rows.used[rows.places[true]]] = True
            hit[opposite.used[opposite.places[true]]] = True
            if pairs.num_rows:
                yield ColumnChunk(MAIN, pairs, np.maximum(left.times, right.times)[true])
        self._mark(1 - side, candidates, hit)

    def _candidates(
        self, side: int, wanted: TimedRows, added: Sequence[_Added], bounds: tuple[int, int]
    ) -> _Candidates:
        """Return the rows of a side that may have one of some keys, and a time that matches."""
        first, last = int(wanted.times.min()) + bounds[0], int(wanted.times.max()) + bounds[1]
        limit, hashes = self._limit(side, self.group.watermark), np.unique(wanted.hashes)
        stored = []
        for start, end in self.tables[side].namespaces(self.group):
            if start > last or end - 1 < max(first, limit):
                continue
            for part in self.tables[side].rows_of(self.rows, (start, end)):
                places = of_hashes(part, hashes)
                times = part.times[places]
                some = replace(part, places=places[(times >= max(first, limit)) & (times <= last)])
                if len(some):
                    stored.append(((start, end), some))
        within = [(each, np.flatnonzero((each.rows.times >= first) & (each.rows.times <= last))) for each in added]
        return _Candidates(stored, [(each, places) for each, places in within if len(places)])

    def _mark(self, side: int, candidates: _Candidates, hit: Flags) -> None:
        """Note which rows of a side have had a match.

        Args:
            hit: of the candidates in their order.
        """
        start = 0
        for bucket, part in candidates.stored:
            places = np.flatnonzero(hit[start : start + len(part)])
            start += len(part)
            if len(places) and self._of.padded(side):
                self._mark_stored(side, bucket, part, places)
        for each, places in candidates.added:
            each.matched[places[hit[start : start + len(places)]]] = True
            start += len(places)

    def _mark_stored(self, side: int, bucket: Slice, part: StoredRows, places: Numbers) -> None:
        hashes = part.hashes[places]
        numbers, open_ = self._open(side, bucket, part, places)
        new = np.flatnonzero(open_)
        if len(new):
            records = pa.RecordBatch.from_arrays([column_of(numbers[new], pa.int64())], [_NUMBER])
            marks = TimedRows(hashes[new], part.keys.take(indices_of(places[new])), part.times[places[new]], records)
            self._newly_matched[side].setdefault(bucket, []).append(marks)

    def _open(self, side: int, bucket: Slice, part: StoredRows, places: Numbers) -> tuple[Numbers, Flags]:
        """Return the numbers of some rows of a bucket, and which of them have had no match. One without a number never comes out alone."""
        rows = read_as(part.values_at(places), part.layout, self.sides[side].schema, [_NUMBER, _MATCHED])
        hashes, column = part.hashes[places], rows.column(0)
        numbers, valid = numbers_in(column), valid_in(column)
        known = np.isin(_marks_of(hashes, numbers), self._matched_rows(side, bucket, np.unique(hashes)))
        open_ = ~flags_in(rows.column(1)) & ~known
        return numbers, open_ if valid is None else open_ & valid

    def _matched_rows(self, side: int, bucket: Slice, hashes: Hashes) -> Any:
        """Return the marks of the rows of a bucket, and of some keys, that have had a match since they were kept."""
        new = self._newly_matched[side].get(bucket, ())
        marks = [_marks_of(rows.hashes, numbers_in(rows.records.column(0))) for rows in new]
        for part in self._marks[side].rows_of(self.rows, bucket):
            places = of_hashes(part, hashes)
            numbers = read_as(part.values_at(places), part.layout, _MARK, [_NUMBER]).column(0)
            marks.append(_marks_of(part.hashes[places], numbers_in(numbers)))
        return np.concatenate(marks) if marks else _marks_of(hashes[:0], np.empty(0, np.int64))

    # --- time -----------------------------------------------------------------------------------------------------------

    def _limit(self, side: int, watermark: int) -> int:
        """Return before which time nothing can match a row of a side any more."""
        return watermark if watermark in (MIN, MAX) else watermark - self._stay_ms[side]

    def _wait_for(self, side: int, bucket: Slice) -> None:
        """Have a bucket looked at when its first row may be past its last match."""
        first = bucket[0] + self._stay_ms[side] + 1
        self.group.event_timers.register(max(first, min(self.group.watermark, MAX - 1) + 1), (side, bucket))

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk]:  # type: ignore[override]
        """Yield the rows of a bucket that are past their last match and had none; the bucket goes away with the last of them."""
        side, bucket = entry
        limit = self._limit(side, self.group.watermark)
        if self._of.padded(side):
            past = self._limit(side, self._before)
            for part in self.tables[side].rows_of(self.rows, bucket):
                due = np.flatnonzero((part.times >= past) & (part.times < limit))
                if len(due):
                    _, alone = self._open(side, bucket, part, due)
                    yield from self._alone(side, replace(part, places=due[alone]))
        if bucket[1] <= limit:
            for tables in (self.tables[side], self._marks[side]):
                tables.drop(self.group, bucket)
            self._newly_matched[side].pop(bucket, None)
        else:
            self._wait_for(side, bucket)

    def _alone(self, side: int, rows: StoredRows | TimedRows) -> Iterator[ColumnChunk]:
        held = HeldRows([rows], self.sides[side].schema)
        for some, times in self._of.alone_of(side, held, np.arange(len(rows))):
            yield ColumnChunk(MAIN, some, times)

    def _settle(self) -> Iterator[ColumnChunk]:
        """Yield those of the rows that came that nothing to come can match, and that had no match; keep those that something can."""
        for side, added in enumerate(self._added):
            before, limit = (self._limit(side, each) for each in (self._before, self.group.watermark))
            kept: list[TimedRows] = []
            for each in added:
                late = each.rows.times <= before
                gone = late | (each.rows.times < limit)
                if self._of.padded(side):
                    yield from self._alone(side, each.rows.where(gone & ~each.matched))
                else:
                    self.late_dropped += int(np.count_nonzero(late & ~each.matched))
                kept.append(self._to_keep(side, each).where(~gone))
            self._kept[side] = kept
        self._added = [[], []]

    def _to_keep(self, side: int, added: _Added) -> TimedRows:
        """Return rows with what is known of their matches."""
        if not self._of.padded(side):
            return added.rows
        records = added.rows.records
        place = records.schema.get_field_index(_MATCHED)
        return replace(added.rows, records=records.set_column(place, _MATCHED, _flags(added.matched)))

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        for side, kept in enumerate(self._kept):
            there = self.tables[side].namespaces(group)
            for bucket, parts in sorted(by_bucket(kept, there, max(self._stay_ms[side], 0)).items()):
                self.tables[side].append(self.rows, bucket, AddedRows(parts))
                self._wait_for(side, bucket)
            for bucket, parts in sorted(self._newly_matched[side].items()):
                self._marks[side].append(self.rows, bucket, AddedRows(parts))
        self._kept, self._newly_matched = [[], []], [{}, {}]


def _one(parts: Sequence[TimedRows]) -> _Added | None:
    """Return rows as one, of which none has a match; None of none."""
    if not parts:
        return None
    rows = parts[0]
    if len(parts) > 1:
        rows = TimedRows(
            np.concatenate([part.hashes for part in parts]),
            joined([part.keys for part in parts]),
            np.concatenate([part.times for part in parts]),
            joined_rows([part.records for part in parts]),
        )
    return _Added(rows, np.zeros(len(rows), np.bool_))


def _marks_of(hashes: Hashes, numbers: Numbers) -> Any:
    """Return what tells rows apart: tasks number the rows of the keys that they have, so that those of one hash have different numbers."""
    marks = np.empty(len(hashes), _MARKS)
    marks["hash"], marks["number"] = hashes, numbers
    return marks


def _flags(flags: Flags) -> pa.Array:
    return column_of(flags, pa.bool_())
