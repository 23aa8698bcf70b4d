"""Dates, times and timestamps plus and minus intervals, and arithmetic of intervals.

An interval is a number of months (INT) or of milliseconds (BIGINT). A month later than the 31st is the last day of a shorter month.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import column_of
from poundlock.sql.coercion import INTERVALS, NUMBERS, YEAR_MONTH
from poundlock.sql.functions.function import DivisionByZero, Evaluation, Given, SqlFunction, TypeMismatch
from poundlock.sql.functions.kernels.distinct import integers_in, valid_of
from poundlock.sql.functions.kernels.time_values import (
    DAY,
    column_of_micros,
    micros_in,
    months_added,
    nanos_in,
    to_instant,
    to_local,
)
from poundlock.sql.types import SqlType

DATETIMES = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")
_MILLISECOND, _DAY_MS = 1000, 86_400_000


def later(column: pa.Array, interval: pa.Array, evaluation: Evaluation, sign: int) -> pa.Array:
    """Return dates, times or timestamps plus an interval; minus it where the sign is -1."""
    kind = evaluation.returns
    micros, by = micros_in(column), sign * integers_in(interval)
    if interval.type == YEAR_MONTH.arrow:
        is_instant = kind.root == "TIMESTAMP_LTZ"
        local = to_local(micros, evaluation.zone) if is_instant else micros
        moved = micros if kind.root == "TIME" else months_added(local, by)
        moved = to_instant(moved, evaluation.zone) if is_instant else moved
    else:
        moved = micros + by * _MILLISECOND
        moved = moved % DAY if kind.root == "TIME" else moved
    return column_of_micros(moved, kind.arrow, valid_of((column, interval)), nanos_in(column))


def _moved_type(given: Sequence[Given], sign: str) -> SqlType:
    at, by = given
    if at.type.root not in DATETIMES or by.type.root not in INTERVALS:
        raise TypeMismatch(
            f"{at.type} {sign} {by.type}: an interval goes with a date, time or timestamp",
            next=f"write ts {sign} INTERVAL '1' DAY",
        )
    made = at.type
    if made.root == "DATE" and by.type.root == "INTERVAL_DAY_TIME" and by.value is not None and by.value % _DAY_MS:
        made = SqlType("TIMESTAMP", (0 if by.value % 1000 == 0 else 3,))
    return made.with_null(at.type.is_nullable or by.type.is_nullable)


def _of_intervals(given: Sequence[Given], sign: str) -> SqlType:
    a, b = (each.type for each in given)
    if a.root != b.root or a.root not in INTERVALS:
        raise TypeMismatch(
            f"{a} {sign} {b}: these are not two intervals of one kind",
            next="write both in months, or both in days and seconds",
        )
    return a.with_null(a.is_nullable or b.is_nullable)


def _of_number(given: Sequence[Given], sign: str) -> SqlType:
    a, b = (each.type for each in given)
    if a.root not in INTERVALS or b.root not in NUMBERS:
        raise TypeMismatch(
            f"{a} {sign} {b}: an interval goes with a number there", next=f"write INTERVAL '1' DAY {sign} 2"
        )
    return a.with_null(a.is_nullable or b.is_nullable)


def _moved(columns: Sequence[pa.Array], evaluation: Evaluation, sign: int) -> pa.Array:
    return later(columns[0], columns[1], evaluation, sign)


def _combined(
    columns: Sequence[pa.Array], evaluation: Evaluation, compute: Callable[[pa.Array, pa.Array], pa.Array]
) -> pa.Array:
    return compute(*columns)


def _times(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    a, b = columns
    if pa.types.is_integer(b.type):
        made = integers_in(a) * integers_in(b)
        return pc.cast(column_of(made, pa.int64(), valid_of(columns)), evaluation.returns.arrow, safe=False)
    return pc.cast(
        pc.multiply(pc.cast(a, pa.float64()), pc.cast(b, pa.float64())), evaluation.returns.arrow, safe=False
    )


def _divided(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    divisor = pc.cast(columns[1], pa.float64())
    if pc.any(pc.equal(divisor, column_of(np.zeros(1), pa.float64())[0])).as_py():
        raise DivisionByZero(
            "an interval divided by zero",
            next="leave such rows out with NULLIF(x, 0)",
        )
    return pc.cast(pc.divide(pc.cast(columns[0], pa.float64()), divisor), evaluation.returns.arrow, safe=False)


def _negated(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return pc.negate(columns[0])


def _same(given: Sequence[Given]) -> SqlType:
    return given[0].type


FUNCTIONS: Sequence[SqlFunction] = (
    SqlFunction("DATETIME +", partial(_moved_type, sign="+"), partial(_moved, sign=1), is_total=True),
    SqlFunction("DATETIME -", partial(_moved_type, sign="-"), partial(_moved, sign=-1), is_total=True),
    SqlFunction("INTERVAL +", partial(_of_intervals, sign="+"), partial(_combined, compute=pc.add), is_total=True),
    SqlFunction("INTERVAL -", partial(_of_intervals, sign="-"), partial(_combined, compute=pc.subtract), is_total=True),
    SqlFunction("INTERVAL *", partial(_of_number, sign="*"), _times, is_total=True),
    SqlFunction("INTERVAL /", partial(_of_number, sign="/"), _divided),
    SqlFunction("- INTERVAL", _same, _negated, is_total=True),
)
