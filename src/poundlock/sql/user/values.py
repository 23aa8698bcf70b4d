"""Values of SQL as a user's Python has them, and back: a ROW is a dict, a MAP a dict, a TIMESTAMP_LTZ a datetime in UTC.

What Arrow's builder of columns would look at pandas for is made of columns of 64 bits, as far as there are any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from poundlock.formats.arrays import column_from
from poundlock.formats.convert import built_column, column_values
from poundlock.sql.types import SqlType

_WIDE: Mapping[int, pa.DataType] = {
    **dict.fromkeys((pa.int8().id, pa.int16().id, pa.int32().id), pa.int64()),
    pa.float32().id: pa.float64(),
}


def values_of(column: pa.Array, kind: SqlType) -> list[Any]:
    """Return the values of a column.

    Raises:
        TerminalError: Python has none for one of them, such as for the year 10000.
    """
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":  # Python's have microseconds
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return column_values(column)


def column_of_values(values: list[Any], kind: SqlType) -> tuple[pa.Array, Mapping[int, str]]:
    """Return values as a column, and why some could not be made: those are null in it."""
    wanted = kind.arrow
    wide = _WIDE.get(wanted.id)
    if wide is not None:
        made = column_from(values, wide)
        if made is not None:
            try:
                return made.cast(wanted), {}
            except pa.ArrowInvalid:
                pass  # one is too large: below it is known which
    return built_column(values, wanted)
