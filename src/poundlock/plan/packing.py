"""Rows on their way to a keyed operator: packed by key group before the shuffle, so that Spark moves a few buffers and no rows.

The rows of a key keep the order they had in their source partition, and the packs of a group have places to put them in order
by, the same ones when a batch is delivered again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from poundlock.operators.keyed.keys import group_of
from poundlock.plan.rows import OFFSET, PARTITION, TOPIC
from poundlock.plan.tasks import Task
from poundlock.tasks.keyed_input import check_keys, key_values

__all__ = [
    "CONTROL",
    "PACKED",
    "Packing",
    "check_keys",
    "groups_of",
    "key_values",
    "pack_bytes",
    "pack_task",
    "unpack_rows",
]

_PLACE = (TOPIC, PARTITION, OFFSET)
GROUP, SIDE, PLACE, PAYLOAD = "group", "side", "place", "payload"
PACKED = f"{GROUP} int, {SIDE} int, {PLACE} string, {PAYLOAD} binary"
CONTROL = -1  # the side of the row that tells a group the time
_SCHEMA = pa.schema([(GROUP, pa.int32()), (SIDE, pa.int32()), (PLACE, pa.string()), (PAYLOAD, pa.binary())])


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How the rows of one input are packed.

    Args:
        keys: columns that are the key.
        time: column with the event time, a timestamp; None where rows have none.
        groups: number of key groups.
        side: which input of the operator: 0, 1.
        everywhere: whether each row goes to every group, as broadcast rows do.
        spread: whether rows without a key may be in any group.
    """

    keys: Sequence[str]
    time: str | None
    groups: int
    side: int = 0
    everywhere: bool = False
    spread: bool = False


def pack_task(packing: Packing) -> Task:
    """Return the packing as a task over the rows of one input; hidden columns say where they come from and stay behind."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        subtask = context.partitionId() if context is not None else 0
        for number, batch in enumerate(batches):
            if batch.num_rows:
                yield _packed(batch, packing, _place(batch, subtask, number))

    return task


def _place(batch: pa.RecordBatch, subtask: int, number: int) -> str:
    """Return what the pack is put in order by: the place of its first row in the source, where Spark tells it.

    Several rows may be made of one record; the batches they are in stay in order by their numbers.
    """
    if {TOPIC, PARTITION, OFFSET} <= set(batch.schema.names):
        topic, partition, offset = (batch.column(name)[0].as_py() for name in (TOPIC, PARTITION, OFFSET))
        if partition is not None and offset is not None:
            return f"{topic}/{partition:010d}/{offset:020d}/{number:010d}"
    return f"{subtask:010d}/{number:010d}"


def _packed(batch: pa.RecordBatch, packing: Packing, place: str) -> pa.RecordBatch:
    rows = batch.select([name for name in batch.schema.names if name not in _PLACE])
    if packing.everywhere:
        payload = pack_bytes(rows)
        return _rows([(group, payload) for group in range(packing.groups)], packing.side, place)
    if packing.spread:
        groups = np.arange(rows.num_rows, dtype=np.int32) % packing.groups
    else:
        groups = groups_of([rows.column(name) for name in packing.keys], rows.num_rows, packing.groups)
    order = np.argsort(groups, kind="stable")
    found, starts = np.unique(groups[order], return_index=True)
    ordered = rows.take(pa.array(order))
    ends = [*starts[1:].tolist(), rows.num_rows]
    packs = [
        (int(group), pack_bytes(ordered.slice(start, end - start)))
        for group, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True)
    ]
    return _rows(packs, packing.side, place)


def _rows(packs: Sequence[tuple[int, bytes]], side: int, place: str) -> pa.RecordBatch:
    columns = [[group for group, _ in packs], [side] * len(packs), [place] * len(packs), [data for _, data in packs]]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def pack_bytes(batch: pa.RecordBatch) -> bytes:
    """Return rows as a pack."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpack_rows(payload: bytes) -> pa.RecordBatch:
    """Return the rows of a pack."""
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


def groups_of(columns: Sequence[pa.Array], rows: int, groups: int) -> npt.NDArray[np.int32]:
    """Return the key group of each row. Each different key is looked at once."""
    if not columns:
        return np.zeros(rows, np.int32)
    if len(columns) == 1 and not pa.types.is_nested(columns[0].type):
        encoded = columns[0].dictionary_encode(null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        keys = key_values([encoded.dictionary])
        of_key = np.fromiter((group_of(key, groups) for key in keys), np.int32, len(keys))
        found: npt.NDArray[np.int32] = of_key[encoded.indices.to_numpy(zero_copy_only=False)]
        return found
    known: dict[Any, int] = {}
    found = np.empty(rows, np.int32)
    for row, key in enumerate(key_values(columns)):
        group = known.get(key)
        if group is None:
            group = known[key] = group_of(key, groups)
        found[row] = group
    return found
