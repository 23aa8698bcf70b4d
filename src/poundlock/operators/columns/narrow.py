"""Whole numbers in as few bytes as they need on their way: the distance of each from the least of them.

Counts are small and the slices of a stretch of time are few, but both are of 64 bits; what travels is paid for byte by byte.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import column_of, numbers_in

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
