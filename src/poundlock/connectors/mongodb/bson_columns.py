"""Rows as documents of BSON, by Arrow and not row by row: an element of a document is made for all rows at once.

A null stands for what BSON cannot hold; a value that is null in the rows is BSON's null. https://bsonspec.org/spec.html
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
    bytes_scalar,
    column_of,
    ends_in,
    flags_in,
    indices_of,
    numbers_in,
    ranges,
    with_nulls,
)

MOST_BYTES = 16 * 1024 * 1024
"""Of a document, as every server has it."""

_DOUBLE, _TEXT, _DOCUMENT, _ARRAY, _BYTES, _FLAG = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\x08"
_DATE, _NULL, _INT, _LONG, _DECIMAL = b"\x09", b"\x0a", b"\x10", b"\x12", b"\x13"
_ZERO, _NOTHING = b"\0", b""
_LARGEST_HIGH, _LARGEST_LOW = divmod(10**34 - 1, 1 << 64)  # of a Decimal128, 34 digits
_EXPONENT_BIAS, _EXPONENT_BIT = 6176, 49  # IEEE 754-2008, of the upper 64 bits
_DAY_MS = 86_400_000
_MS_OF = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


def fits(kind: pa.DataType) -> bool:
    """Return whether BSON has a type for values of an Arrow type."""
    t = pa.types
    if t.is_dictionary(kind):
        return fits(kind.value_type)
    if t.is_struct(kind):
        return kind.num_fields > 0 and all(fits(field.type) and is_name(field.name) for field in kind)
    if t.is_map(kind):
        return (t.is_string(kind.key_type) or t.is_large_string(kind.key_type)) and fits(kind.item_type)
    if t.is_list(kind) or t.is_large_list(kind):
        return fits(kind.value_type)
    plain = (t.is_boolean, t.is_integer, t.is_floating, t.is_string, t.is_large_string, t.is_binary, t.is_large_binary)
    return any(is_it(kind) for is_it in (*plain, t.is_date, t.is_timestamp, t.is_decimal128, t.is_null))


def is_name(name: str) -> bool:
    """Return whether a field can have a name, and be named in statements."""
    return bool(name) and not name.startswith("$") and "." not in name and "\0" not in name


def document(elements: Sequence[pa.Array | pa.Scalar]) -> pa.Array:
    """Return documents of their elements, null where one of these is; an element that is the same in all of them may be a scalar."""
    body = pc.binary_join_element_wise(*elements, bytes_scalar(_ZERO), bytes_scalar(_NOTHING))
    return _with_length(body, 4)


def element(name: str, column: pa.Array) -> pa.Array:
    """Return a field of that name with the values of a column, null where BSON cannot hold one."""
    return _element(column, name.encode() + _ZERO)


def document_element(name: str, documents: pa.Array) -> pa.Array:
    """Return a field of that name with documents."""
    return _joined(bytes_scalar(_DOCUMENT + name.encode() + _ZERO), documents)


def whole_number(name: str, value: int) -> bytes:
    """Return a field of that name with a number of 64 bits, the same for all."""
    return _LONG + name.encode() + _ZERO + value.to_bytes(8, "little", signed=True)


def moment(name: str, ms: int) -> bytes:
    """Return a field of that name with a date, milliseconds since the epoch, the same for all."""
    return _DATE + name.encode() + _ZERO + ms.to_bytes(8, "little", signed=True)


def truth(name: str) -> bytes:
    """Return a field of that name that is true."""
    return _FLAG + name.encode() + _ZERO + b"\x01"


def subdocument(name: str, *elements: bytes) -> bytes:
    """Return a field of that name with one document, the same for all."""
    body = b"".join(elements)
    return _DOCUMENT + name.encode() + _ZERO + (len(body) + 5).to_bytes(4, "little") + body + _ZERO


def object_ids(name: str, first: int, begun_s: int, process: bytes, count: int) -> pa.Array:
    """Return a field of that name with an id of an object for each of so many rows, as drivers make them.

    Args:
        first: number of the first of them; of three bytes.
        begun_s: seconds since the epoch, four bytes.
        process: five bytes that no other writer has.
    """
    head = bytes_scalar(b"\x07" + name.encode() + _ZERO + begun_s.to_bytes(4, "big") + process)
    counters = ((first + np.arange(count, dtype=np.int64)) & 0xFFFFFF).astype(">u4")
    last = np.ascontiguousarray(counters.view(np.uint8).reshape(count, 4)[:, 1:])
    return _joined(head, _fixed(last, 3))


def has_micros(column: pa.Array) -> Flags:
    """Return which times of a column a date of BSON's, which has milliseconds, would be another one than."""
    _, divisor = _MS_OF[column.type.unit]
    flags: Flags = numbers_in(column.view(pa.int64())) % divisor != 0
    return flags & ~flags_in(column.is_null())


def _element(column: pa.Array, name: bytes | pa.Array) -> pa.Array:
    """Return elements of values. Args: name: with the zero behind it, for all, or one for each."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    tag, values = _values(column)
    if not column.null_count:
        return _joined(_head(tag, name), values)
    missing = column.is_null()
    head = pc.if_else(missing, _head(_NULL, name), _head(tag, name))
    return _joined(head, pc.if_else(missing, bytes_scalar(_NOTHING), values))


def _head(tag: bytes, name: bytes | pa.Array) -> pa.Array | pa.Scalar:
    return bytes_scalar(tag + name) if isinstance(name, bytes) else _joined(bytes_scalar(tag), name)


def _values(column: pa.Array) -> tuple[bytes, pa.Array]:
    """Return the tag of a column's type, and its values; null where BSON has none, and any where the column is null."""
    kind, t = column.type, pa.types
    if t.is_null(kind):
        return _NULL, column.cast(pa.large_binary())
    if t.is_struct(kind):
        parts = zip(kind, column.flatten(), strict=True)
        return _DOCUMENT, document([element(field.name, values) for field, values in parts])
    if t.is_map(kind):
        names = column.keys.cast(pa.large_binary())
        ended = _joined(names, bytes_scalar(_ZERO))
        whole = flags_in(pc.match_substring(names, _ZERO).fill_null(False))
        named = ended if not whole.any() else with_nulls(ended, ~whole)
        return _DOCUMENT, _collected(column, named, column.items)
    if t.is_list(kind) or t.is_large_list(kind):
        return _ARRAY, _collected(column, None, column.values)
    return _plain(column)


def _plain(column: pa.Array) -> tuple[bytes, pa.Array]:
    kind, t = column.type, pa.types
    if t.is_string(kind) or t.is_large_string(kind):
        return _TEXT, _with_length(_joined(column.cast(pa.large_binary()), bytes_scalar(_ZERO)), 0)
    if t.is_binary(kind) or t.is_large_binary(kind):
        return _BYTES, _with_length(_joined(bytes_scalar(_ZERO), column.cast(pa.large_binary())), -1)
    if t.is_decimal128(kind):
        return _DECIMAL, _decimals(column)
    if t.is_boolean(kind):
        return _FLAG, _fixed(numbers_in(column).astype(np.uint8), 1)
    if t.is_floating(kind):
        return _DOUBLE, _fixed(numbers_in(column.cast(pa.float64())), 8)
    if t.is_timestamp(kind):
        factor, divisor = _MS_OF[kind.unit]
        return _DATE, _fixed(numbers_in(column.view(pa.int64())) * factor // divisor, 8)
    if t.is_date32(kind):
        return _DATE, _fixed(numbers_in(column.view(pa.int32())).astype(np.int64) * _DAY_MS, 8)
    if t.is_date64(kind):
        return _DATE, _fixed(numbers_in(column.view(pa.int64())), 8)
    numbers = numbers_in(column)
    if kind.bit_width < 32 or t.is_int32(kind):
        return _INT, _fixed(numbers.astype(np.int32), 4)
    values = _fixed(numbers.astype(np.int64), 8)
    if t.is_uint64(kind) and (numbers > np.iinfo(np.int64).max).any():
        values = with_nulls(values, numbers <= np.iinfo(np.int64).max)
    return _LONG, values


def _decimals(column: pa.Array) -> pa.Array:
    """Return decimals as those of IEEE 754-2008 with an integer as their digits, null where these are more than 34."""
    halves = np.frombuffer(column.buffers()[1], np.uint64, 2 * len(column), 16 * column.offset).reshape(-1, 2)
    low, high = halves[:, 0], halves[:, 1]
    negative = (high >> np.uint64(63)).astype(np.bool_)
    low = np.where(negative, ~low + np.uint64(1), low)
    high = np.where(negative, ~high + (low == 0), high)
    known = (high < _LARGEST_HIGH) | ((high == _LARGEST_HIGH) & (low <= _LARGEST_LOW))
    exponent = np.uint64((_EXPONENT_BIAS - column.type.scale) << _EXPONENT_BIT)
    made = np.empty_like(halves)
    made[:, 0] = low
    made[:, 1] = high | exponent | (negative.astype(np.uint64) << np.uint64(63))
    values = _fixed(made, 16)
    return values if known.all() else with_nulls(values, known)


def _collected(column: pa.Array, names: pa.Array | None, items: pa.Array) -> pa.Array:
    """Return the documents of lists or maps; a list's names are numbers."""
    bounds = ends_in(column)
    starts, counts = bounds[:-1], np.diff(bounds)
    if column.null_count:
        counts = np.where(flags_in(column.is_null()), 0, counts)
    places = ranges(starts, counts)
    items = items.take(indices_of(places))
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    if names is None:
        numbers = column_of(np.arange(len(places)) - np.repeat(ends[:-1], counts), pa.int64())
        named = _joined(numbers.cast(pa.string()).cast(pa.large_binary()), bytes_scalar(_ZERO))
    else:
        named = names.take(indices_of(places))
    elements = _element(items, named)
    absent = np.zeros(len(elements) + 1, np.int64)
    if elements.null_count:
        np.cumsum(flags_in(elements.is_null()), out=absent[1:])
        elements = elements.fill_null(bytes_scalar(_NOTHING))
    # The elements of a list lie one behind the other, so the bytes of them all are its own.
    cuts = np.ascontiguousarray(ends_in(elements)[ends])
    data = elements.buffers()[2] or pa.py_buffer(_NOTHING)
    bodies = pa.Array.from_buffers(pa.large_binary(), len(column), [None, pa.py_buffer(cuts), data])
    made = document([bodies])
    return made if not absent[-1] else with_nulls(made, absent[ends[1:]] == absent[ends[:-1]])


def _with_length(bodies: pa.Array, more: int) -> pa.Array:
    """Return byte strings with their length before them, and so many more, as four bytes."""
    lengths: Numbers = np.diff(ends_in(bodies)) + more
    return _joined(_fixed(lengths.astype(np.int32), 4), bodies)


def _fixed(numbers: npt.NDArray[Any], width: int) -> pa.Array:
    """Return numbers as byte strings, little end first."""
    count = numbers.nbytes // width
    ends = np.arange(count + 1, dtype=np.int64) * width
    data = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(ends), data])


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, bytes_scalar(_NOTHING))
