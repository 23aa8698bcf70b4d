"""The order of a column's values, as whole numbers.

It is Spark's: NaN is the greatest number, and there is one zero; a struct goes by its fields in turn, a list by its items, and of two of
which one begins with the other the shorter is before; within them a null is before every value. `poundlock.operators.value_order` has it for
single values.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, ends_in, numbers_in, ranks_of, valid_in

_MOST = (1 << 63) - 1


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are ordered as the numbers that Arrow keeps of them."""
    tests = (
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_timestamp,
        pa.types.is_date,
        pa.types.is_time,
        pa.types.is_duration,
    )
    return kind in (pa.float64(), pa.float32()) or any(test(kind) for test in tests)


def ordinals(column: pa.Array) -> Numbers:
    """Return whole numbers in the order of a column's values; those at nulls are any.

    Maps have no order; their numbers are equal where they have the same entries, in whatever order those are.
    """
    kind = column.type
    if is_number(kind):
        return _of_numbers(column)
    if not len(column) or pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_struct(kind):
        return _of_structs(column)
    if pa.types.is_map(kind):
        return _of_maps(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        items, ends = _items(column)
        return _of_words(_places(items), ends)
    return ranks_of(column)[0]


def order_keys(column: pa.Array, *, descending: bool, nulls_first: bool) -> list[Numbers]:
    """Return what `np.lexsort` puts rows in the order of a column by, the least significant first: its values, then where its nulls stand."""
    ranks, valid = ordinals(column), valid_in(column)
    ranks = ~ranks if descending else ranks
    if valid is None:
        return [ranks]
    return [np.where(valid, ranks, 0), (valid if nulls_first else ~valid).astype(np.int64)]


def _of_numbers(column: pa.Array) -> Numbers:
    values = numbers_in(column)
    if values.dtype == np.uint64:
        flipped: Numbers = (values ^ np.uint64(1 << 63)).view(np.int64)
        return flipped
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    bits = np.where(values == values, values.astype(np.float64) + 0.0, np.nan).view(np.int64)
    return bits ^ ((bits >> 63) & _MOST)  # of negative numbers all bits but the sign are turned round


def _of_structs(column: pa.Array) -> Numbers:
    fields = [_places(field) for field in column.flatten()]
    if not fields:
        return np.zeros(len(column), np.int64)
    return _of_words(np.column_stack(fields).ravel(), np.arange(len(column) + 1) * len(fields))


def _of_maps(column: pa.Array) -> Numbers:
    entries, ends = _items(column)
    keys, values = map(_places, entries.flatten())
    of_entry = np.repeat(np.arange(len(column)), np.diff(ends))
    order = np.lexsort((keys, of_entry))
    last = np.ones(len(order), np.bool_)  # of entries with one key, as where a map becomes a dict
    last[:-1] = (np.diff(keys[order]) != 0) | (np.diff(of_entry[order]) != 0)
    order = order[last]
    counts = np.bincount(of_entry[order], minlength=len(column))
    return _of_words(np.column_stack([keys[order], values[order]]).ravel(), np.append(0, np.cumsum(counts)) * 2)


def _items(column: pa.Array) -> tuple[pa.Array, Numbers]:
    """Return the items of lists, or the entries of maps, and where the first begins and each ends."""
    if pa.types.is_fixed_size_list(column.type):
        ends = (column.offset + np.arange(len(column) + 1)) * column.type.list_size
    else:
        ends = ends_in(column)
    return column.values.slice(int(ends[0]), int(ends[-1] - ends[0])), ends - ends[0]


def _places(column: pa.Array) -> Numbers:
    """Return the place of each value among the different ones, from 1 on, and 0 for nulls."""
    places = np.unique(ordinals(column), return_inverse=True)[1].astype(np.int64) + 1
    valid = valid_in(column)
    return places if valid is None else np.where(valid, places, 0)


def _of_words(places: Numbers, ends: Numbers) -> Numbers:
    """Return the order of rows of places, each of which begins where the one before it ends.

    Places of one width, the highest byte first, are put in order as the bytes that they are: Arrow compares those.
    """
    word = np.min_scalar_type(int(places.max(initial=0)))
    data = pa.py_buffer(places.astype(word.newbyteorder(">")))
    bounds = pa.py_buffer((ends * word.itemsize).astype(np.int64))
    return ranks_of(pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, [None, bounds, data]))[0]
