"""Values that are written in a script as columns of one row."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import column_of
from poundlock.sql.expressions.tree import Literal
from poundlock.sql.functions.kernels.columns import decimals
from poundlock.sql.functions.kernels.distinct import python_column
from poundlock.sql.functions.kernels.sql_times import day_of

_MOST_MICROS = 6
_TEXTS, _BINARIES = ("CHAR", "VARCHAR"), ("BINARY", "VARBINARY")


def column_of_literal(literal: Literal) -> pa.Array:
    """Return a literal as a column of one row."""
    value, kind = literal.value, literal.type
    if value is None:
        return pa.nulls(1, kind.arrow)
    if kind.root in _TEXTS:
        return python_column([value], pa.string())
    if kind.root in _BINARIES:
        return python_column([value], pa.binary())
    if kind.root == "DECIMAL":
        return decimals([int(Decimal(value).scaleb(kind.sizes[1]))], kind.arrow)
    if kind.root == "BOOLEAN":
        return column_of(np.array([value]), pa.bool_())
    if kind.root in ("FLOAT", "DOUBLE"):
        return column_of(np.array([value], np.float32 if kind.root == "FLOAT" else np.float64), kind.arrow)
    return column_of(np.array([_number(value, kind.sizes)], f"<i{kind.arrow.bit_width // 8}"), kind.arrow)


def _number(value: Any, sizes: tuple[int, ...]) -> int:
    """Return the number that Arrow has for a value: days, milliseconds of a day, units of a timestamp."""
    if isinstance(value, datetime):
        local = value if value.tzinfo is None else value.astimezone(UTC)
        seconds = day_of(local.year, local.month, local.day) * 86_400 + _seconds(local.time())
        micros = seconds * 1_000_000 + local.microsecond
        return micros if sizes[0] <= _MOST_MICROS else micros * 1000
    if isinstance(value, date):
        return day_of(value.year, value.month, value.day)
    if isinstance(value, time):
        return _seconds(value) * 1000 + value.microsecond // 1000
    return int(value)


def _seconds(clock: time) -> int:
    return (clock.hour * 60 + clock.minute) * 60 + clock.second
