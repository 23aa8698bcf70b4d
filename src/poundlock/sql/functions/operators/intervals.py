"""Dates, times and timestamps plus and minus intervals, and arithmetic of intervals.

An interval is a number of months (INT) or of milliseconds (BIGINT). A month later than the 31st is the last day of a shorter month.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import column_of
from poundlock.sql.coercion import INTERVALS, NUMBERS
from poundlock.sql.functions.function import Evaluation, EvaluationError, Given, SqlFunction, TypeMismatch
from poundlock.sql.kernels.columns import both_valid, int_values
from poundlock.sql.kernels.zones import instants_of, local_of
from poundlock.sql.types import SqlType

DATETIMES = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")
DAY_MS = 86_400_000
_UNITS_OF_MS = {"s": 1000, "ms": 1, "us": 1000, "ns": 1_000_000}
Numbers = npt.NDArray[np.int64]


def months_later(days: Numbers, months: Numbers) -> Numbers:
    """Return days since 1970 so many months later, at most the last of that month."""
    whole = days.astype("datetime64[D]")
    month = whole.astype("datetime64[M]")
    day = (whole - month.astype("datetime64[D]")).astype(np.int64)
    later = month + months
    begin = later.astype("datetime64[D]")
    last = ((later + 1).astype("datetime64[D]") - begin).astype(np.int64) - 1
    result: Numbers = begin.astype(np.int64) + np.minimum(day, last)
    return result


def later(column: pa.Array, interval: pa.Array, evaluation: Evaluation, sign: int) -> pa.Array:
    """Return dates, times or timestamps plus an interval; minus it where the sign is -1."""
    kind = evaluation.returns
    valid = both_valid((column, interval))
    by = sign * int_values(interval)
    of_months = interval.type == pa.int32()
    if kind.root == "DATE":
        days = int_values(column)
        made = months_later(days, by) if of_months else days + by // DAY_MS
        return column_of(made.astype(np.int32), kind.arrow, valid)
    if kind.root == "TIME":
        made = int_values(column) if of_months else (int_values(column) + by) % DAY_MS
        return column_of(made.astype(np.int32), kind.arrow, valid)
    if pa.types.is_date(column.type):
        column = pc.cast(column, kind.arrow)
    if of_months and kind.root == "TIMESTAMP_LTZ":
        local = local_of(column, evaluation.zone)
        moved = column_of(_months_of(local, by), local.type, valid)
        return pc.cast(instants_of(moved, evaluation.zone), kind.arrow)
    if of_months:
        return column_of(_months_of(column, by), kind.arrow, valid)
    return column_of(int_values(column) + by * _UNITS_OF_MS[column.type.unit], kind.arrow, valid)


def _months_of(column: pa.Array, months: Numbers) -> Numbers:
    day = DAY_MS * _UNITS_OF_MS[column.type.unit]
    values = int_values(column)
    return months_later(values // day, months) * day + values % day


def _moved_type(given: Sequence[Given], sign: str) -> SqlType:
    at, by = given
    if at.type.root not in DATETIMES or by.type.root not in INTERVALS:
        raise TypeMismatch(
            f"{at.type} {sign} {by.type}: an interval goes with a date, time or timestamp",
            next=f"write ts {sign} INTERVAL '1' DAY",
        )
    made = at.type
    if made.root == "DATE" and by.type.root == "INTERVAL_DAY_TIME" and by.value is not None and by.value % DAY_MS:
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
        made = int_values(a) * int_values(b)
        return pc.cast(column_of(made, pa.int64(), both_valid(columns)), evaluation.returns.arrow, safe=False)
    return pc.cast(
        pc.multiply(pc.cast(a, pa.float64()), pc.cast(b, pa.float64())), evaluation.returns.arrow, safe=False
    )


def _divided(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    divisor = pc.cast(columns[1], pa.float64())
    if pc.any(pc.equal(divisor, column_of(np.zeros(1), pa.float64())[0])).as_py():
        raise EvaluationError(
            "an interval divided by zero", next="leave such rows out with NULLIF(x, 0)", kind="division_by_zero"
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
