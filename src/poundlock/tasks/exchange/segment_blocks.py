"""What tasks do at the edges of a Spark segment: blocks of Arrow rows become Spark's rows, and Spark's rows blocks.

A block is an Arrow IPC stream as bytes. Rows keep their order within a partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyarrow import ipc

BLOCK = "block"
NUMBER = "number"
BLOCK_BYTES = 4 << 20


def read_blocks(block: bytes | pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a block, without copying their columns."""
    yield from ipc.open_stream(pa.py_buffer(block))


def write_blocks(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, block_bytes: int = BLOCK_BYTES
) -> Iterator[pa.Buffer]:
    """Yield batches as blocks, columns cast to a schema; nothing where there are no rows.

    Args:
        block_bytes: a block ends with the batch that makes it so large, in bytes.
    """
    sink = writer = None
    for batch in batches:
        if not batch.num_rows:
            continue
        if writer is None:
            sink = pa.BufferOutputStream()
            writer = ipc.new_stream(sink, schema)
        writer.write_batch(batch if batch.schema.equals(schema) else batch.cast(schema))
        assert sink is not None
        if sink.tell() >= block_bytes:
            writer.close()
            yield sink.getvalue()
            sink = writer = None
    if writer is not None and sink is not None:
        writer.close()
        yield sink.getvalue()


def unpack_blocks(batches: Iterable[pa.RecordBatch], *, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the blocks in the one column of some batches, as columns of a schema."""
    for outer in batches:
        for block in outer.column(0):
            for batch in read_blocks(block.as_buffer()):
                yield batch if batch.schema.equals(schema) else batch.cast(schema)


def pack_blocks(batches: Iterable[pa.RecordBatch], *, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield some rows as batches of one block each; the columns are cast to a schema."""
    for block in write_blocks(batches, schema):
        yield pa.RecordBatch.from_arrays([binary_column(block)], [BLOCK])


def pack_numbered_blocks(batches: Iterable[pa.RecordBatch], *, schemas: list[pa.Schema]) -> Iterator[pa.RecordBatch]:
    """Yield rows of several outputs as numbered blocks. Column i is a struct: the row of output i, null where that has none."""
    kept: list[list[pa.RecordBatch]] = [[] for _ in schemas]
    sizes = [0] * len(schemas)
    for batch in batches:
        for number in range(len(schemas)):
            rows = _rows(batch.column(number))
            kept[number].append(rows)
            sizes[number] += rows.nbytes
            if sizes[number] >= BLOCK_BYTES:
                yield from _numbered(number, kept[number], schemas[number])
                kept[number], sizes[number] = [], 0
    for number, schema in enumerate(schemas):
        yield from _numbered(number, kept[number], schema)


def _rows(column: pa.StructArray) -> pa.RecordBatch:
    """Return the rows of a column of structs that are there."""
    present = column.drop_null() if column.null_count else column
    return pa.RecordBatch.from_arrays(present.flatten(), schema=pa.schema(list(present.type)))


def _numbered(number: int, batches: list[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for block in write_blocks(batches, schema):
        numbers = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(np.int32(number).tobytes())])
        yield pa.RecordBatch.from_arrays([numbers, binary_column(block)], [NUMBER, BLOCK])


def binary_column(block: pa.Buffer) -> pa.Array:
    """Return one value as a column; `pa.array` would import pandas."""
    offsets = np.array([0, block.size], np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets.tobytes()), block])
