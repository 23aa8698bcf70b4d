"""Whole numbers in as few bytes as they need on their way: the distance of each from the least of them.

Counts are small and the slices of a stretch of time are few, but both are of 64 bits; what travels is paid for byte by byte.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, column_of, ends_in, lists_of, numbers_in

_LEAST = b"least"
_NARROW = (
    (pa.uint8(), np.dtype(np.uint8)),
    (pa.uint16(), np.dtype(np.uint16)),
    (pa.uint32(), np.dtype(np.uint32)),
)


def narrowed(name: str, column: pa.Array) -> tuple[pa.Field, pa.Array]:
    """Return a column as it travels, and its field, which tells `widened` what it was; columns of other types stay as they are."""
    if column.type != pa.int64() or column.null_count or not len(column):
        return pa.field(name, column.type), column
    values = numbers_in(column)
    least, most = int(values.min()), int(values.max())
    for kind, dtype in _NARROW:
        if most - least <= np.iinfo(dtype).max:
            narrow = column_of((values - least).astype(dtype), kind)
            return pa.field(name, kind, metadata={_LEAST: str(least).encode()}), narrow
    return pa.field(name, column.type), column


def widened(field: pa.Field, column: pa.Array) -> pa.Array:
    """Return the column that `narrowed` made this one of."""
    least = (field.metadata or {}).get(_LEAST)
    if least is None:
        return column
    return column_of(numbers_in(column).astype(np.int64) + int(least), pa.int64())


def greatest(field: pa.Field, column: pa.Array) -> int:
    """Return the greatest of the numbers, or lists of numbers, in a column as it travels; -1 where there is none."""
    numbers = _numbers(column)
    least = int((field.metadata or {}).get(_LEAST, 0))
    return least + int(numbers.max()) if len(numbers) else -1


def raised(field: pa.Field, column: pa.Array, by: int) -> tuple[pa.Field, pa.Array]:
    """Return a column as it travels, of whole numbers or lists of them, each of them greater by a number, and its field."""
    least = (field.metadata or {}).get(_LEAST)
    if least is not None:
        return field.with_metadata({_LEAST: str(int(least) + by).encode()}), column
    numbers = column_of(_numbers(column) + by, pa.int64())
    return field, lists_of(numbers, np.diff(ends_in(column))) if pa.types.is_list(column.type) else numbers


def _numbers(column: pa.Array) -> Numbers:
    return numbers_in(column.flatten() if pa.types.is_list(column.type) else column)
