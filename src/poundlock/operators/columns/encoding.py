"""Columns as the bytes that state keeps, and back: a key, and the accumulators of a row as one list, in msgpack as all state is.

Texts as keys and numbers as accumulators, which is nearly all there is, are written and read by columns; anything else goes through
the codec of single values. Keys have the same bytes either way, and accumulators read back the same, so whoever reads state need not
know how it was written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import Numbers, binary_array, column_of, ends_in, is_text, numbers_in
from poundlock.formats.convert import column_values
from poundlock.operators.keyed.codec import canonical_key, decode, encode, encode_each, encode_keys, normal, pack

_INT, _FLOAT = 0xD3, 0xCB  # what msgpack begins 64 bits with
_SHORT, _SHORT_MOST = 0xA0, 31  # a text of up to so many bytes has its length in its first byte
_LIST, _LIST_MOST = 0x90, 15  # and so has a list
_FIELD = 9  # bytes of a number: its kind and 64 bits


def encode_key_columns(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the bytes of keys, large_binary; several columns are a composite key."""
    if len(columns) == 1 and is_text(columns[0].type):
        encoded = _encode_texts(columns[0])
        if encoded is not None:
            return encoded
    values = [normal(column_values(c)) if pa.types.is_floating(c.type) else column_values(c) for c in columns]
    return binary_array(encode_keys(values[0] if len(values) == 1 else list(zip(*values, strict=True))))


def decode_key_columns(keys: pa.Array, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the columns of keys that were encoded."""
    if len(kinds) == 1 and is_text(kinds[0]):
        column = _decode_texts(keys, kinds[0])
        if column is not None:
            return [column]
    values = [canonical_key(decode(data)) for data in keys.to_pylist()]
    parts = [values] if len(kinds) == 1 else list(zip(*values, strict=True))
    return [pa.array(part, kind) for part, kind in zip(parts or [[] for _ in kinds], kinds, strict=True)]


def _encode_texts(column: pa.Array) -> pa.Array | None:
    """Return short texts encoded, None where there is a null or a long one."""
    ends = ends_in(column)
    lengths = np.diff(ends)
    if column.null_count or (len(lengths) and lengths.max() > _SHORT_MOST):
        return None
    n = len(column)
    out_ends = ends - ends[0] + np.arange(n + 1)
    out = np.empty(int(out_ends[-1]), np.uint8)
    begin = np.zeros(len(out), np.bool_)
    begin[out_ends[:-1]] = True
    out[begin] = _SHORT + lengths
    data = column.buffers()[2]
    out[~begin] = np.frombuffer(b"" if data is None else data, np.uint8)[ends[0] : ends[-1]]
    return _binary(out, out_ends)


def _decode_texts(keys: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return texts that all are short, None otherwise."""
    ends = ends_in(keys)
    data = keys.buffers()[2]
    held = np.frombuffer(b"" if data is None else data, np.uint8)
    n = len(keys)
    if n and (keys.null_count or (held[ends[:-1]] != np.minimum(np.diff(ends) - 1 + _SHORT, 0xFF)).any()):
        return None
    if n and np.diff(ends).max() > _SHORT_MOST + 1:
        return None
    kept = np.ones(int(ends[-1] - ends[0]), np.bool_)
    kept[ends[:-1] - ends[0]] = False
    text_ends = ends - ends[0] - np.arange(n + 1)
    wide = pa.types.is_large_string(kind)
    buffers = [
        None,
        pa.py_buffer(text_ends.astype(np.int64 if wide else np.int32)),
        pa.py_buffer(held[ends[0] : ends[-1]][kept]),
    ]
    return pa.Array.from_buffers(kind, n, buffers, 0)


def _binary(data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> pa.Array:
    return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)], 0)


# --- accumulators -------------------------------------------------------------------------------------------------------


def encode_accumulators(columns: Sequence[pa.Array]) -> pa.Array:
    """Return each row of columns as the bytes of a list, large_binary."""
    n = len(columns[0])
    if len(columns) > _LIST_MOST or not all(_is_plain(column) for column in columns):
        return binary_array(encode_each(list(map(list, zip(*map(column_values, columns), strict=True)))))
    width = 1 + _FIELD * len(columns)
    out = np.empty((n, width), np.uint8)
    out[:, 0] = _LIST + len(columns)
    for i, column in enumerate(columns):
        at = 1 + _FIELD * i
        out[:, at] = _FLOAT if column.type == pa.float64() else _INT
        numbers = numbers_in(column)
        big = numbers.astype(">f8" if column.type == pa.float64() else ">i8")
        out[:, at + 1 : at + _FIELD] = big.view(np.uint8).reshape(n, 8)
    return _binary(out.reshape(-1), np.arange(n + 1, dtype=np.int64) * width)


def decode_accumulators(values: pa.Array, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the columns of rows that were encoded; none of them is null."""
    numbers = _as_matrix(values, kinds)
    if numbers is not None:
        return numbers
    rows = [decode(data) for data in values.to_pylist()]
    columns = list(zip(*rows, strict=True)) or [() for _ in kinds]
    return [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]


def _is_plain(column: pa.Array) -> bool:
    return column.type in (pa.int64(), pa.float64()) and not column.null_count


def _as_matrix(values: pa.Array, kinds: Sequence[pa.DataType]) -> list[pa.Array] | None:
    """Return numbers that all have their 64 bits, None where something else is among them."""
    if not all(kind in (pa.int64(), pa.float64()) for kind in kinds):
        return None
    ends, n, width = ends_in(values), len(values), 1 + _FIELD * len(kinds)
    if n and not (np.diff(ends) == width).all():
        return None
    data = values.buffers()[2]
    held = np.frombuffer(b"" if data is None else data, np.uint8)[ends[0] : ends[-1]].reshape(n, width)
    if (held[:, 0] != _LIST + len(kinds)).any():
        return None
    columns = []
    for i, kind in enumerate(kinds):
        at = 1 + _FIELD * i
        if (held[:, at] != (_FLOAT if kind == pa.float64() else _INT)).any():
            return None
        numbers = np.ascontiguousarray(held[:, at + 1 : at + _FIELD]).view(">f8" if kind == pa.float64() else ">i8")
        columns.append(column_of(numbers.reshape(n).astype(kind.to_pandas_dtype()), kind))
    return columns


# --- windows of a key ---------------------------------------------------------------------------------------------------

_SPAN = np.frombuffer(b"\xc7\x13\x01\x92\xcf........\xcf........", np.uint8)  # a tuple of two numbers of 64 bits
_AT = (5, 14)  # where they are
_LEAST = 1 << 32  # what is less is written in fewer bytes


def encode_spans(starts: Numbers, ends: Numbers) -> pa.Array:
    """Return windows, (start, end) in ms, as the bytes that the codec of single values gives them, large_binary."""
    n = len(starts)
    if n and int(starts.min()) < _LEAST:
        return binary_array([encode(pack(span)) for span in zip(starts.tolist(), ends.tolist(), strict=True)])
    out = np.empty((n, len(_SPAN)), np.uint8)
    out[:] = _SPAN
    for at, numbers in zip(_AT, (starts, ends), strict=True):
        out[:, at : at + 8] = numbers.astype(">i8").view(np.uint8).reshape(n, 8)
    return _binary(out.reshape(-1), np.arange(n + 1, dtype=np.int64) * len(_SPAN))


def decode_spans(spans: pa.Array) -> list[pa.Array]:
    """Return starts and ends of windows that were encoded."""
    ends, n = ends_in(spans), len(spans)
    if n and (np.diff(ends) == len(_SPAN)).all():
        held = np.frombuffer(spans.buffers()[2], np.uint8)[ends[0] : ends[-1]].reshape(n, len(_SPAN))
        if (held[:, [4, 13]] == _SPAN[[4, 13]]).all():
            numbers = [np.ascontiguousarray(held[:, at : at + 8]).view(">i8").reshape(n) for at in _AT]
            return [column_of(each.astype(np.int64), pa.int64()) for each in numbers]
    values = [decode(data) for data in spans.to_pylist()]
    return [column_of(np.array([value[i] for value in values], np.int64), pa.int64()) for i in (0, 1)]
