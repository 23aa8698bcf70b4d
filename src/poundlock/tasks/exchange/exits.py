"""How rows leave a stage, for a keyed operator or a Spark segment, and how they come out of a segment again.

Row-wise SQL keeps the split that each row was read in, so that event time behind a segment is still told apart by partition. A
DataFrame function hides it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats import convert
from poundlock.formats.chunk import Batch, Chunk, NoOrigin, Records
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Emit, unreadable_row
from poundlock.state import hashing
from poundlock.tasks.columns import SPLIT, conformed, int_column, visible_schema
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange.blocks import Block, BlockWriter, ExchangeInput
from poundlock.tasks.exchange.segment_blocks import read_blocks, write_blocks
from poundlock.tasks.stage import TaskStep


@dataclass(eq=False)
class ExchangeStep(TaskStep):
    """Sends rows to the tasks that have their key groups.

    Args:
        schema: the columns of the rows, the hidden one of event time included where they may have it.
        seen: those whose values the operator makes Python values of.
    """

    to: ExchangeInput
    stage: int
    schema: Any
    columns: tuple[str, ...]
    seen: frozenset[str] = frozenset()

    def begin(self) -> None:
        self._writer = BlockWriter(self.to, hashing)
        self._own = visible_schema(self.schema)
        self._sent = pa.schema([self.schema.field(name) for name in self.columns])
        self._blocks: list[Block] = []
        self.run.exchanges.append(self)

    def process(self, chunk: Chunk, emit: Emit) -> None:
        batch = convert.to_batch(chunk, self._own if isinstance(chunk, Records) else None)
        readable = convert.to_batch(convert.for_python(batch, self._unreadable, self.seen)).batch
        self._blocks += self._writer.add(conformed(readable, self._sent), self.run.place)

    def _unreadable(self, record: Reject) -> None:
        self.run.reject_at(self.to.operator, unreadable_row(self.to.operator, record))

    def blocks(self) -> list[Block]:
        """Return all that was taken; called once, behind the last row."""
        return [*self._blocks, *self._writer.finish()]


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
        self._own = visible_schema(self.schema)
        self.run.segment_exits.append(self)

    def process(self, chunk: Chunk, emit: Emit) -> None:
        rows = convert.to_batch(chunk, self._own if isinstance(chunk, Records) else None).batch
        split = int_column(np.full(rows.num_rows, self.run.place_number, np.int32), pa.int32())
        self._batches.append(conformed(rows.append_column(SPLIT, split), self.schema))

    def blocks(self) -> Iterator[SegmentRows]:
        """Yield what was taken; called once, behind the last row."""
        for block in write_blocks(self._batches, self.schema):
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
        numbers = batch.column(SPLIT).fill_null(-1).to_numpy(zero_copy_only=False)
        rows = batch.drop_columns([SPLIT])
        starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()] if len(numbers) else []
        for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=False):
            number = int(numbers[start])
            place = places[number] if 0 <= number < len(places) else unknown
            yield place, Batch(rows.slice(start, stop - start), NoOrigin(place.source))
