"""What keyed operators emit, as Arrow rows, and back out of the packs in which Spark carries it.

A pack holds rows of one tag; its rows keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from poundlock.formats.chunk import Batch, Chunk, NoOrigin
from poundlock.operators.chain import Emit
from poundlock.plan.packing import PAYLOAD, unpack_rows
from poundlock.plan.tasks import Task
from poundlock.tasks.keyed_output import EVENT_TIME, PairRows, RecordRows, WindowRows, with_time

__all__ = ["PairRows", "RecordRows", "Unpack", "WindowRows", "unpack_task", "with_time"]

TAG = "tag"


@dataclass(slots=True)
class Unpack:
    """The first step of a stage behind a keyed operator: packs come in, rows go on under the tag they were emitted with."""

    def process(self, chunk: Chunk, emit: Emit) -> None:
        """Hand on the rows of each pack."""
        assert isinstance(chunk, Batch)
        tags, payloads = (chunk.batch.column(name).to_pylist() for name in (TAG, PAYLOAD))
        for tag, payload in zip(tags, payloads, strict=True):
            emit(tag, Batch(unpack_rows(payload).drop_columns([EVENT_TIME]), NoOrigin(tag)))


def unpack_task(tag: str, schema: pa.Schema) -> Task:
    """Return the unpacking of one tag's rows as a task of its own, for Spark operators that follow."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for found, payload in zip(batch.column(TAG).to_pylist(), batch.column(PAYLOAD).to_pylist(), strict=True):
                if found == tag:
                    yield unpack_rows(payload).cast(schema)

    return task
