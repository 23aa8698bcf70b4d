"""Columns as bytes of msgpack, a value, list or record for each row, as state has them.

Numbers, texts, byte strings and times are written by columns; the values of other columns go through the codec of single values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import (
    Flags,
    Numbers,
    binary_array,
    bytes_scalar,
    column_of,
    ends_in,
    flags_in,
    is_binary,
    is_text,
    numbers_in,
    valid_in,
)
from poundlock.formats.convert import column_values
from poundlock.operators.keyed.codec import LOCAL_MICROS, UTC_MICROS, decode_all, encode, encode_each

NIL, FALSE, TRUE = 0xC0, 0xC2, 0xC3  # what msgpack begins values with
INT, FLOAT, EIGHT_BYTES = 0xD3, 0xCB, 0xD7
_SHORT_TEXT, _SHORT_MOST, TEXT, BINARY = 0xA0, 31, 0xDB, 0xC6
LIST, LONG_LIST, LONGEST_LIST, MAP, LONG_MAP = 0x90, 0xDC, 0xDD, 0x80, 0xDE
_SHORT = 15  # a list or map of so many has its length in its first byte
_LONG = (1 << 16) - 1  # and so many in two more
BYTES = pa.large_binary()


def packed(column: pa.Array) -> pa.Array:
    """Return the bytes of each value, large_binary."""
    kind, valid = column.type, valid_in(column)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return _tagged([INT], numbers_in(column).astype(">i8"), valid)
    if kind in (pa.float64(), pa.float32()):
        return _tagged([FLOAT], numbers_in(column).astype(">f8"), valid)
    if pa.types.is_boolean(kind):
        return _fixed((FALSE + flags_in(column)).astype(np.uint8).reshape(-1, 1), valid)
    if is_instant(kind):
        micros = numbers_in(column) * {"s": 1_000_000, "ms": 1000, "us": 1}[kind.unit]
        return _tagged([EIGHT_BYTES, instant_code(kind)], micros.astype(">i8"), valid)
    if is_text(kind) or is_binary(kind):
        return _packed_texts(column, text=is_text(kind), valid=valid)
    return binary_array(encode_each(column_values(column)))


def packed_lists(columns: Sequence[pa.Array]) -> pa.Array:
    """Return a list of the values of each row, from the bytes of them."""
    return _joined([header(LIST, LONG_LIST, len(columns)), *columns])


def packed_records(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """Return the record of each row: a dict of its columns."""
    parts: list[bytes | pa.Array] = []
    before = header(MAP, LONG_MAP, len(names))
    for name, column in zip(names, columns, strict=True):
        parts += [before + encode(name), packed(column)]
        before = b""
    return _joined(parts)


def packed_groups(rows: pa.Array, counts: Numbers) -> pa.Array:
    """Return lists of so many of some rows each, one behind the other, from the bytes of them."""
    starts = np.cumsum(counts) - counts
    most = int(counts.max(initial=0))
    size = 0 if most <= _SHORT else 2 if most <= _LONG else 4
    headers = np.empty((len(counts), 1 + size), np.uint8)
    if not size:
        headers[:, 0] = LIST + counts
    else:
        headers[:, 0] = LONG_LIST if size == 2 else LONGEST_LIST
        headers[:, 1:] = counts.astype(f">u{size}").view(np.uint8).reshape(-1, size)
    ends = ends_in(rows)
    data = np.frombuffer(rows.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    at = ends[starts] - ends[0]
    width = headers.shape[1]
    out = np.empty(len(data) + headers.size, np.uint8)
    is_header = np.zeros(len(out), np.bool_)
    places = at + width * np.arange(len(counts))
    for byte in range(width):
        is_header[places + byte] = True
        out[places + byte] = headers[:, byte]
    out[~is_header] = data
    out_ends = np.append(places, len(out)).astype(np.int64)
    return pa.Array.from_buffers(BYTES, len(counts), [None, pa.py_buffer(out_ends), pa.py_buffer(out)], 0)


def unpacked(values: pa.Array) -> list[Any]:
    """Return the values of bytes, of which none is null."""
    ends = ends_in(values)
    data = values.buffers()[2]
    return decode_all(b"" if data is None else bytes(memoryview(data)[ends[0] : ends[-1]]), len(values))


def header(short: int, long: int, count: int) -> bytes:
    """Return what a list or map of so many begins with."""
    return bytes([short + count]) if count <= _SHORT else bytes([long]) + count.to_bytes(2, "big")


def _joined(parts: Sequence[bytes | pa.Array]) -> pa.Array:
    given = [bytes_scalar(part) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*given, bytes_scalar(b""))


def _tagged(tag: Sequence[int], numbers: npt.NDArray[Any], valid: Flags | None) -> pa.Array:
    """Return numbers of eight bytes behind a tag."""
    out = np.empty((len(numbers), len(tag) + 8), np.uint8)
    out[:, : len(tag)] = tag
    out[:, len(tag) :] = numbers.view(np.uint8).reshape(-1, 8)
    return _fixed(out, valid)


def _fixed(rows: npt.NDArray[np.uint8], valid: Flags | None) -> pa.Array:
    """Return byte strings of one length; nil where there is a null."""
    n, width = rows.shape
    ends = np.arange(n + 1, dtype=np.int64) * width
    bits = None if valid is None else column_of(valid, pa.bool_()).buffers()[1]
    values = pa.Array.from_buffers(BYTES, n, [bits, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(rows))])
    return values if valid is None else pc.fill_null(values, bytes_scalar(bytes([NIL])))


def _packed_texts(column: pa.Array, *, text: bool, valid: Flags | None) -> pa.Array:
    lengths = np.diff(ends_in(column)) if len(column) else np.empty(0, np.int64)
    if text and (not len(lengths) or int(lengths.max()) <= _SHORT_MOST):
        headers = (_SHORT_TEXT + lengths).astype(np.uint8).reshape(-1, 1)
    else:
        headers = np.empty((len(column), 5), np.uint8)
        headers[:, 0] = TEXT if text else BINARY
        headers[:, 1:] = lengths.astype(">u4").view(np.uint8).reshape(-1, 4)
    values = _joined([_fixed(headers, None), column.cast(BYTES)])
    return values if valid is None else pc.fill_null(values, bytes_scalar(bytes([NIL])))


def is_instant(kind: pa.DataType) -> bool:
    """Return whether values of a type are written as microseconds since 1970."""
    return bool(pa.types.is_timestamp(kind)) and kind.unit != "ns" and kind.tz in (None, "UTC")


def instant_code(kind: pa.DataType) -> int:
    """Return the code of such values, by whether they have a zone."""
    return LOCAL_MICROS if kind.tz is None else UTC_MICROS
