"""Records of state by columns: a dict of a row's columns for each, in msgpack, as it is written where records are worked one by one.

Numbers, texts, byte strings and times are written and read by columns; the values of other columns go through the codec of single
values. What is read is the same whoever wrote it, and a column that a record does not have is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import TerminalError
from poundlock.formats.arrays import Flags, Numbers, binary_array, column_of, ends_in, flags_in, numbers_in, valid_in
from poundlock.formats.chunk import NoOrigin, Records
from poundlock.formats.convert import column_values, to_batch
from poundlock.formats.reject import Reject
from poundlock.operators.keyed.codec import LOCAL_MICROS, UTC_MICROS, decode_each, encode, encode_each

_NIL, _FALSE, _TRUE = 0xC0, 0xC2, 0xC3  # what msgpack begins values with
_INT, _FLOAT, _EIGHT_BYTES = 0xD3, 0xCB, 0xD7
_SHORT_TEXT, _SHORT_MOST, _TEXT, _BINARY = 0xA0, 31, 0xDB, 0xC6
_LIST, _LONG_LIST, _MAP, _LONG_MAP = 0x90, 0xDC, 0x80, 0xDE
_SHORT = 15  # a list or map of so many has its length in its first byte
_BYTES = pa.large_binary()


def packed(column: pa.Array) -> pa.Array:
    """Return the bytes of each value, large_binary."""
    kind, valid = column.type, valid_in(column)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return _tagged([_INT], numbers_in(column).astype(">i8"), valid)
    if kind in (pa.float64(), pa.float32()):
        return _tagged([_FLOAT], numbers_in(column).astype(">f8"), valid)
    if pa.types.is_boolean(kind):
        return _fixed((_FALSE + flags_in(column)).astype(np.uint8).reshape(-1, 1), valid)
    if _is_instant(kind):
        micros = numbers_in(column) * {"s": 1_000_000, "ms": 1000, "us": 1}[kind.unit]
        return _tagged([_EIGHT_BYTES, _instant_code(kind)], micros.astype(">i8"), valid)
    if _is_text(kind) or _is_binary(kind):
        return _packed_texts(column, is_text=_is_text(kind), valid=valid)
    return binary_array(encode_each(column_values(column)))


def packed_lists(columns: Sequence[pa.Array]) -> pa.Array:
    """Return a list of the values of each row, from the bytes of them."""
    return _joined([_header(_LIST, _LONG_LIST, len(columns)), *columns])


def packed_records(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """Return the record of each row: a dict of its columns."""
    parts: list[bytes | pa.Array] = []
    before = _header(_MAP, _LONG_MAP, len(names))
    for name, column in zip(names, columns, strict=True):
        parts += [before + encode(name), packed(column)]
        before = b""
    return _joined(parts)


def packed_groups(rows: pa.Array, counts: Numbers) -> pa.Array:
    """Return lists of so many of some rows each, one behind the other, from the bytes of them."""
    starts = np.cumsum(counts) - counts
    long = bool(len(counts)) and int(counts.max()) > _SHORT
    headers = np.empty((len(counts), 3 if long else 1), np.uint8)
    headers[:, 0] = _LONG_LIST if long else _LIST + counts
    if long:
        headers[:, 1:] = counts.astype(">u2").view(np.uint8).reshape(-1, 2)
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
    return pa.Array.from_buffers(_BYTES, len(counts), [None, pa.py_buffer(out_ends), pa.py_buffer(out)], 0)


def unpacked(values: pa.Array) -> list[Any]:
    """Return the values of bytes, of which none is null."""
    ends = ends_in(values)
    data = values.buffers()[2]
    return decode_each(b"" if data is None else bytes(memoryview(data)[ends[0] : ends[-1]]), len(values))


def records_of(values: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of records that were packed, of which none is null. Raises TerminalError: one has values of other types."""
    return columns_of(unpacked(values), schema)


def columns_of(records: Sequence[dict[str, Any]], schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of records of state; raises as `records_of`."""
    bad: list[Reject] = []
    columns = to_batch(Records(records, NoOrigin("state")), schema, bad.append).batch.columns
    if bad:
        raise TerminalError(
            f"state holds a record that is not of the columns there are: {bad[0].reason}",
            next="give the step another name, which begins with no state, or let its input have the types it had",
        )
    return list(columns)


def _header(short: int, long: int, count: int) -> bytes:
    return bytes([short + count]) if count <= _SHORT else bytes([long]) + count.to_bytes(2, "big")


def _joined(parts: Sequence[bytes | pa.Array]) -> pa.Array:
    given = [pa.scalar(part, _BYTES) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*given, pa.scalar(b"", _BYTES))


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
    values = pa.Array.from_buffers(_BYTES, n, [bits, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(rows))])
    return values if valid is None else pc.fill_null(values, pa.scalar(bytes([_NIL]), _BYTES))


def _packed_texts(column: pa.Array, *, is_text: bool, valid: Flags | None) -> pa.Array:
    lengths = np.diff(ends_in(column)) if len(column) else np.empty(0, np.int64)
    if is_text and (not len(lengths) or int(lengths.max()) <= _SHORT_MOST):
        headers = (_SHORT_TEXT + lengths).astype(np.uint8).reshape(-1, 1)
    else:
        headers = np.empty((len(column), 5), np.uint8)
        headers[:, 0] = _TEXT if is_text else _BINARY
        headers[:, 1:] = lengths.astype(">u4").view(np.uint8).reshape(-1, 4)
    values = _joined([_fixed(headers, None), column.cast(_BYTES)])
    return values if valid is None else pc.fill_null(values, pa.scalar(bytes([_NIL]), _BYTES))


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit != "ns" and kind.tz in (None, "UTC")


def _instant_code(kind: pa.DataType) -> int:
    return LOCAL_MICROS if kind.tz is None else UTC_MICROS


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
