"""How rows leave a stage, for a keyed operator or a Spark segment, and how they come out of a segment again.

Row-wise SQL keeps the split that each row was read in, so that event time behind a segment still goes by partition. A
DataFrame function hides it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats import convert
from poundlock.formats.arrays import numbers_in
from poundlock.formats.chunk import Batch, Chunk, NoOrigin, Records
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Emit, unreadable_row
from poundlock.operators.columns.operator import ColumnWork
from poundlock.operators.pieces import content_bytes
from poundlock.operators.stream_times import StreamTimes
from poundlock.state import hashing
from poundlock.tasks.columns import SPLIT, bool_column, conformed, int_column, visible_schema
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange.arrivals import RowNumbers
from poundlock.tasks.exchange.blocks import Block, BlockWriter, ExchangeInput
from poundlock.tasks.exchange.partial_blocks import PartialWriter
from poundlock.tasks.exchange.segment_blocks import BLOCK_BYTES, read_blocks, write_blocks
from poundlock.tasks.stage import TaskStep


@dataclass(eq=False)
class ExchangeStep(TaskStep):
    """Sends rows to the tasks that have their key groups, or where they are placed.

    Args:
        schema: the columns of the rows, the hidden one of event time included where they may have it.
        seen: those whose values the operator makes Python values of.
        windows: those that rows are added up for before they are sent; None = rows are sent as they are.
        times: tells by which watermark the windows of a row have fired already; where windows need such rows one by one.
    """

    to: ExchangeInput
    stage: int
    schema: Any
    columns: tuple[str, ...]
    seen: frozenset[str] = frozenset()
    windows: ColumnWork | None = None
    times: StreamTimes | None = None

    def begin(self) -> None:
        splits = Counter(place.source for place in self.run.directive.places)
        parallelism, time = self.run.directive.parallelism, self.run.directive.time
        self._writer = BlockWriter(self.to, hashing, parallelism, splits)
        if self.windows is not None:
            clock = self.windows.partial.clock_of(time.clock)
            self._partials = PartialWriter(self.to, self.windows.partial, hashing, clock, parallelism)
            self._numbers = RowNumbers() if self.windows.partial.places else None
        if self.windows is not None and self.windows.singly and self.times is not None:
            before = self.times.advance(time).watermarks[self.to.operator].before
            self._watermark = self.windows.partial.reached(before)
        self._own = visible_schema(self.schema)
        self._sent = pa.schema([self.schema.field(name) for name in self.columns])
        self._blocks: list[Block] = []
        self.run.exchanges.append(self)

    def process(self, chunk: Chunk, emit: Emit) -> None:
        batch = convert.to_batch(chunk, self._own if isinstance(chunk, Records) else None)
        readable = convert.to_batch(convert.for_python(batch, self._unreadable, self.seen)).batch
        rows = conformed(readable, self._sent)
        if self.windows is not None:
            rows = self._added_up(rows, self.windows)
        self._blocks += self._writer.add(rows, self.run.place)

    def _added_up(self, rows: pa.RecordBatch, windows: ColumnWork) -> pa.RecordBatch:
        """Add up rows for their windows; return those that go one by one."""
        if self._numbers is not None:
            rows = self._numbers.numbered(rows, self.run.place)
        alone = np.zeros(rows.num_rows, np.bool_)
        if windows.singly:
            alone = windows.alone(windows.partial.times(rows, 0), self._watermark)
        added = rows if not alone.any() else rows.filter(bool_column(~alone))
        self._blocks += self._partials.add(added, self.run.place)
        return rows.filter(bool_column(alone)) if alone.any() else rows.slice(0, 0)

    def _unreadable(self, record: Reject) -> None:
        self.run.reject_at(self.to.operator, unreadable_row(self.to.operator, record))

    def full_blocks(self) -> list[Block]:
        """Return the blocks that became full since the last call."""
        full, self._blocks = self._blocks, []
        return full

    def blocks(self) -> list[Block]:
        """Return what is left of all that was taken; called once, behind the last row."""
        added = [] if self.windows is None else self._partials.finish()
        return [*self._blocks, *added, *self._writer.finish()]


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """A block of rows for a segment: the input they are of, and an Arrow IPC stream."""

    input: str
    block: bytes


@dataclass(eq=False)
class ToSegment(TaskStep):
    """Sends rows into a Spark segment.

    Args:
        schema: the columns, hidden ones included.
    """

    input: str
    stage: int
    schema: Any

    def begin(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._own = visible_schema(self.schema)
        self.run.segment_exits.append(self)

    def process(self, chunk: Chunk, emit: Emit) -> None:
        rows = convert.to_batch(chunk, self._own if isinstance(chunk, Records) else None).batch
        split = int_column(np.full(rows.num_rows, self.run.place_number, np.int32), pa.int32())
        self._batches.append(conformed(rows.append_column(SPLIT, split), self.schema))
        self._bytes += content_bytes(self._batches[-1].columns)

    def full_blocks(self) -> Iterator[SegmentRows]:
        """Yield what was taken since the last call, if that fills a block."""
        if self._bytes >= BLOCK_BYTES:
            yield from self.blocks()

    def blocks(self) -> Iterator[SegmentRows]:
        """Yield what is left of all that was taken; called once, behind the last row."""
        batches, self._batches, self._bytes = self._batches, [], 0
        for block in write_blocks(batches, self.schema):
            yield SegmentRows(self.input, bytes(block))


def rows_by_place(
    block: bytes, places: Sequence[SplitPlace], unknown: SplitPlace
) -> Iterator[tuple[SplitPlace, Batch]]:
    """Yield the rows of a block that came out of a segment, by the split they were read in, without that column.

    Args:
        places: the splits of the checkpoint, by number.
        unknown: stands for the split of rows of which it is not known.
    """
    for batch in read_blocks(block):
        if SPLIT not in batch.schema.names:
            yield unknown, Batch(batch, NoOrigin())
            continue
        numbers = numbers_in(batch.column(SPLIT).fill_null(-1))
        rows = batch.drop_columns([SPLIT])
        starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()] if len(numbers) else []
        for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=False):
            number = int(numbers[start])
            place = places[number] if 0 <= number < len(places) else unknown
            yield place, Batch(rows.slice(start, stop - start), NoOrigin(place.source))
