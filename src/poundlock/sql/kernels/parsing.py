"""Values of texts, as CAST reads them: null where a text is none of the type.

Numbers are read column by column; the rest value by value, each different text once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import tzinfo
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import column_of, numbers_in, texts_of
from poundlock.sql.kernels.columns import (
    by_value,
    numbers,
    trues,
    truths,
    wrapped,
)
from poundlock.sql.kernels.decimals import of_decimals
from poundlock.sql.kernels.zones import instants_of
from poundlock.sql.types import SqlType

_WHOLE = r"^(?P<sign>[+-]?)0*(?P<digits>[0-9]*)(?P<rest>\.[0-9]*)?$"
_LONGEST_WHOLE = 19  # digits of the greatest 64-bit number
_REAL = re.compile(
    r"\s*([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?=[dDfF]?\s*$)))[dDfF]?\s*", re.ASCII
)
_DECIMAL = re.compile(r"[ \n\t]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[ \n\t]*", re.ASCII)
_TIMESTAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII)
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_DAYS_OF_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS = 86_400_000, 3_600_000, 60_000, 1000
_MICROS, _NANOS = 6, 9  # digits of a second


def whole_numbers(column: pa.Array, kind: SqlType) -> pa.Array:
    """Return integers; what stands behind a point is left out."""
    trimmed = pc.ascii_trim(column, " ")
    parts = pc.extract_regex(trimmed, _WHOLE)
    sign, digits = pc.struct_field(parts, "sign"), pc.struct_field(parts, "digits")
    # Something has to stand behind a sign, be it a point; zeros in front are gone from the digits.
    is_number = pc.and_(pc.is_valid(parts), pc.greater(pc.utf8_length(trimmed), pc.utf8_length(sign)))
    is_number = pc.and_(
        is_number, pc.less_equal(pc.utf8_length(digits), column_of(np.array([_LONGEST_WHOLE], "i4"), pa.int32())[0])
    )
    read = trues(is_number)
    plain = pc.if_else(pc.and_(truths(read), pc.not_equal(digits, texts_of([""])[0])), digits, texts_of(["0"])[0])
    size = numbers_in(pc.cast(plain, pa.uint64()))
    negative = trues(pc.equal(sign, texts_of(["-"])[0]))
    most = np.uint64(1 << (kind.arrow.bit_width - 1))
    read &= np.where(negative, size <= most, size < most)
    values = size.astype(np.int64)
    return column_of(wrapped(np.where(negative, -values, values), kind.arrow), kind.arrow, read)


def reals(column: pa.Array, kind: SqlType) -> pa.Array:
    """Return floating point numbers."""
    dtype = np.float32 if kind.root == "FLOAT" else np.float64
    return by_value(column, lambda values: numbers(list(map(_real, values)), kind.arrow, dtype))


def decimal_numbers(column: pa.Array, kind: SqlType) -> pa.Array:
    """Return decimals, rounded half up."""
    return by_value(column, lambda values: of_decimals(list(map(_decimal, values)), kind))


def truth_values(column: pa.Array) -> pa.Array:
    """Return true for t, true, y, yes, 1, false for f, false, n, no, 0, in letters of either case."""
    lower = pc.utf8_lower(column)
    true, false = (pc.is_in(lower, value_set=texts_of(words)) for words in (_TRUE, _FALSE))
    return truths(trues(true), trues(pc.or_(true, false)))


def dates(column: pa.Array) -> pa.Array:
    """Return dates: year, year-month or year-month-day, without what stands behind a blank."""
    return by_value(column, lambda values: numbers(list(map(day_of_text, values)), pa.date32(), np.int32))


def times(column: pa.Array, kind: SqlType) -> pa.Array:
    """Return times of a day: hour, hour:minute or hour:minute:second, with a fraction and an offset where there are any."""
    unit = 10 ** max(3 - kind.sizes[0], 0)
    return by_value(
        column,
        lambda values: numbers(
            [None if ms is None else ms // unit * unit for ms in map(_time, values)], pa.time32("ms"), np.int32
        ),
    )


def timestamps(column: pa.Array, kind: SqlType, zone: tzinfo) -> pa.Array:
    """Return timestamps: year-month-day, and hour:minute:second with up to nine digits of a fraction; a day behind the month's last is that."""
    precision = kind.sizes[0]
    unit, digits = ("us", _MICROS) if precision <= _MICROS else ("ns", _NANOS)
    read: Callable[[str], int | None] = partial(_timestamp, precision=precision, digits=digits)
    local = by_value(column, lambda values: numbers(list(map(read, values)), pa.timestamp(unit), np.int64))
    return instants_of(local, zone) if kind.root == "TIMESTAMP_LTZ" else local


def day_of(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a day of the Gregorian calendar."""
    shifted = (14 - month) // 12
    y, m = year + 4800 - shifted, month + 12 * shifted - 3
    return day + (153 * m + 2) // 5 + 365 * y + y // 4 - y // 100 + y // 400 - 32045 - 2440588


def day_of_text(text: str) -> int | None:
    """Return the day that a text says, None where it says none."""
    blank = text.find(" ")
    parts = [part.strip() for part in (text[:blank] if blank > 0 else text).split("-", 2)]
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    year, month, day = (*map(int, parts), 1, 1)[:3]
    return day_of(year, month, day) if _is_day(year, month, day) else None


def _is_day(year: int, month: int, day: int) -> bool:
    return 0 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= _last_day(year, month)


def _last_day(year: int, month: int) -> int:
    is_leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _DAYS_OF_MONTHS[month - 1] + is_leap


def _real(text: str) -> float | None:
    matched = _REAL.fullmatch(text)
    return None if matched is None else float(matched[1])


def _decimal(text: str) -> Decimal | None:
    matched = _DECIMAL.fullmatch(text)
    return None if matched is None else Decimal(matched[1])


def _time(text: str) -> int | None:
    at = max(text.find("-"), -1)
    sign = -1
    if at < 0:
        at, sign = text.find("+"), 1
    offset = text[at + 1 :].split(":", 1) if at >= 0 else ["0"]
    clock, point, fraction = (text[:at] if at >= 0 else text).partition(".")
    parts = [part.strip() for part in clock.split(":", 2)]
    ahead = [part.strip() for part in offset]
    if not all(part.isascii() and part.isdigit() for part in (*parts, *ahead)) or (point and len(parts) < 3):
        return None
    hour, minute, second = (*map(int, parts), 0, 0)[:3]
    hours, minutes = (*map(int, ahead), 0)[:2]
    ms = (hour + sign * hours) * _HOUR_MS + (minute + sign * minutes) * _MINUTE_MS + second * _SECOND_MS
    return ms + _milliseconds(fraction.strip())


def _milliseconds(fraction: str) -> int:
    digits = [int(digit) if digit.isdigit() else 0 for digit in f"{fraction:0<4}"[:4]]
    return digits[0] * 100 + digits[1] * 10 + digits[2] + (digits[3] >= 5)


def _timestamp(text: str, precision: int, digits: int) -> int | None:
    """Return the units since 1970, of so many digits of a second."""
    matched = _TIMESTAMP.fullmatch(text)
    if matched is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in matched.groups()[:6])
    if not 1 <= month <= 12 or not 1 <= day <= 31 or hour > 23 or minute > 59 or second > 59 or year < 1:
        return None
    days = day_of(year, month, min(day, _last_day(year, month)))
    fraction = int(f"{matched[7] or '':0<{digits}}"[: min(precision, digits)].ljust(digits, "0") or 0)
    whole: int = (days * 86_400 + hour * 3600 + minute * 60 + second) * 10**digits
    return whole + fraction
