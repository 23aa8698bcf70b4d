"""Rows on their way into a Spark segment and out of it again: as Arrow blocks, with the split that each row was read in.

Row-wise SQL keeps that split, so that event time behind a segment is still told apart by partition. A DataFrame function hides it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats import convert
from poundlock.formats.chunk import Batch, Chunk, NoOrigin, Records
from poundlock.operators.chain import Emit
from poundlock.plan.hidden import SPLIT, visible_schema
from poundlock.tasks.columns import conformed, int_column
from poundlock.tasks.event_time.split_times import SplitPlace
from poundlock.tasks.exchange.segment_blocks import read_blocks, write_blocks
from poundlock.tasks.stage import StageRun, TaskStep


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """A block of rows for a segment: the input they are of, and an Arrow IPC stream."""

    input: str
    block: bytes


@dataclass(frozen=True, slots=True)
class ToSegment(TaskStep):
    """Sends rows into a Spark segment.

    Args:
        input: the step whose rows they are.
        stage: number of the stage behind the segment.
        schema: the columns, hidden ones included.
    """

    input: str
    stage: int
    schema: Any

    def open(self, run: StageRun, step: str) -> RunningToSegment:
        """Return the running step."""
        running = RunningToSegment(self, run)
        run.segment_exits.append(running)
        return running


class RunningToSegment:
    """A way into a segment, within one attempt of a task."""

    def __init__(self, step: ToSegment, run: StageRun) -> None:
        self.stage = step.stage
        self._step, self._run = step, run
        self._batches: list[pa.RecordBatch] = []

    def process(self, chunk: Chunk, emit: Emit) -> None:
        """Take rows."""
        schema = self._step.schema
        own = visible_schema(schema)
        rows = convert.to_batch(chunk, own if isinstance(chunk, Records) else None).batch
        split = int_column(np.full(rows.num_rows, self._run.place_number, np.int32), pa.int32())
        self._batches.append(conformed(rows.append_column(SPLIT, split), schema))

    def blocks(self) -> Iterator[SegmentRows]:
        """Yield what was taken; called once, behind the last row."""
        for block in write_blocks(self._batches, self._step.schema):
            yield SegmentRows(self._step.input, bytes(block))


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
