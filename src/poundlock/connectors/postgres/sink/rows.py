"""Rows as the text of COPY, a whole Arrow batch at a time, and the digest of them.

The digest depends neither on the order of the rows nor on how they are cut into tasks, and is the same in every process.
"""

from __future__ import annotations

import binascii
import io
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from poundlock.connectors.postgres.sink.table import TableColumn
from poundlock.connectors.reconcile import SumDigest
from poundlock.formats.convert import row_values

_OPTIONS = pyarrow.csv.WriteOptions(include_header=False, batch_size=1 << 20)


def prepared_columns(batch: pa.RecordBatch, columns: Sequence[TableColumn]) -> pa.RecordBatch:
    """Return a batch whose text in CSV is what the columns of the table take; nulls stay null."""
    arrays = [_prepared(array, column) for array, column in zip(batch.columns, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def copy_text(batch: pa.RecordBatch) -> bytes:
    """Return the rows as COPY takes them WITH (FORMAT csv): null is nothing, empty text is two quotes."""
    out = io.BytesIO()
    pyarrow.csv.write_csv(batch, out, _OPTIONS)
    return out.getvalue()


class RowDigest(SumDigest):
    """The digest of rows."""

    __slots__ = ()

    def add(self, batch: pa.RecordBatch, size: int) -> None:
        """Add the rows of a batch as `prepared_columns` returned it, which are so many bytes of text."""
        import pandas as pd

        total = np.zeros(batch.num_rows, np.uint64)
        for position, column in enumerate(batch.columns):
            values = _hashable(column)
            hashed = pd.util.hash_array(values, categorize=False)
            if column.null_count:
                hashed = np.where(column.is_null().to_numpy(zero_copy_only=False), np.uint64(position + 1), hashed)
            # A value means something else in another column.
            total = (total * np.uint64(1_000_003) + hashed) ^ np.uint64(0x9E3779B97F4A7C15 * (position + 1) % (1 << 64))
        self._sum += int(total.sum(dtype=np.uint64))
        self.rows += batch.num_rows
        self.bytes += size


def _hashable(column: pa.Array) -> Any:
    """Return a column's values as numpy has them, whatever stands for null."""
    kind, t = column.type, pa.types
    if t.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        kind = column.type
    if t.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (t.is_integer(kind) or t.is_floating(kind)):
        column = column.cast(pa.large_binary())  # as bytes, for text need not be UTF-8 here
        column = column.fill_null(b"") if column.null_count else column
        return column.to_numpy(zero_copy_only=False)
    return (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)


def _prepared(array: pa.Array, column: TableColumn) -> pa.Array:
    kind, t = array.type, pa.types
    if t.is_dictionary(kind):
        return _prepared(array.dictionary_decode(), column)
    if t.is_null(kind):
        return array.cast(pa.string())
    if t.is_nested(kind):
        return _nested(array, column)
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        wide = array.cast(pa.large_binary())
        # The server says which text is not UTF-8; here it may be anything.
        return _hex(wide) if column.base == "bytea" else wide.cast(pa.large_string(), safe=False)
    if t.is_decimal(kind):
        return array.cast(pa.string())
    if t.is_timestamp(kind):
        return array.cast(pa.timestamp("us", None if kind.tz is None else "UTC"), safe=False)
    if t.is_time(kind):
        return array.cast(pa.time64("us"), safe=False)
    if t.is_floating(kind) and kind.bit_width < 64:
        return array.cast(pa.float64()) if column.base != "float4" or kind.bit_width < 32 else array
    return array


def _hex(array: pa.Array) -> pa.Array:
    r"""Return binary values as the text \x…, without a loop over the rows."""
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    first, last = (int(offsets[0]), int(offsets[-1])) if len(array) else (0, 0)
    digits = binascii.hexlify(memoryview(array.buffers()[2])[first:last]) if last > first else b""
    ends = pa.py_buffer(np.ascontiguousarray((offsets - first) * 2)) if len(array) else pa.py_buffer(bytes(8))
    text = pa.Array.from_buffers(pa.large_string(), len(array), [None, ends, pa.py_buffer(digits)])
    text = pc.binary_join_element_wise(pa.scalar("\\x", pa.large_string()), text, pa.scalar("", pa.large_string()))
    return pc.if_else(array.is_null(), pa.scalar(None, pa.large_string()), text) if array.null_count else text


def _nested(array: pa.Array, column: TableColumn) -> pa.Array:
    values = array.to_pylist(maps_as_pydicts="lossy")
    make = _array_text if column.category == "A" else partial(json.dumps, default=_plain, ensure_ascii=False)
    return pa.array([None if value is None else make(value) for value in values], pa.large_string())


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _array_text(values: Sequence[Any]) -> str:
    return "{" + ",".join("NULL" if value is None else _element(value) for value in values) + "}"


def _element(value: Any) -> str:
    text = "\\x" + value.hex() if isinstance(value, bytes) else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def raw_row(batch: pa.RecordBatch, row: int) -> bytes:
    """Return a row for a dead letter: the bytes of the only column `value`, or JSON."""
    record = row_values(batch, row)
    if list(record) == ["value"] and isinstance(record["value"], bytes):
        return bytes(record["value"])
    return json.dumps(record, default=_plain, ensure_ascii=False).encode("utf-8", "surrogateescape")
