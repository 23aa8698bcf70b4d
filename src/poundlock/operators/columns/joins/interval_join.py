"""The interval join by columns: rows of a checkpoint are matched with each other and with those that state has, all at once.

Rows lie in state whole, beside each other, in buckets of time, so that what no row can join any more goes away by the bucket, and a
checkpoint writes what came and nothing else. Of the rows in state only those that match are made columns again. Pairs come in the
order in which the operator of single records gives them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from poundlock.operators.columns.joins.buckets import by_bucket
from poundlock.operators.columns.joins.held_rows import HeldRows, Part, pair_chunks
from poundlock.operators.columns.joins.matching import AddedRows, TimedRows, match_ranges, of_hashes
from poundlock.operators.columns.joins.pairs import PairFunction, PairOutput, SomePairs
from poundlock.operators.columns.joins.sides import SIDES, ColumnJoinOperator, HashKeys, JoinSide
from poundlock.operators.columns.msgpack.values import unpacked
from poundlock.operators.columns.operator import ColumnChunk, Slice
from poundlock.operators.keyed.group import MAX, KeyGroup
from poundlock.operators.keyed.output import OutputChunk

_AT_ONCE = 1 << 20  # rows of the other side that may match some, about


@dataclass(frozen=True)
class ColumnIntervalJoin:
    """An interval join whose pairs come out as columns. Picklable.

    Args:
        lower_ms: a right row is of a pair if left time + lower <= right time <= left time + upper; `upper_ms` likewise.
        sides: left and right.
        output: what becomes of pairs.
        hash_keys: the hash of keys, by which rows were sent.
    """

    lower_ms: int
    upper_ms: int
    sides: tuple[JoinSide, JoinSide]
    output: PairOutput | PairFunction
    hash_keys: HashKeys

    def operator(self) -> ColumnIntervalJoinOperator:
        """Return a new operator."""
        return ColumnIntervalJoinOperator(self)


class ColumnIntervalJoinOperator(ColumnJoinOperator):
    """Joins side 0, left, with side 1, right. A host calls `take_side` for each side, `advance_watermark`, `store`."""

    kind: ClassVar[str] = "joined rows"

    def __init__(self, join: ColumnIntervalJoin) -> None:
        super().__init__(join.sides, join.output, join.hash_keys)
        lower, upper = join.lower_ms, join.upper_ms
        # From where to where, relative to a row of a side, the other side's rows are; and how long it is kept.
        self._bounds = (lower, upper), (-upper, -lower)
        self._kept_ms = max(0, upper), max(0, -lower)
        self.added: list[list[TimedRows]] = [[], []]
        """By side the rows that were added in this checkpoint."""

    def bind(self, group: KeyGroup) -> None:
        for side, tables in enumerate(self.tables):
            if None in group.namespaces(SIDES[side]):
                self._take_over(group, side)
            tables.declare(group, replaces=("interval join",))
            for bucket in tables.namespaces(group):
                self._wait_for(side, bucket)

    def _take_over(self, group: KeyGroup, side: int) -> None:
        """Take the rows that the operator of single records kept: lists of times and of records, an entry of state for each key."""
        entries = self.rows.entries_of(SIDES[side], None)
        group.drop(SIDES[side])
        held = unpacked(entries.values)
        of = np.repeat(np.arange(len(held)), [len(times) for times, _ in held])
        times = np.array([time for each, _ in held for time in each], np.int64)
        if len(times):
            records = [record for _, each in held for record in each]
            self.added[side].append(self.from_records(side, entries, of, times, records))

    # --- rows -----------------------------------------------------------------------------------------------------------

    def take_side(self, group: KeyGroup, rows: pa.RecordBatch, side: int) -> Iterator[ColumnChunk | OutputChunk]:
        self.use(group)
        times = self.event_times(rows, side, "an interval join")
        # As in Flink: a row at the watermark itself is taken.
        yield from self.send_late(rows, times, times < group.watermark, side)
        own = self.taken(rows, times, times >= group.watermark, side)
        if len(own):
            yield from self._pairs(side, own)
            self.added[side].append(own)

    def _pairs(self, side: int, own: TimedRows, before: int | None = None) -> Iterator[ColumnChunk | OutputChunk]:
        """Yield the pairs of some rows with those of the other side that there are.

        Where very many may match, each half of the rows is searched for by itself, as long as that makes them fewer.

        Args:
            before: how many may have matched what these rows are a half of; None: they are no half.
        """
        lower, upper = self._bounds[side]
        parts = self._held(1 - side, own, int(own.times.min()) + lower, int(own.times.max()) + upper)
        count = sum(map(len, parts))
        if not count:
            return
        if count > _AT_ONCE and len(own) > 1 and (before is None or count <= before * 3 // 4):
            del parts
            middle = len(own) // 2
            for half in (own.slice(0, middle), own.slice(middle, len(own))):
                yield from self._pairs(side, half, count)
            return
        searched, held = HeldRows([own], self.sides[side].schema), HeldRows(parts, self.sides[1 - side].schema)
        matched = match_ranges((own.hashes, own.keys, own.times), (held.hashes, held.keys, held.times), (lower, upper))
        if not matched.counts.any():
            return
        needed = [self.emitter.needed(each, self.sides[each].schema) for each in (side, 1 - side)]
        for rows, others in pair_chunks(matched, (searched, held), np.arange(len(own)), needed):
            left, right = (rows, others) if side == 0 else (others, rows)
            yield from self.emitter.emit(self.group, SomePairs(left, right, np.maximum(left.times, right.times)))

    def _held(self, side: int, wanted: TimedRows, first: int, last: int) -> list[Part]:
        """Return the rows of a side from one time to another that may have one of some keys: what state has, and what was added."""
        limit, hashes = self._limit(side), np.unique(wanted.hashes)
        parts: list[Part] = []
        for start, end in self.tables[side].namespaces(self.group):
            # A bucket without a width has rows that came at the watermark's own time, and goes with the next watermark.
            if start > last or (start if start == end else end - 1) < first:
                continue
            for part in self.tables[side].rows_of(self.rows, (start, end)):
                rows = of_hashes(part, hashes)
                times = part.times[rows]
                within = (times >= first) & (times <= last)
                parts.append(replace(part, places=rows[within if start == end else within & (times > limit)]))
        added = (rows.where((rows.times >= first) & (rows.times <= last)) for rows in self.added[side])
        return [part for part in (*parts, *added) if len(part)]

    def _limit(self, side: int) -> int:
        """Return up to which time nothing can join a row of a side any more."""
        watermark = self.group.watermark
        return MAX if watermark == MAX else watermark - self._kept_ms[side]

    # --- time -----------------------------------------------------------------------------------------------------------

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[Any]:
        before = group.watermark
        yield from super().advance_watermark(group, watermark)
        if group.watermark > before:
            for side, added in enumerate(self.added):
                left = [rows.where(rows.times > self._limit(side)) for rows in added]
                self.added[side] = [rows for rows in left if len(rows)]

    def on_timer(self, time: int, entry: Any, *, event: bool) -> None:
        if (
            type(entry) is tuple and len(entry) == 2 and type(entry[1]) is tuple
        ):  # others are of keys, of single records
            side, bucket = entry
            self.tables[side].drop(self.group, bucket)

    def _wait_for(self, side: int, bucket: Slice) -> None:
        """Make a bucket go away when its last row does."""
        start, end = bucket
        last = start + 1 if start == end else end - 1 + self._kept_ms[side]
        self.group.event_timers.register(min(last, MAX), (side, bucket))

    def store(self, group: KeyGroup) -> None:
        """Have what was added written with the checkpoint; called once, behind all else."""
        self.use(group)
        for side, added in enumerate(self.added):
            if added:
                self._keep(side, added)
        self.added = [[], []]

    def _keep(self, side: int, added: Sequence[TimedRows]) -> None:
        # What would be gone, had the watermark moved since it came: it has the watermark's own time, and stays until then.
        stays = [rows.times > self._limit(side) for rows in added]
        kept = [rows.where(flags) for rows, flags in zip(added, stays, strict=True)]
        parts_of = by_bucket(kept, self.tables[side].namespaces(self.group), self._kept_ms[side])
        for rows, flags in zip(added, stays, strict=True):
            brief = rows.where(~flags)
            for time, part in brief.parted(brief.times):
                parts_of.setdefault((time, time), []).append(part)
        for bucket, parts in sorted(parts_of.items()):
            self.tables[side].append(self.rows, bucket, AddedRows(parts))
            self._wait_for(side, bucket)
