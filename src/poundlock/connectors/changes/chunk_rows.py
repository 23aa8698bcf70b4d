"""Rows of a chunk as Arrow columns, put back to what they were at a place of the log, in the order of their keys.

The same rows come in the same order whenever a chunk is read, as its key's values have one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa


def in_key_order(rows: Iterable[pa.RecordBatch], key: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the order of their keys, so that a second reading gives them in the same one."""
    table = pa.Table.from_batches(list(rows), schema)
    ordered = table.sort_by([(name, "ascending") for name in key]).combine_chunks()
    batches = ordered.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def keys_of(rows: pa.RecordBatch, key: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the key of each row."""
    return list(zip(*(rows.column(name).to_pylist() for name in key), strict=True))


def without(batch: pa.RecordBatch, key: Sequence[str], changed: set[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return the rows whose key is none of those that changed."""
    if not changed:
        return batch
    return batch.filter(pa.array([each not in changed for each in keys_of(batch, key)], pa.bool_()))


def as_they_were(
    read: Iterable[pa.RecordBatch], key: Sequence[str], changed: set[tuple[Any, ...]], there: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """Yield rows in the order of their keys, those that were there in the place of those that changed.

    Args:
        read: the rows, batch by batch, in the order of their keys.
        changed: the keys of rows that changed.
        there: those of them that were there.
    """
    there = in_key_order([there], key, there.schema)
    waiting, passed = keys_of(there, key), 0
    for batch in read:
        kept = without(batch, key, changed)
        if not batch.num_rows:
            continue
        last = keys_of(batch.slice(batch.num_rows - 1), key)[0]
        until = passed
        while until < len(waiting) and waiting[until] <= last:
            until += 1
        yield in_key_order([kept, there.slice(passed, until - passed)], key, there.schema) if until > passed else kept
        passed = until
    if passed < len(waiting):
        yield there.slice(passed)
