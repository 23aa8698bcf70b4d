"""The interval join by columns: rows of a checkpoint are matched with each other and with those that state has, all at once.

Rows lie in state whole, beside each other, in buckets of time, so that what no row can join any more goes away by the bucket, and a
checkpoint writes what came and nothing else. Of the rows in state only those that match are made columns again. Pairs come in the
order in which the operator of single records gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import Numbers, indices_of, joined, numbers_in
from poundlock.operators.columns.encoding import encode_key_columns
from poundlock.operators.columns.groups import Hashes
from poundlock.operators.columns.matching import MatchRanges, TimedRows, match_ranges, of_hashes
from poundlock.operators.columns.operator import CHUNK_ROWS, ColumnChunk, Slice
from poundlock.operators.columns.records import columns_of, decode_records, joined_rows
from poundlock.operators.keyed.group import MAX, KeyGroup, TimerEntries
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import MAIN

SIDES = ("left", "right")
_KIND = "joined rows"
_PARTS_OF_A_STAY, _LEAST_MS = 4, 1_000
"""In how many buckets the rows are that stay as long as a row does, unless a bucket were shorter than this."""
_AT_ONCE = 64 << 20  # bytes of pairs in a chunk, about


class PairOutput(Protocol):
    """What becomes of pairs of rows. Picklable."""

    def needed(self, side: int) -> Sequence[str]:
        """Return the columns of a side's rows that it looks at."""

    def pairs(self, sides: Sequence[pa.RecordBatch], places: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return pairs as rows.

        Args:
            sides: rows of left and right, with the columns that are needed.
            places: of each pair the place of its row in each.
        """


@dataclass(frozen=True)
class JoinSide:
    """One input of a join. Picklable.

    Args:
        keys: the columns of the key.
        time: the column of event time, a timestamp.
        layout: the columns that are kept of a row, as `layout_of` tells them.
        late_tag: side output of rows behind the watermark, with these columns; None to drop and count them.
    """

    keys: tuple[str, ...]
    time: str
    layout: str
    late_tag: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns that are kept of a row."""
        return columns_of(self.layout)


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
    output: PairOutput
    hash_keys: Callable[[Sequence[pa.Array]], Hashes]

    def operator(self) -> ColumnIntervalJoinOperator:
        """Return a new operator."""
        return ColumnIntervalJoinOperator(self)


class ColumnIntervalJoinOperator(KeyedOperator):
    """Joins side 0, left, with side 1, right. A host calls `take_side` for each side, `advance_watermark`, `store`."""

    timer_entries: ClassVar[TimerEntries] = "windows"
    opens_tables_first: ClassVar[bool] = True

    def __init__(self, join: ColumnIntervalJoin) -> None:
        super().__init__()
        self._join = join
        lower, upper = join.lower_ms, join.upper_ms
        # From where to where, relative to a row of a side, the other side's rows are; and how long it is kept.
        self._bounds = (lower, upper), (-upper, -lower)
        self._kept_ms = max(0, upper), max(0, -lower)
        self._width = [max(kept // _PARTS_OF_A_STAY, _LEAST_MS) for kept in self._kept_ms]
        self._added: list[list[TimedRows]] = [[], []]

    @property
    def rows(self) -> Any:
        """The group in use, as a store of rows."""
        return self.group

    def bind(self, group: KeyGroup) -> None:
        for side, name in enumerate(SIDES):
            group.declare(name, _KIND, merges=(self._join.sides[side].layout,))
            for bucket in group.namespaces(name):
                self._wait_for(side, bucket)

    # --- rows -----------------------------------------------------------------------------------------------------------

    def take_side(self, group: KeyGroup, rows: pa.RecordBatch, side: int) -> Iterator[ColumnChunk]:
        """Take rows of one side, in the order they came.

        Raises:
            DefinitionError: a row has no event time.
        """
        self.use(group)
        of = self._join.sides[side]
        times = _event_times(rows.column(of.time), SIDES[side])
        # As in Flink: a row at the watermark itself is taken.
        late = times < group.watermark
        if late.any():
            gone = np.flatnonzero(late)
            yield from self._send_late(rows.take(indices_of(gone)), times[gone], of)
            kept = np.flatnonzero(~late)
            rows, times = rows.take(indices_of(kept)), times[kept]
        if not rows.num_rows:
            return
        columns = [rows.column(name) for name in of.keys]
        records = rows.select(of.schema.names).cast(of.schema)
        own = TimedRows(self._join.hash_keys(columns), encode_key_columns(columns), times, records)
        yield from self._pairs(side, own)
        self._added[side].append(own)

    def _send_late(self, rows: pa.RecordBatch, times: Numbers, of: JoinSide) -> Iterator[ColumnChunk]:
        if of.late_tag is None:
            self.late_dropped += rows.num_rows
        else:
            yield ColumnChunk(of.late_tag, rows.select(of.schema.names), times)

    def _pairs(self, side: int, own: TimedRows) -> Iterator[ColumnChunk]:
        """Yield the pairs of some rows with those of the other side that there are."""
        lower, upper = self._bounds[side]
        held = self._held(1 - side, own, int(own.times.min()) + lower, int(own.times.max()) + upper)
        if not len(held):
            return
        matched = match_ranges((own.hashes, own.keys, own.times), (held.hashes, held.keys, held.times), (lower, upper))
        if not matched.counts.any():
            return
        needed = [self._join.output.needed(each) for each in (0, 1)]
        others, place_of = held.records(matched, needed[1 - side])
        sides = [own.records.select(list(needed[side])), others]
        size = sum(part.nbytes // max(part.num_rows, 1) for part in sides) + 1
        for own_rows, other_rows in matched.pairs(max(1, min(CHUNK_ROWS, _AT_ONCE // size))):
            places = [indices_of(own_rows), indices_of(place_of[other_rows])]
            times = np.maximum(own.times[own_rows], held.times[other_rows])
            pairs = self._join.output.pairs(*(each if side == 0 else each[::-1] for each in (sides, places)))
            yield ColumnChunk(MAIN, pairs, times)

    def _held(self, side: int, wanted: TimedRows, first: int, last: int) -> _Held:
        """Return the rows of a side from one time to another that may have one of some keys: what state has, and what was added."""
        limit, hashes = self._limit(side), np.unique(wanted.hashes)
        stored = []
        for start, end in self.group.namespaces(SIDES[side]):
            # A bucket without a width has rows that came at the watermark's own time, and goes with the next watermark.
            if start > last or (start if start == end else end - 1) < first:
                continue
            for part in self.rows.rows_of(SIDES[side], (start, end)):
                rows = of_hashes(part, hashes)
                times = part.times_or_none()[rows]
                within = (times >= first) & (times <= last)
                stored.append(part.take(rows[within if start == end else within & (times > limit)]))
        added = [rows.where((rows.times >= first) & (rows.times <= last)) for rows in self._added[side]]
        return _Held(
            [rows for rows in stored if len(rows)], [rows for rows in added if len(rows)], self._join.sides[side]
        )

    def _limit(self, side: int) -> int:
        """Return up to which time nothing can join a row of a side any more."""
        watermark = self.group.watermark
        return MAX if watermark == MAX else watermark - self._kept_ms[side]

    # --- time -----------------------------------------------------------------------------------------------------------

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[Any]:
        before = group.watermark
        yield from super().advance_watermark(group, watermark)
        if group.watermark > before:
            for side, added in enumerate(self._added):
                left = [rows.where(rows.times > self._limit(side)) for rows in added]
                self._added[side] = [rows for rows in left if len(rows)]

    def on_timer(self, time: int, entry: Any, *, event: bool) -> None:
        side, bucket = entry
        self.group.drop(SIDES[side], bucket)

    def _wait_for(self, side: int, bucket: Slice) -> None:
        """Make a bucket go away when its last row does."""
        start, end = bucket
        last = start + 1 if start == end else end - 1 + self._kept_ms[side]
        self.group.event_timers.register(min(last, MAX), (side, bucket))

    def store(self, group: KeyGroup) -> None:
        """Have what was added written with the checkpoint; called once, behind all else."""
        self.use(group)
        for side, added in enumerate(self._added):
            if added:
                self._keep(side, TimedRows.joined(added))
        self._added = [[], []]

    def _keep(self, side: int, rows: TimedRows) -> None:
        width = self._width[side]
        starts = rows.times // width * width
        # What would be gone, had the watermark moved since it came: it has the watermark's own time, and stays until then.
        ends = np.where(rows.times > self._limit(side), starts + width, rows.times)
        starts = np.where(rows.times > self._limit(side), starts, rows.times)
        for start, end in np.unique(np.stack([starts, ends], axis=1), axis=0).tolist():
            self.rows.append(SIDES[side], (start, end), rows.where((starts == start) & (ends == end)))
            self._wait_for(side, (start, end))


class _Held:
    """Rows of a side: those that state has, then those that were added in this checkpoint.

    Args:
        stored: rows of state, oldest first.
        of: the side.
    """

    def __init__(self, stored: Sequence[Any], added: Sequence[TimedRows], of: JoinSide) -> None:
        self._of, self._added = of, added
        self._values = [rows.values for rows in stored]
        self._stored = sum(map(len, stored))
        parts = [*stored, *added]
        if parts:
            self.hashes: Hashes = np.concatenate([part.hashes for part in parts])
            self.keys = joined([part.keys for part in parts])
            self.times: Numbers = np.concatenate([part.times for part in parts])
        self._length = sum(map(len, parts))

    def __len__(self) -> int:
        return self._length

    def records(self, matched: MatchRanges, names: Sequence[str]) -> tuple[pa.RecordBatch, Numbers]:
        """Return the rows that match, and those that were added, as columns; and for each row here its place among them."""
        used = matched.used
        used = used[used < self._stored]
        parts = [rows.records.select(list(names)) for rows in self._added]
        if len(used):
            values = joined(self._values).take(indices_of(used))
            parts.insert(0, decode_records(values, self._of.schema, names).select(list(names)))
        place_of = np.zeros(self._length, np.int64)
        place_of[used] = np.arange(len(used))
        place_of[self._stored :] = np.arange(self._length - self._stored) + len(used)
        return joined_rows(parts), place_of


def _event_times(column: pa.Array, side: str) -> Numbers:
    """Return the event time of each row, ms. Raises DefinitionError: one has none."""
    if column.null_count:
        raise DefinitionError(
            f"a record of the {side} side of an interval join has no event time",
            next="call assign_timestamps_and_watermarks(WatermarkStrategy…) on both streams",
        )
    micros: Numbers = numbers_in(column.cast(pa.timestamp("us", column.type.tz)))
    return micros // 1000
