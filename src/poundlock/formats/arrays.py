"""Arrow columns as numpy arrays and back, without a copy where there need be none.

All goes through buffers: `pyarrow.array` imports pandas the first time it is called, a second of CPU in every worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def column_of(values: npt.NDArray[Any], kind: pa.DataType, valid: Flags | None = None) -> pa.Array:
    """Return numbers as a column of a type of the same width; `valid` says which are not null, None: all."""
    if kind == pa.bool_():
        data = pa.py_buffer(np.packbits(values.astype(np.bool_), bitorder="little"))
    else:
        data = pa.py_buffer(np.ascontiguousarray(values))
    missing = 0 if valid is None else int(len(valid) - np.count_nonzero(valid))
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if valid is not None and missing else None
    return pa.Array.from_buffers(kind, len(values), [bits, data], missing)


def indices_of(places: npt.NDArray[Any]) -> pa.Array:
    """Return places as a column to take rows by."""
    return column_of(np.asarray(places, np.int64), pa.int64())


def numbers_in(column: pa.Array) -> npt.NDArray[Any]:
    """Return the values of a column of a fixed width as they lie in memory, those at nulls included; truth values as bytes."""
    if column.type == pa.bool_():
        column = pc.cast(column, pa.uint8())
    width = column.type.bit_width // 8
    dtype = _DTYPES.get(column.type.id) or np.dtype(f"<i{width}")
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column), dtype)
    numbers: npt.NDArray[Any] = np.frombuffer(data, dtype, len(column), column.offset * width)
    return numbers


_DTYPES: Mapping[int, np.dtype[Any]] = {
    pa.float64().id: np.dtype(np.float64),
    pa.float32().id: np.dtype(np.float32),
    pa.uint64().id: np.dtype(np.uint64),
    pa.uint32().id: np.dtype(np.uint32),
    pa.uint16().id: np.dtype(np.uint16),
    pa.uint8().id: np.dtype(np.uint8),
}


def ranges(starts: Numbers, counts: Numbers) -> Numbers:
    """Return start, start + 1, … of each range, one behind the other."""
    before = np.cumsum(counts) - counts
    result: Numbers = np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
    return result


def valid_in(column: pa.Array) -> Flags | None:
    """Return which values are not null; None = all of them."""
    if not column.null_count:
        return None
    bits = column.buffers()[0]
    if bits is None:
        return np.zeros(len(column), np.bool_)
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=column.offset + len(column), bitorder="little")
    return flags[column.offset :].astype(np.bool_)


def ends_in(column: pa.Array) -> Numbers:
    """Return where the first of some texts, byte strings or lists begins, and where each ends."""
    kind = column.type
    wide = _is_large(kind) or pa.types.is_large_list(kind)
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(1, np.int64)
    dtype = np.int64 if wide else np.int32
    return np.frombuffer(data, dtype)[column.offset : column.offset + len(column) + 1].astype(np.int64)


def lists_of(items: pa.Array, counts: Numbers) -> pa.Array:
    """Return items as lists of so many each."""
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    return pa.ListArray.from_arrays(column_of(ends, pa.int32()), items)


def ranks_of(column: pa.Array) -> tuple[Numbers, pa.Array]:
    """Return the number of each value among the different ones in their order, and those; a null's number is any."""
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int64)
    rank[numbers_in(order)] = np.arange(len(order))
    codes, valid = numbers_in(encoded.indices), valid_in(column)
    if valid is not None:
        codes = np.where(valid, codes, 0)
    return (rank[codes] if len(order) else np.zeros(len(column), np.int64)), encoded.dictionary.take(order)


def joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Return columns of one type one behind the other; without a copy where there is one."""
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def copied(data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers, kind: pa.DataType) -> pa.Array:
    """Return the bytes from each start to each end, ascending, as a binary or string column; copied once, by Arrow.

    The whole of the data is taken for a column of pieces, of which every second one is wanted.
    """
    count = len(starts)
    bounds = np.empty(2 * count, np.int64 if _is_large(kind) else np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    pieces = pa.Array.from_buffers(kind, max(2 * count - 1, 0), [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return pieces.take(column_of(np.arange(0, 2 * count, 2, dtype=np.int32), pa.int32()))


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is that of texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_flat(columns: pa.Schema) -> bool:
    """Return whether no column holds lists, structs or maps."""
    return not any(pa.types.is_nested(column.type) for column in columns)


def is_float(kind: pa.DataType) -> bool:
    """Return whether a type is that of floating point numbers of 32 or 64 bits."""
    return bool(pa.types.is_float32(kind) or pa.types.is_float64(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a type is that of byte strings."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def binary_array(values: Sequence[bytes | None]) -> pa.Array:
    """Return byte strings as a large_binary array. Unlike pa.array this looks at each value once."""
    n = len(values)
    missing = values.count(None)
    present: Sequence[bytes] = [value or b"" for value in values] if missing else values  # type: ignore[assignment]
    ends = np.zeros(n + 1, np.int64)
    np.cumsum(np.fromiter(map(len, present), np.int64, n), out=ends[1:])
    valid = None
    if missing:
        flags = np.fromiter((value is not None for value in values), np.bool_, n)
        valid = pa.py_buffer(np.packbits(flags, bitorder="little"))
    return pa.Array.from_buffers(
        pa.large_binary(), n, [valid, pa.py_buffer(ends), pa.py_buffer(b"".join(present))], missing
    )


def bytes_scalar(value: bytes) -> pa.Scalar:
    """Return a byte string as a large_binary value of Arrow's; pa.scalar would import pandas."""
    return binary_array([value])[0]


def texts_of(values: Sequence[str]) -> pa.Array:
    """Return texts as a string column.

    Raises:
        TypeError: one is None.
    """
    whole = "".join(values)
    data = whole.encode()
    if len(data) >= 1 << 31:
        return pa.array(values, pa.string())
    lengths = map(len, values) if whole.isascii() else (len(value.encode()) for value in values)
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(lengths, np.int32, len(values)), out=ends[1:])
    return pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(data)], 0)


def column_from(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Return Python values that are just what a type of 64 bits, of text or of truth values holds as a column of it; None for all others.

    Raises:
        OverflowError: a number has more than 64 bits.
        ValueError: a text is not valid Unicode.
    """
    python = _PYTHON.get(kind.id)
    if python is None:
        return None
    kinds = set(map(type, values))
    valid = None
    if NoneType in kinds and len(kinds) > 1:
        kinds.discard(NoneType)
        valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
        nothing = python()
        values = [nothing if value is None else value for value in values]
    if kinds != {python}:
        return None
    if python is str:
        texts = texts_of(values)
        return texts if valid is None else with_nulls(texts, valid)
    return column_of(np.fromiter(values, _PYTHON_DTYPES[python], len(values)), kind, valid)


_PYTHON: Mapping[int, type] = {pa.int64().id: int, pa.float64().id: float, pa.string().id: str, pa.bool_().id: bool}
_PYTHON_DTYPES: Mapping[type, type] = {int: np.int64, float: np.float64, bool: np.bool_}


def with_nulls(texts: pa.Array, valid: Flags) -> pa.Array:
    """Return texts or byte strings, those at nulls empty, with their nulls."""
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(texts.type, len(texts), [bits, *texts.buffers()[1:]], int(np.count_nonzero(~valid)))


def flags_in(column: pa.Array) -> Flags:
    """Return truth values; those at nulls are any."""
    flags: Flags = numbers_in(column).astype(np.bool_)
    return flags


def last_of_each(columns: Sequence[pa.Array]) -> Numbers:
    """Return the places of rows that no later row with the same values in all columns follows, ascending."""
    codes = [numbers_in(column.dictionary_encode().indices).astype(np.int64) for column in columns]
    code = reduce(lambda left, right: left * (int(right.max(initial=0)) + 1) + right, codes)
    _, first_from_behind = np.unique(code[::-1], return_index=True)
    last: Numbers = np.sort(len(code) - 1 - first_from_behind).astype(np.int64)
    return last


def pieces(values: pa.Array, most_bytes: int, most: int | None = None) -> Iterator[tuple[int, pa.Array]]:
    """Yield byte strings in pieces of no more bytes and strings than that, one string at least, with the place at which each begins."""
    ends = ends_in(values)
    first = 0
    while first < len(values):
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + most_bytes, "right")) - 1)
        last = last if most is None else min(last, first + most)
        yield first, values.slice(first, last - first)
        first = last
