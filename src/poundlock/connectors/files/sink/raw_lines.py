"""One column of raw values, whatever form it comes in, as a buffer of lines: the value's bytes and a line end.

A value that cannot be one line is a reason, unless it is JSON, where a raw line break can only be space between tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError
from poundlock.formats.chunk import Batch, Chunk, Lines, NoOrigin, Records, line_ends_in

_BREAK = re.compile(rb"\r?\n")


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows as lines."""

    lines: Lines  # the rows that can be lines
    columns: Batch | Records | None = None  # the same rows in the form they came in, where that was not lines
    index: npt.NDArray[np.int64] | None = None  # for each row its row in the chunk; None = the same
    # rows of the chunk that cannot be lines: reason and value
    bad: Mapping[int, tuple[str, bytes]] = field(default_factory=dict)
    # values of rows in `lines` whose line breaks were replaced
    originals: Mapping[int, bytes] = field(default_factory=dict)


def raw_rows(chunk: Chunk, row: str, valid_json: Callable[[bytes], bool | None]) -> RawRows:
    """Return a column of a chunk as lines; a chunk of lines is taken as it is.

    Whether a value is JSON as it stands `valid_json` says, None where rows are not taken for JSON. Raises DefinitionError where
    there is no such column, or it holds neither bytes nor text.
    """
    if isinstance(chunk, Lines):
        if row != "value":
            raise DefinitionError(f"the rows are lines, which have no column {row!r}", next='write row="value"')
        return RawRows(chunk)
    column = _column(chunk, row)
    if column.null_count == 0:
        lines = _lines(column)
        if line_ends_in(np.frombuffer(lines.data, np.uint8)) == len(column):
            return RawRows(lines, chunk)
    return _careful(chunk, column, valid_json)


def _column(chunk: Batch | Records, row: str) -> pa.Array:
    if isinstance(chunk, Records):
        values = [_bytes(record, row) for record in chunk.rows]
        return pa.array(values, pa.large_binary())
    if row not in chunk.batch.schema.names:
        raise DefinitionError(
            f"the rows have no column {row!r}, only {chunk.batch.schema.names}", next="name a column of the stream"
        )
    column = chunk.batch.column(row)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    if pa.types.is_string(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    raise DefinitionError(
        f"column {row!r} is {kind}, not bytes or text", next='cast it, or drop row= and write format="json"'
    )


def _bytes(record: Mapping[str, Any], row: str) -> bytes | None:
    if row not in record:
        raise DefinitionError(
            f"a record has no column {row!r}, only {list(record)}", next="name a column of the stream"
        )
    value = record[row]
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise DefinitionError(
        f"column {row!r} holds {type(value).__name__}, not bytes or text", next='drop row= and write format="json"'
    )


def _lines(column: pa.Array) -> Lines:
    """Return values without nulls as lines: one pass, the result's buffer is the file's bytes."""
    n = len(column)
    if not n:
        return Lines(memoryview(b""), np.empty(0, np.int64))
    kind = column.type
    joined = pc.binary_join_element_wise(column, pa.scalar(b"", kind), pa.scalar(b"\n", kind))
    width = np.int64 if pa.types.is_large_binary(joined.type) else np.int32
    bounds = np.frombuffer(joined.buffers()[1], width)[joined.offset : joined.offset + n + 1].astype(np.int64)
    data = memoryview(joined.buffers()[2])[int(bounds[0]) : int(bounds[-1])]
    return Lines(data.cast("B"), bounds[1:] - bounds[0] - 1)


def _careful(chunk: Batch | Records, column: pa.Array, valid_json: Callable[[bytes], bool | None]) -> RawRows:
    """As `raw_rows`, value by value: some are null or hold line breaks."""
    bad: dict[int, tuple[str, bytes]] = {}
    originals: dict[int, bytes] = {}
    kept: list[int] = []
    values: list[bytes] = []
    for i, value in enumerate(column.to_pylist()):
        if value is None:
            bad[i] = ("value is null", b"")
            continue
        if b"\n" in value:
            good = valid_json(value)
            if not good:
                bad[i] = ("not JSON" if good is False else "value has a line break", value)
                continue
            originals[len(kept)] = value
            value = _BREAK.sub(b" ", value)
        kept.append(i)
        values.append(value)
    index = np.array(kept, np.int64)
    lines = _lines(pa.array(values, pa.large_binary()))
    if isinstance(chunk, Batch):
        columns: Batch | Records = Batch(chunk.batch.take(pa.array(index)), NoOrigin())
    else:
        columns = Records([chunk.rows[i] for i in kept])
    return RawRows(lines, columns, index, bad, originals)
