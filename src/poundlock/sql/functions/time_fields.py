"""Functions of the fields of times: EXTRACT and its short names, rounding to a unit, sums and differences in units.

How the analysis calls those whose unit is a word; the unit is an option, in capitals:

| in a script | function | arguments | options |
|---|---|---|---|
| `EXTRACT(unit FROM x)` | EXTRACT | x | unit |
| `YEAR(x)`, `HOUR(x)`, … | YEAR, … | x | |
| `FLOOR(x TO unit)`, `CEIL(x TO unit)` | FLOOR_TO, CEIL_TO | x | unit |
| `TIMESTAMPADD(unit, n, x)` | TIMESTAMPADD | n, x | unit |
| `TIMESTAMPDIFF(unit, a, b)` | TIMESTAMPDIFF | a, b | unit |

Units: `EXTRACT_UNITS`, `ROUND_UNITS`, `SUM_UNITS`, with or without SQL_TSI_ before them; the analysis refuses others (`unit_in`).

TIMESTAMP_LTZ has the fields of the session's zone. Weeks are ISO's for WEEK, DAYOFWEEK and DOW begin with Sunday as 1, rounding to WEEK
goes to Sundays. Unlike Flink, fields of times before 1970 are those of their wall time, and CEIL never goes beyond the next unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import Numbers, column_of, valid_in
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction
from poundlock.sql.functions.kernels.distinct import integers_in, valid_of
from poundlock.sql.functions.kernels.time_values import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    civil_of,
    column_of_micros,
    days_of,
    micros_in,
    months_added,
    nanos_in,
    to_instant,
    to_local,
)
from poundlock.sql.functions.signatures import BIGINT, DATE, INT, TIMESTAMP_3, Run, defined, is_null
from poundlock.sql.types import SqlType

_FIXED: Mapping[str, int] = {
    "MICROSECOND": 1, "MILLISECOND": 1_000, "SECOND": SECOND, "MINUTE": MINUTE, "HOUR": HOUR, "DAY": DAY, "WEEK": 7 * DAY,
}  # fmt: skip
_MONTHS: Mapping[str, int] = {
    "MONTH": 1, "QUARTER": 3, "YEAR": 12, "DECADE": 120, "CENTURY": 1_200, "MILLENNIUM": 12_000,
}  # fmt: skip
SUM_UNITS = frozenset((*_FIXED, "MONTH", "QUARTER", "YEAR"))
ROUND_UNITS = frozenset((*_FIXED, *_MONTHS))
_SUNDAY = 3  # 1970-01-04
_MONDAY = 4  # 1970-01-05


def unit_in(word: str, units: frozenset[str]) -> str:
    """Return the unit that a word of a script is.

    Raises:
        DefinitionError: it is none of these.
    """
    unit = word.upper().removeprefix("SQL_TSI_")
    if unit not in units:
        raise DefinitionError(f"there is no unit {word} here", next=f"write one of {', '.join(sorted(units))}")
    return unit


# --- fields ------------------------------------------------------------------------------------------------------------


def _local(column: pa.Array, evaluation: Evaluation) -> Numbers:
    """Return the wall times of a column, those of the session's zone where it has instants."""
    micros = micros_in(column)
    is_instant = pa.types.is_timestamp(column.type) and column.type.tz is not None
    return to_local(micros, evaluation.zone) if is_instant else micros


def _day_of_year(days: Numbers) -> Numbers:
    year, _, _ = civil_of(days)
    return days - days_of(year, np.ones(1, np.int64), np.ones(1, np.int64)) + 1


def _iso_year(days: Numbers) -> Numbers:
    """Return the year of the Thursday of each day's week."""
    return civil_of(days - (days - _MONDAY) % 7 + 3)[0]


def _iso_week(days: Numbers) -> Numbers:
    thursday = days - (days - _MONDAY) % 7 + 3
    return (_day_of_year(thursday) - 1) // 7 + 1


def _in_years(count: int) -> Callable[[Numbers], Numbers]:
    return lambda days: (civil_of(days)[0] + count - 1) // count


_OF_DAYS: Mapping[str, Callable[[Numbers], Numbers]] = {
    "YEAR": lambda days: civil_of(days)[0],
    "QUARTER": lambda days: (civil_of(days)[1] + 2) // 3,
    "MONTH": lambda days: civil_of(days)[1],
    "WEEK": _iso_week,
    "DAY": lambda days: civil_of(days)[2],
    "DOY": _day_of_year,
    "DOW": lambda days: (days - _SUNDAY) % 7 + 1,
    "ISODOW": lambda days: (days - _MONDAY) % 7 + 1,
    "ISOYEAR": _iso_year,
    "DECADE": lambda days: civil_of(days)[0] // 10,
    "CENTURY": _in_years(100),
    "MILLENNIUM": _in_years(1_000),
}
_OF_TIME: Mapping[str, Callable[[Numbers], Numbers]] = {
    "HOUR": lambda within: within // HOUR,
    "MINUTE": lambda within: within // MINUTE % 60,
    "SECOND": lambda within: within // SECOND % 60,
    "MILLISECOND": lambda within: within // 1_000 % 1_000,
    "MICROSECOND": lambda within: within % SECOND,
    "NANOSECOND": lambda within: within % SECOND * 1_000,
}
EXTRACT_UNITS = frozenset((*_OF_DAYS, *_OF_TIME, "EPOCH"))


def _field(column: pa.Array, unit: str, evaluation: Evaluation) -> pa.Array:
    local = _local(column, evaluation)
    if unit == "EPOCH":
        values = micros_in(column) // SECOND
    elif unit in _OF_DAYS:
        values = _OF_DAYS[unit](local // DAY)
    else:
        nanos = nanos_in(column)
        values = _OF_TIME[unit](local % DAY) + (0 if nanos is None or unit != "NANOSECOND" else nanos)
    return column_of(np.asarray(values, np.int64), pa.int64(), valid_in(column))


def _extract(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return _field(columns[0], unit_in(evaluation.options[0], EXTRACT_UNITS), evaluation)


def _of_unit(unit: str) -> Run:
    return lambda columns, evaluation: _field(columns[0], unit, evaluation)


# --- rounding ----------------------------------------------------------------------------------------------------------


def _floor(local: Numbers, unit: str) -> Numbers:
    if unit == "WEEK":
        return local - (local - _SUNDAY * DAY) % (7 * DAY)
    if unit in _FIXED:
        return local - local % _FIXED[unit]
    year, month, _ = civil_of(local // DAY)
    one = np.ones(1, np.int64)
    if unit in ("CENTURY", "MILLENNIUM"):
        size = _MONTHS[unit] // 12
        return days_of((year - 1) // size * size + 1, one, one) * DAY
    months = year * 12 + month - 1
    return days_of(np.zeros(1, np.int64), months // _MONTHS[unit] * _MONTHS[unit] + 1, one) * DAY


def _ceiling(local: Numbers, unit: str) -> Numbers:
    floor = _floor(local, unit)
    after = floor + _FIXED[unit] if unit in _FIXED else months_added(floor, np.full(len(floor), _MONTHS[unit]))
    return np.where(floor == local, local, after)


def _rounds(rounding: Callable[[Numbers, str], Numbers]) -> Run:
    def run(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
        (column,) = columns
        unit = unit_in(evaluation.options[0], ROUND_UNITS)
        kind = column.type
        is_instant = pa.types.is_timestamp(kind) and kind.tz is not None
        nanos = nanos_in(column)
        local = _local(column, evaluation) + (0 if nanos is None or rounding is _floor else np.minimum(nanos, 1))
        rounded = rounding(local, unit)
        micros = to_instant(rounded, evaluation.zone) if is_instant else rounded
        return column_of_micros(micros, kind, valid_in(column))

    return run


# --- sums and differences -----------------------------------------------------------------------------------------------


def _add(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return times some units later; of months the last day if it is shorter."""
    count, column = integers_in(columns[0]), columns[1]
    unit = unit_in(evaluation.options[0], SUM_UNITS)
    valid = valid_of(columns)
    count = count if valid is None else np.where(valid, count, 0)
    kind = evaluation.returns.arrow
    if unit in _FIXED:
        return column_of_micros(micros_in(column) + count * _FIXED[unit], kind, valid, nanos_in(column))
    later = months_added(_local(column, evaluation), count * _MONTHS[unit])
    is_instant = pa.types.is_timestamp(column.type) and column.type.tz is not None
    micros = to_instant(later, evaluation.zone) if is_instant else later
    return column_of_micros(micros, kind, valid, nanos_in(column))


def _add_type(given: Sequence[Given]) -> SqlType:
    """Return the type of the time; the analysis asks `sum_type` where the unit is less than a day."""
    return TIMESTAMP_3 if is_null(given[1]) else given[1].type


def sum_type(time: SqlType, unit: str) -> SqlType:
    """Return the type of TIMESTAMPADD: of a date and a unit below a day a timestamp, otherwise that of the time."""
    is_time = time.root == "DATE" and _FIXED.get(unit, DAY) < DAY
    return replace(TIMESTAMP_3, is_nullable=time.is_nullable) if is_time else time


def _difference(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return how many whole units are between two times; what is left of a unit is cut off."""
    unit = unit_in(evaluation.options[0], SUM_UNITS)
    valid = valid_of(columns)
    if unit in _FIXED:
        first, second = (micros_in(column) for column in columns)
        between = second - first
        whole = np.sign(between) * (np.abs(between) // _FIXED[unit])
    else:
        first, second = (_local(column, evaluation) for column in columns)
        months = _whole_months(first, second)
        whole = np.sign(months) * (np.abs(months) // _MONTHS[unit])
    return column_of(whole.astype(np.int32), pa.int32(), valid)


def _whole_months(first: Numbers, second: Numbers) -> Numbers:
    """Return the greatest number of months, with its sign, by which the first time does not go beyond the second."""
    (year, month, _), (later_year, later_month, _) = civil_of(first // DAY), civil_of(second // DAY)
    months = (later_year - year) * 12 + later_month - month
    reached = months_added(first, months)
    months = months - ((months > 0) & (reached > second)) + ((months < 0) & (reached < second))
    return months


def _date_diff(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the days from the second date to the first."""
    end, start = (_local(column, evaluation) // DAY for column in columns)
    return column_of((end - start).astype(np.int32), pa.int32(), valid_of(columns))


def _date_sum(sign: int) -> Run:
    def run(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
        days = _local(columns[0], evaluation) // DAY + sign * integers_in(columns[1])
        return column_of_micros(days * DAY, pa.date32(), valid_of(columns))

    return run


def _time_type(given: Sequence[Given]) -> SqlType:
    return TIMESTAMP_3 if is_null(given[0]) else given[0].type


_SHORT = {
    "YEAR": "YEAR", "QUARTER": "QUARTER", "MONTH": "MONTH", "WEEK": "WEEK", "DAYOFYEAR": "DOY", "DAYOFMONTH": "DAY",
    "DAYOFWEEK": "DOW", "HOUR": "HOUR", "MINUTE": "MINUTE", "SECOND": "SECOND",
}  # fmt: skip
_TIME = "point in time"
_DATE = "date or timestamp"

FUNCTIONS: Sequence[SqlFunction] = (
    defined("EXTRACT", _TIME, BIGINT, _extract),
    *(defined(name, _TIME, BIGINT, _of_unit(unit)) for name, unit in _SHORT.items()),
    defined("FLOOR_TO", _TIME, _time_type, _rounds(_floor)),
    defined("CEIL_TO", _TIME, _time_type, _rounds(_ceiling)),
    defined("TIMESTAMPADD", f"integer, {_DATE}", _add_type, _add),
    defined("TIMESTAMPDIFF", f"{_DATE}, {_DATE}", INT, _difference),
    defined("DATEDIFF", f"{_DATE}, {_DATE}", INT, _date_diff),
    defined("DATE_ADD", f"{_DATE}, integer", DATE, _date_sum(1)),
    defined("DATE_SUB", f"{_DATE}, integer", DATE, _date_sum(-1)),
)
