"""Columns that travel beside a user's, and Arrow columns from numpy arrays and back, without a copy where there need be none.

Event time, and the place of a row in its checkpoint, pass through row-wise steps untouched and never reach a user's function, a
user's `*` or a sink. All goes through buffers alone: `pyarrow.array` imports pandas the first time it is called, a second of CPU in
every worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

EVENT_TIME = "__event_time"
SPLIT = "__split"
ROW = "__row"

HIDDEN_TYPES = {
    EVENT_TIME: pa.timestamp("us", "UTC"),  # null where a row has none
    SPLIT: pa.int32(),  # which split of the checkpoint the row was read in, -1 where that is not known
    ROW: pa.int64(),  # its place among the rows of the split
}
HIDDEN = tuple(HIDDEN_TYPES)


def visible(names: Iterable[str]) -> list[str]:
    """Return the columns that are the user's, in their order."""
    return [name for name in names if name not in HIDDEN_TYPES]


def visible_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema without hidden columns."""
    return pa.schema([field for field in schema if field.name not in HIDDEN_TYPES])


def bool_column(values: npt.NDArray[np.bool_]) -> pa.Array:
    """Return flags as a column."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def int_column(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return whole numbers as a column of a type of the same width: of timestamps, for one."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def validity_of(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Return which values of a column are not null; None = all of them."""
    if not array.null_count:
        return None
    bits = array.buffers()[0]
    if bits is None:  # a column of nulls has no buffers at all
        return np.zeros(len(array), np.bool_)
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=array.offset + len(array), bitorder="little")
    return flags[array.offset :].astype(np.bool_)


def numbers_of(array: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Return the values of a column of numbers or timestamps, and which are not null (None = all); a null's value is any.

    Args:
        array: integers, floats or timestamps, dictionary-encoded or not.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    dtype = np.dtype(np.int64) if pa.types.is_timestamp(kind) else np.dtype(kind.to_pandas_dtype())
    data = array.buffers()[1]
    if not len(array) or data is None:
        return np.zeros(len(array), dtype), validity_of(array)
    values = np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)
    return values, validity_of(array)


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of a schema: those that it lacks are null, others that it has are left out."""
    if batch.schema.equals(schema):
        return batch
    names = set(batch.schema.names)
    columns = [
        batch.column(field.name) if field.name in names else pa.nulls(batch.num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema.names).cast(schema)
