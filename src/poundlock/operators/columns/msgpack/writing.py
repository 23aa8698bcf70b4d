"""Columns as bytes of msgpack, a value of each row in each: what state keeps of a row is put together from such parts.

A part is one of three: the same bytes in every row; values with as many bytes in each; byte strings of any length. Parts of the first
two sorts that stand side by side are written into one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags, Numbers, bytes_scalar, ends_in, is_text, valid_in
from poundlock.operators.columns.msgpack.tags import (
    BINARIES,
    FALSE,
    LIST,
    LISTS,
    LONG_MOST,
    MAP,
    MAPS,
    NIL,
    SHORT_MOST,
    SHORT_TEXT,
    SHORT_TEXT_MOST,
    TEXTS,
)

_Cells = npt.NDArray[np.uint8]
Part: TypeAlias = "bytes | Fixed | pa.Array"


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value of one width for each row, behind the same bytes.

    Attributes:
        head: the bytes before each value.
        numbers: the values.
        dtype: how numpy calls them as they are to be written.
    """

    head: bytes
    numbers: npt.NDArray[Any]
    dtype: str

    def __len__(self) -> int:
        return len(self.head) + np.dtype(self.dtype).itemsize

    def write(self, cells: _Cells, at: int) -> None:
        """Write the values into a matrix with a row for each, from a column on."""
        cells[:, at : at + len(self.head)] = np.frombuffer(self.head, np.uint8)
        np.ndarray((len(cells),), self.dtype, cells, at + len(self.head), cells.strides[:1])[:] = self.numbers

    def or_nil(self, valid: Flags | None) -> Part:
        """Return the values, with nil where there is none; `valid` says which there are, None = all."""
        if valid is None:
            return self
        (values,) = _together([self], len(self.numbers))
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
        held = pa.Array.from_buffers(values.type, len(values), [bits, *values.buffers()[1:]])
        part: Part = pc.fill_null(held, bytes_scalar(bytes([NIL])))
        return part


def list_head(count: int) -> bytes:
    """Return what a list of so many begins with, up to 65,535."""
    return bytes([LIST + count]) if count <= SHORT_MOST else bytes([LISTS[2]]) + count.to_bytes(2, "big")


def map_head(count: int) -> bytes:
    """Return what a map of so many begins with, up to 65,535."""
    return bytes([MAP + count]) if count <= SHORT_MOST else bytes([MAPS[2]]) + count.to_bytes(2, "big")


def written(parts: Sequence[Part], count: int) -> pa.Array:
    """Return the parts of each of so many rows one behind the other, large_binary; null where one of them is."""
    pieces: list[pa.Array] = []
    beside: list[bytes | Fixed] = []
    for part in parts:
        if isinstance(part, pa.Array):
            pieces += [*_together(beside, count), part]
            beside = []
        else:
            beside.append(part)
    pieces += _together(beside, count)
    if len(pieces) == 1:
        return pieces[0]
    return pc.binary_join_element_wise(*pieces, bytes_scalar(b""))


def _together(beside: Sequence[bytes | Fixed], count: int) -> list[pa.Array]:
    """Return parts with as many bytes in each row as one; none where there are none."""
    width = sum(map(len, beside))
    if not width:
        return []
    cells, at = np.empty((count, width), np.uint8), 0
    for part in beside if count else ():
        if isinstance(part, bytes):
            cells[:, at : at + len(part)] = np.frombuffer(part, np.uint8)
        else:
            part.write(cells, at)
        at += len(part)
    return [_large_binary(cells.reshape(-1), np.arange(count + 1, dtype=np.int64) * width)]


def flags(values: Flags, valid: Flags | None) -> Part:
    """Return truth values, with nil where there is none; `valid` says which there are, None = all."""
    tags = (FALSE + values).astype(np.uint8)
    return Fixed(b"", tags if valid is None else np.where(valid, tags, np.uint8(NIL)), "u1")


def texts(column: pa.Array) -> list[Part]:
    """Return what texts or byte strings begin with, its length in as few bytes as can be, and what they are; nil for a null."""
    valid = valid_in(column)
    lengths = np.diff(ends_in(column)) if len(column) else np.empty(0, np.int64)
    lengths = lengths if valid is None else np.where(valid, lengths, 0)
    content = column.cast(pa.large_binary())
    if valid is not None:
        content = pc.fill_null(content, bytes_scalar(b""))
    return [_text_heads(lengths, valid, text=is_text(column.type)), content]


def _text_heads(lengths: Numbers, valid: Flags | None, *, text: bool) -> Part:
    most = int(lengths.max(initial=0))
    if text and most <= SHORT_TEXT_MOST:
        tags = SHORT_TEXT + lengths
        return Fixed(b"", tags if valid is None else np.where(valid, tags, NIL), "u1")
    width = 1 if most <= 0xFF else 2 if most <= 0xFFFF else 4
    cells = np.empty((len(lengths), 1 + width), np.uint8)
    sizes = np.full(len(lengths), 1)
    for digits, tag in (TEXTS if text else BINARIES).items():
        if digits > width:
            break
        some = slice(None) if digits == 1 else np.flatnonzero(lengths > (1 << 4 * digits) - 1)
        cells[some, 0] = tag
        cells[some, 1 : 1 + digits] = lengths[some].astype(f">u{digits}").view(np.uint8).reshape(-1, digits)
        sizes[some] = 1 + digits
    if text:
        short = lengths <= SHORT_TEXT_MOST
        cells[short, 0], sizes[short] = SHORT_TEXT + lengths[short], 1
    if valid is not None:
        cells[~valid, 0], sizes[~valid] = NIL, 1
    return cut(cells, sizes)


def lists_of(rows: pa.Array, counts: Numbers) -> pa.Array:
    """Return lists of so many of some written values each, one behind the other, large_binary."""
    most = int(counts.max(initial=0))
    size = 0 if most <= SHORT_MOST else 2 if most <= LONG_MOST else 4
    head = Fixed(bytes([LISTS[size]]), counts, f">u{size}") if size else Fixed(b"", LIST + counts, "u1")
    ends, data = ends_in(rows), rows.buffers()[2]
    list_ends = np.append(ends[np.cumsum(counts) - counts], ends[-1])
    items = pa.Array.from_buffers(pa.large_binary(), len(counts), [None, pa.py_buffer(list_ends), data])
    return written([head, items], len(counts))


def cut(cells: _Cells, sizes: Numbers) -> pa.Array:
    """Return the first bytes of cells, so many of each."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return _large_binary(cells[np.arange(cells.shape[1]) < sizes[:, None]], ends)


def _large_binary(data: _Cells, ends: Numbers) -> pa.Array:
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers, 0)
