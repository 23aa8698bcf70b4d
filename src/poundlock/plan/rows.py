"""Arrow batches from Spark as chunks, and back: hidden columns carry each row's origin and records that could not be decoded.

Hidden columns begin with two underscores and never reach a user's function or a sink.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.chunk import Batch, Chunk, KafkaOrigin, Lines, NoOrigin, Origin
from poundlock.formats.origin import SubsetOrigin
from poundlock.formats.reject import Reject
from poundlock.tasks.keyed_output import EVENT_TIME

__all__ = [
    "BAD",
    "EVENT_TIME",
    "HIDDEN",
    "OFFSET",
    "PARTITION",
    "SPLIT",
    "TOPIC",
    "arrow_rows",
    "bad_batch",
    "chunk_of",
    "lines_of",
    "value_bytes",
    "with_hidden",
]

BAD = "__bad"
TOPIC, PARTITION, OFFSET = "__topic", "__partition", "__offset"
SPLIT = "__split"  # the slot of the split a row was read in, see `plan/event_time.py`
HIDDEN = (BAD, TOPIC, PARTITION, OFFSET, SPLIT, EVENT_TIME)
_KINDS = {PARTITION: pa.int32(), OFFSET: pa.int64(), SPLIT: pa.int32()}


def record_batch(texts: Sequence[str]) -> pa.RecordBatch:
    """Return texts as the one column `record`.

    Built from buffers: `pa.array` would import pandas, a second of CPU in every worker, for a few short texts.
    """
    data = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int32)
    column = pa.StringArray.from_buffers(len(data), pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(data)))
    return pa.RecordBatch.from_arrays([column], ["record"])


def lines_of(batch: pa.RecordBatch, topic: str | None) -> Chunk:
    r"""Return rows whose `value` had a "\n" put behind it, as Lines over Arrow's own buffer.

    Rows without a value, or with a line break inside, make it a Batch with the added "\n" taken off again.
    """
    column = batch.column("value")
    origin = _origin(batch, topic)
    rows = len(column)
    if rows == 0:
        return Batch(batch.select(["value"]), origin)
    if column.null_count == 0:
        offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + rows + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        data = memoryview(column.buffers()[2])[first:last]
        if np.count_nonzero(np.frombuffer(data, np.uint8) == 10) == rows:
            return Lines(data, offsets[1:].astype(np.int64) - (first + 1), origin)
    values = pc.binary_slice(column, 0, -1)
    return Batch(pa.RecordBatch.from_arrays([values], ["value"]), origin)


def value_bytes(chunk: Chunk) -> int | None:
    """Return how large the values of rows are; None where there is no such column of bytes."""
    if isinstance(chunk, Lines):
        return chunk.data.nbytes - len(chunk)  # without the line ends, which are ours
    if not isinstance(chunk, Batch) or "value" not in chunk.batch.schema.names:
        return None
    column = chunk.batch.column("value")
    return int(pc.sum(pc.binary_length(column)).as_py() or 0) if pa.types.is_binary(column.type) else None


def _origin(batch: pa.RecordBatch, topic: str | None, source: str = "") -> Origin:
    names = batch.schema.names
    if PARTITION not in names or OFFSET not in names:
        return SplitOrigin(source, _numbers(batch.column(SPLIT))) if SPLIT in names else NoOrigin(source)
    place: str | Sequence[str] = topic or ""
    if topic is None and TOPIC in names:
        place = _LazyTopics(batch.column(TOPIC))
    partition, offset = _numbers(batch.column(PARTITION)), _numbers(batch.column(OFFSET))
    return KafkaOrigin(place, partition, offset)


def _numbers(column: pa.Array) -> Any:
    """Return a column as an array, -1 for null: in a union some rows are from Kafka and others are not."""
    return (column.fill_null(-1) if column.null_count else column).to_numpy(zero_copy_only=False)


@dataclass(frozen=True, slots=True)
class SplitOrigin:
    """Rows of a split-planned source behind one of Spark's operators: the slot of each row's split is known, no more.

    Args:
        source: the source.
        slots: a number a row, -1 where it is not known.
    """

    source: str
    slots: Any

    def at(self, row: int) -> Mapping[str, Any]:
        return {"source": self.source} if self.source else {}


class _LazyTopics(Sequence[str]):
    """Topic per row, looked up only where a dead letter needs it."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, i: Any) -> Any:
        return self._column[int(i)].as_py()


def chunk_of(batch: pa.RecordBatch, reject: Callable[[Reject], None], source: str, topic: str | None) -> Chunk:
    """Return Spark's rows as a Batch without hidden columns; records that came as bad go to `reject`."""
    names = batch.schema.names
    if BAD in names:
        bad = batch.column(BAD)
        if bad.null_count < len(bad):
            for text in bad.drop_null().to_pylist():
                reject(_bad_record(text))
            batch = batch.filter(pc.is_null(bad))
    visible = [name for name in names if name not in HIDDEN]
    return Batch(batch.select(visible), _origin(batch, topic, source))


def shared_chunks(
    batch: pa.RecordBatch, reject: Callable[[Reject], None], source: str, topic: str | None, columns: Sequence[str]
) -> tuple[int, list[Chunk]]:
    """Return the number of good rows, and one chunk per branch, out of rows that hold a struct per branch, null where the branch filtered the row."""
    names = batch.schema.names
    if BAD in names:
        bad = batch.column(BAD)
        for text in bad.drop_null().to_pylist():
            reject(_bad_record(text))
        if bad.null_count < len(bad):
            batch = batch.filter(pc.is_null(bad))
    hidden = [name for name in names if name in HIDDEN and name != BAD]
    chunks: list[Chunk] = []
    for name in columns:
        column = batch.column(name)
        part = batch if not column.null_count else batch.filter(pc.is_valid(column))
        fields = part.column(name).flatten()
        schema = batch.schema.field(name).type
        visible = [(f.name, a) for f, a in zip(schema, fields, strict=True) if f.name not in HIDDEN]
        rows = pa.RecordBatch.from_arrays([a for _, a in visible], [n for n, _ in visible])
        chunks.append(Batch(rows, _origin(part.select(hidden), topic, source)))
    return int(batch.num_rows), chunks


def _bad_record(text: str) -> Reject:
    fields = json.loads(text)
    return Reject(fields["reason"], base64.b64decode(fields["value"]), fields["where"])


def with_hidden(chunk: Batch, hidden: Sequence[str]) -> pa.RecordBatch:
    """Return a Batch's columns followed by the hidden ones asked for, filled from its origin where it is known."""
    arrays, names, rows = list(chunk.batch.columns), list(chunk.batch.schema.names), len(chunk)
    origin, index = _kafka_place(chunk.origin)
    for name in hidden:
        if name == SPLIT:
            array = _slots(chunk.origin, rows)
        elif name == BAD or origin is None:
            array = pa.nulls(rows, _KINDS.get(name, pa.string()))
        elif name == PARTITION:
            array = pa.array(origin.partition[index], pa.int32())
        elif name == OFFSET:
            array = pa.array(origin.offset[index], pa.int64())
        else:
            topic = origin.topic
            every = range(len(origin.offset))[index] if isinstance(index, slice) else index
            array = pa.array([topic] * rows if isinstance(topic, str) else [topic[int(i)] for i in every], pa.string())
        arrays.append(array)
        names.append(name)
    return pa.RecordBatch.from_arrays(arrays, names)


def _kafka_place(origin: Origin) -> tuple[KafkaOrigin | None, Any]:
    """Return the Kafka origin behind an origin, and which of its rows are meant."""
    if isinstance(origin, KafkaOrigin):
        return origin, slice(None)
    if isinstance(origin, SubsetOrigin) and isinstance(origin.of, KafkaOrigin):
        return origin.of, np.asarray(origin.index, np.int64)
    return None, slice(None)


def _slots(origin: Origin, rows: int) -> pa.Array:
    """Return the slots of an origin's rows, null where none is known."""
    of, index = (origin.of, origin.index) if isinstance(origin, SubsetOrigin) else (origin, None)
    if not isinstance(of, SplitOrigin):
        return pa.nulls(rows, pa.int32())
    slots = of.slots if index is None else of.slots[np.asarray(index, np.int64)]
    return pa.array(slots, pa.int32())


def bad_batch(bad: Sequence[Reject], schema: pa.Schema, source: str) -> pa.RecordBatch:
    """Return undecodable records as rows that are null but for the hidden column BAD; `schema` holds all columns."""
    texts = [
        json.dumps(
            {
                "reason": r.reason,
                "value": base64.b64encode(r.value).decode("ascii"),
                "where": {"source": source, **r.where},
            },
            default=str,
        )
        for r in bad
    ]
    arrays = [pa.array(texts, pa.string()) if f.name == BAD else pa.nulls(len(texts), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def arrow_rows(
    chunks: Iterator[Chunk], schema: pa.Schema, hidden: Sequence[str], bad: list[Reject], source: str
) -> Iterator[pa.RecordBatch]:
    """Yield chunks as Spark rows of `schema` plus hidden columns, and what gathered in `bad` as rows of their own."""
    from poundlock.formats import convert

    full = schema
    for name in hidden:
        full = full.append(pa.field(name, _KINDS.get(name, pa.string())))
    for chunk in chunks:
        if len(chunk):
            yield with_hidden(convert.to_batch(chunk, schema), hidden).cast(full)
        if bad:
            yield bad_batch(bad, full, source)
            bad.clear()
    if bad:
        yield bad_batch(bad, full, source)
        bad.clear()
