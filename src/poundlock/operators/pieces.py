"""Rows cut into pieces that are bounded in rows and in bytes, so that memory does not follow how wide rows are.

A row is never cut: one that is larger than a piece may be is a piece by itself. Bytes are those of the content: the places of texts and
lists, and what they hold; of a column in dictionary form its codes alone, for each piece shares the dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import Numbers, ends_in, is_binary, is_text

PIECE_ROWS = 65_536
PIECE_BYTES = 32 << 20
BATCH_BYTES = 16 << 20  # of what is read of a file at a time
_UNKNOWN = 16  # bytes that a value of a type without a known layout counts as


def content_bytes(columns: Sequence[pa.Array]) -> int:
    """Return how many bytes the values of some columns have; no value is looked at."""
    return sum(map(_column_bytes, columns))


def pieces(
    columns: Sequence[pa.Array], *, most_rows: int = PIECE_ROWS, most_bytes: int = PIECE_BYTES
) -> Iterator[tuple[int, int]]:
    """Yield the first row and the number of rows of pieces that some columns are cut into, in order.

    Args:
        columns: of one length; none = no rows.
        most_rows: that a piece has.
        most_bytes: that a piece of several rows has.
    """
    rows = len(columns[0]) if columns else 0
    narrow = content_bytes(columns) <= most_bytes
    for first in range(0, rows, most_rows):
        count = min(most_rows, rows - first)
        yield from [(first, count)] if narrow else _halves(columns, first, count, most_bytes)


def _halves(columns: Sequence[pa.Array], first: int, count: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    if count == 1 or content_bytes([column.slice(first, count) for column in columns]) <= most_bytes:
        yield first, count
        return
    half = count // 2
    yield from _halves(columns, first, half, most_bytes)
    yield from _halves(columns, first + half, count - half, most_bytes)


def slices(
    rows: pa.RecordBatch, *, most_rows: int = PIECE_ROWS, most_bytes: int = PIECE_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in pieces, see `pieces`, without a copy."""
    if not rows.num_columns:
        return
    for first, count in pieces(rows.columns, most_rows=most_rows, most_bytes=most_bytes):
        yield rows if count == rows.num_rows else rows.slice(first, count)


def pieces_of_places(
    columns: Sequence[pa.Array], places: Numbers, *, most_rows: int = PIECE_ROWS, most_bytes: int = PIECE_BYTES
) -> Iterator[slice]:
    """Yield which places belong to one piece, where rows are taken by their places, in any order and often.

    It looks at the length of each row: the rows that are taken may be the widest ones alone.

    Args:
        columns: what rows are taken from.
        places: of the rows that are taken.
        most_rows, most_bytes: see `pieces`.
    """
    if sum(map(_widest, columns)) * most_rows <= most_bytes:
        yield from (slice(first, min(first + most_rows, len(places))) for first in range(0, len(places), most_rows))
        return
    ends, first = np.cumsum(np.diff(_total(columns))[places]), 0
    while first < len(places):
        before = int(ends[first - 1]) if first else 0
        after = max(int(np.searchsorted(ends, before + most_bytes, "right")), first + 1)
        after = min(after, first + most_rows)
        yield slice(first, after)
        first = after


def rows_of_row_group(group: Any) -> int:
    """Return how many rows of a row group of a Parquet file are read at a time: some 16 MB, for rows may hold whole documents."""
    return rows_at_a_time(group.total_byte_size, group.num_rows)


def rows_at_a_time(size: int, rows: int) -> int:
    """Return how many of so many rows of a size, bytes, are read at a time: some 16 MB, at least one."""
    mean = size / max(rows, 1)
    return max(1, min(PIECE_ROWS, int(BATCH_BYTES / max(mean, 1))))


# -- how wide columns are ----------------------------------------------------------------------------------------------


def _column_bytes(column: pa.Array) -> int:
    kind, rows = column.type, len(column)
    if is_text(kind) or is_binary(kind):
        first, last = _span(column)
        return last - first + 4 * rows
    if _is_list(kind):
        first, last = _span(column)
        return _column_bytes(column.values.slice(first, last - first)) + 4 * rows
    if pa.types.is_struct(kind):
        return sum(_column_bytes(column.field(number)) for number in range(kind.num_fields))
    return rows * _fixed_width(kind)


def _widest(column: pa.Array) -> int:
    """Return how many bytes a value of a column has at most; there may be none with so many."""
    kind = column.type
    if not len(column):
        return 0
    if is_text(kind) or is_binary(kind):
        return int(np.diff(_bounds(column)).max(initial=0)) + 4
    if _is_list(kind):
        ends = _bounds(column)
        first, last = int(ends[0]), int(ends[-1])
        return int(np.diff(ends).max(initial=0)) * _widest(column.values.slice(first, last - first)) + 4
    if pa.types.is_struct(kind):
        return sum(_widest(column.field(number)) for number in range(kind.num_fields))
    return _fixed_width(kind)


def _total(columns: Sequence[pa.Array]) -> Numbers:
    """Return how many bytes some columns have up to each row, and to the end."""
    total = np.zeros(len(columns[0]) + 1, np.int64)
    for column in columns:
        total += _up_to(column)
    return total


def _up_to(column: pa.Array) -> Numbers:
    kind, count = column.type, np.arange(len(column) + 1)
    if not len(column):
        return count
    if is_text(kind) or is_binary(kind):
        ends = ends_in(column)
        ends -= ends[0]
        ends += 4 * count
        return ends
    if _is_list(kind):
        ends = ends_in(column)
        items = column.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
        within: Numbers = _up_to(items)[ends - ends[0]]
        return within + 4 * count
    if pa.types.is_struct(kind):
        return _total([column.field(number) for number in range(kind.num_fields)]) if kind.num_fields else 0 * count
    return count * _fixed_width(kind)


def _span(column: pa.Array) -> tuple[int, int]:
    """Return where the first of some texts, byte strings or lists begins and the last one ends."""
    ends = _bounds(column)
    return int(ends[0]), int(ends[-1])


def _bounds(column: pa.Array) -> npt.NDArray[Any]:
    """Return where each text, byte string or list begins, and the last one ends, as it lies in memory."""
    data, kind = column.buffers()[1], column.type
    if data is None or not len(column):
        return np.zeros(1, np.int64)
    wide = pa.types.is_large_list(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    ends: npt.NDArray[Any] = np.frombuffer(data, np.int64 if wide else np.int32)
    return ends[column.offset : column.offset + len(column) + 1]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


def _fixed_width(kind: pa.DataType) -> int:
    """Return how many bytes a value of a type has whose values all have as many."""
    if pa.types.is_dictionary(kind):
        return int(kind.index_type.bit_width) // 8
    if pa.types.is_null(kind):
        return 0
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return _UNKNOWN
