"""The functions Spark runs in the tasks, each over the Arrow batches of one task; they travel with the plan.

A sink stage consumes its rows whole even where nothing is to be written: Spark demands that of stateful plans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa
from pyspark import TaskContext

from poundlock.connectors.base import ReaderContext, SplitSource
from poundlock.formats.chunk import Chunk
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Chain, Edge, Emit, Operator, Step
from poundlock.plan.rows import BAD, SPLIT, arrow_rows, chunk_of, lines_of, record_batch, shared_chunks, value_bytes
from poundlock.plan.splits import places, read_splits, task_splits
from poundlock.plan.stage import PROPERTY, SPLITS_READ, Stage, TaskIdentity, run_together

__all__ = ["RECORD", "Task", "decode_task", "fused_task", "python_task", "shared_task", "sink_task", "source_task"]

RECORD = "record string"
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def directive_of_task() -> dict[str, Any]:
    """Return what the driver says of the checkpoint this task belongs to."""
    context = TaskContext.get()
    text = context.getLocalProperty(PROPERTY) if context is not None else None
    if text is None:
        raise RuntimeError("this plan was started outside a poundlock job")
    directive: dict[str, Any] = json.loads(text)
    return directive


def task_identity() -> TaskIdentity:
    """Return the identity of this attempt."""
    context = TaskContext.get()
    return TaskIdentity.of(context.partitionId() if context is not None else 0)


def fused_task(stage: Stage, source: SplitSource, use: str, want: Literal["batch", "records"]) -> Task:
    """Return a source's reader and a sink stage as one task over the ticker's rows."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        directive = directive_of_task()
        splits = task_splits(batches, use, directive)
        if splits and not directive["decided"]:
            texts = list(stage.run(read_splits(source, splits, want), directive, task_identity()))
            texts.append(json.dumps({"t": SPLITS_READ, "head": stage.source, "count": len(splits)}))
            yield record_batch(texts)

    return task


def source_task(source: SplitSource, name: str, use: str, slots: range | None = None) -> Task:
    """Return a source's reader as a task of its own over the ticker's rows, for Spark operators that follow.

    `slots`: rows say in the hidden column SPLIT in which split they were read, by one of these numbers.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        directive = directive_of_task()
        splits = task_splits(batches, use, directive)
        bad: list[Reject] = []
        if slots is None:
            chunks = read_splits(source, splits, "batch")(bad.append)
            yield from arrow_rows(chunks, source.schema(), [BAD], bad, name)
            return
        place = places(use, directive) if splits else {}
        reader = source.reader(ReaderContext(reject=bad.append, want="batch"))
        for split in splits:
            slot = pa.scalar(slots[place[split.id] % len(slots)], pa.int32())
            for batch in arrow_rows(reader.read(split), source.schema(), [BAD], bad, name):
                yield batch.append_column(SPLIT, pa.repeat(slot, batch.num_rows))

    return task


def sink_task(stage: Stage, *, as_lines: bool, topic: str | None, sized: bool = False) -> Task:
    """Return a sink stage as a task. `as_lines`: values have a line end behind them and nothing else is needed.

    `sized`: the rows are as the source has them, so that the size of their values is what was read.
    """

    def read(batches: Iterator[pa.RecordBatch], rejects: Sequence[Callable[[Reject], None]]) -> _Pieces:
        for batch in batches:
            chunk = lines_of(batch, topic) if as_lines else chunk_of(batch, rejects[0], stage.source, topic)
            yield len(chunk), [chunk]

    return _stages([stage], read, value_bytes if sized else None)


def shared_task(stages: Sequence[Stage], source: str, topic: str | None, columns: Sequence[str]) -> Task:
    """Return several sink stages as one task over rows that hold a struct column for each."""

    def read(batches: Iterator[pa.RecordBatch], rejects: Sequence[Callable[[Reject], None]]) -> _Pieces:
        def reject(record: Reject) -> None:
            for each in rejects:
                each(record)

        for batch in batches:
            yield shared_chunks(batch, reject, source, topic, columns)

    return _stages(stages, read)


_Pieces = Iterator[tuple[int, list[Chunk]]]


def _stages(
    stages: Sequence[Stage],
    read: Callable[[Iterator[pa.RecordBatch], Sequence[Callable[[Reject], None]]], _Pieces],
    size: Callable[[Chunk], int | None] | None = None,
) -> Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        directive = directive_of_task()
        if directive["decided"]:
            for _ in batches:
                pass
            return
        identities = [task_identity() for _ in stages]
        texts = list(run_together(stages, lambda rejects: read(batches, rejects), directive, identities, size))
        if texts:
            yield record_batch(texts)

    return task


def decode_task(decoder: Any, schema: pa.Schema, hidden: Sequence[str], source: str, topic: str | None) -> Task:
    """Return the decoding of `value` as a task of its own, for Spark operators that need the columns."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bad: list[Reject] = []
        chunks = (decoder.decode(chunk_of(batch, bad.append, source, topic), bad.append, "batch") for batch in batches)
        yield from arrow_rows(chunks, schema, hidden, bad, source)

    return task


class _Last:
    """The end of a chain: keeps what comes until it is taken."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def process(self, chunk: Chunk, emit: Emit) -> None:
        self.chunks.append(chunk)


def python_task(operator: Operator, tag: str, schema: pa.Schema, name: str, hidden: Sequence[str]) -> Task:
    """Return a user's Python function as a task of its own, for Spark operators that follow.

    Args:
        operator: runs the function.
        tag: the output wanted.
        schema: of that output.
        name: of the operator.
        hidden: the hidden columns of its rows, BAD among them.
    """

    def chunks(batches: Iterator[pa.RecordBatch], bad: list[Reject]) -> Iterator[Chunk]:
        last = _Last()
        chain = Chain([Step(name, operator, []), Step("", last, [Edge(name, tag)])], bad.append)
        try:
            for batch in batches:
                chunk = chunk_of(batch, bad.append, name, None)
                if len(chunk):
                    chain.push(chunk)
                yield from last.chunks or [chunk_of(batch.slice(0, 0), bad.append, name, None)]
                last.chunks.clear()
        finally:
            chain.close()

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bad: list[Reject] = []
        yield from arrow_rows(chunks(batches, bad), schema, hidden, bad, name)

    return task
