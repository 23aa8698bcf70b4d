"""The order of a column's values, as whole numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, numbers_in, ranks_of

_MOST = (1 << 63) - 1


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are ordered as the numbers that Arrow keeps of them."""
    tests = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_timestamp, pa.types.is_date32, pa.types.is_duration)
    return kind in (pa.float64(), pa.float32()) or any(test(kind) for test in tests)


def ordinals(column: pa.Array) -> Numbers:
    """Return whole numbers in the order of a column's values; those at nulls are any."""
    if not is_number(column.type):
        return ranks_of(column)[0]
    values = numbers_in(column)
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    bits = np.where(values == values, values.astype(np.float64) + 0.0, np.nan).view(np.int64)
    return bits ^ ((bits >> 63) & _MOST)  # of negative numbers all bits but the sign are turned round
