"""Times in texts of records: those in the usual layout by columns, as digits at fixed places; others one by one."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of, ends_in, valid_in
from poundlock.sql.types import SqlType

TimestampFormat = Literal["SQL", "ISO-8601"]
ReadTime = Callable[[str], "int | None"]
"""Reads one text: days, milliseconds of a day or units since 1970; None where it says no time."""

_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)([ Tt])(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{0,9}))?)?(Z?)", re.ASCII
)  # the day's parts, the clock's, and the zone
_LAX_MOMENT = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)( )(\d\d?):(\d\d?):(\d\d?)(?:\.(\d{1,9}))?()", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{0,9}))?)?", re.ASCII)
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_LAX_DAY = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)", re.ASCII)

_CLOCK_AT = ((5, 2), (8, 2), (11, 2), (14, 2), (17, 2))  # month, day, hour, minute, second behind the year
_WITHOUT_FRACTION, _LONGEST_FRACTION = 19, 9
_MICROS = 6
_DAY_SECONDS = 86_400
_LAST_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)


def digits_of(kind: SqlType) -> int:
    """Return how many digits of a second the units of a timestamp's column are."""
    return 6 if kind.sizes[0] <= _MICROS else 9


# --- columns ---------------------------------------------------------------------------------------------------------


def moments(column: pa.Array, kind: SqlType, standard: TimestampFormat, read: ReadTime) -> tuple[pa.Array, Flags]:
    """Return texts as timestamps, and which of them are none; these are null.

    Args:
        standard: how they are written mostly.
        read: reads what is written otherwise.
    """
    digits = digits_of(kind)
    ends, data = _bytes_in(column)
    starts, lengths = ends[:-1], np.diff(ends)
    values, plain = np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_)
    zone = 1 if kind.root == "TIMESTAMP_LTZ" else 0
    for length in np.unique(lengths).tolist():
        fraction = length - zone - _WITHOUT_FRACTION - 1
        if fraction != -1 and not 1 <= fraction <= _LONGEST_FRACTION:
            continue
        rows = np.flatnonzero(lengths == length)
        block = data[starts[rows][:, None] + np.arange(length)]
        marks = {4: "-", 7: "-", 10: "T" if standard == "ISO-8601" else " ", 13: ":", 16: ":"}
        if fraction > 0:
            marks[_WITHOUT_FRACTION] = "."
        if zone:
            marks[length - 1] = "Z"
        made, good = _block_moments(block, marks, max(fraction, 0), min(kind.sizes[0], digits), digits)
        values[rows], plain[rows] = made, good
    return _completed(column, values, plain, kind.arrow, read)


def days(column: pa.Array, read: ReadTime) -> tuple[pa.Array, Flags]:
    """Return texts such as 2026-01-05 as dates, and which of them are none; these are null."""
    ends, data = _bytes_in(column)
    rows = np.flatnonzero(np.diff(ends) == 10)
    values, plain = np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_)
    if len(rows):
        block = data[ends[:-1][rows][:, None] + np.arange(10)]
        good = _has_marks(block, {4: "-", 7: "-"})
        year, month, day = (_number(block, *at) for at in ((0, 4), (5, 2), (8, 2)))
        values[rows], plain[rows] = _days(year, month, day), good & _is_day(year, month, day)
    made, bad = _completed(column, values, plain, pa.int64(), read)
    return made.cast(pa.int32()).cast(pa.date32()), bad


def times(column: pa.Array, read: ReadTime) -> tuple[pa.Array, Flags]:
    """Return texts such as 10:00:00.5 as times of a day, and which of them are none; these are null."""
    none = np.zeros(len(column), np.bool_)
    made, bad = _completed(column, np.zeros(len(column), np.int64), none, pa.int64(), read)
    return made.cast(pa.int32()).cast(pa.time32("ms")), bad


def _bytes_in(column: pa.Array) -> tuple[Numbers, npt.NDArray[np.uint8]]:
    ends = ends_in(column)
    if len(ends) != len(column) + 1:
        ends = np.zeros(len(column) + 1, np.int64)
    data = column.buffers()[2]
    return ends, np.frombuffer(b"" if data is None else data, np.uint8)


def _completed(
    column: pa.Array, values: Numbers, plain: Flags, kind: pa.DataType, read: ReadTime
) -> tuple[pa.Array, Flags]:
    """Return the values as a column, those read alone that are not plain, and which texts could not be read."""
    valid = valid_in(column)
    there = np.ones(len(column), np.bool_) if valid is None else valid
    rest = np.flatnonzero(~plain & there)
    bad = np.zeros(len(column), np.bool_)
    if len(rest):
        known: dict[str, int | None] = {}
        for row, text in zip(rest.tolist(), column.take(column_of(rest, pa.int64())).to_pylist(), strict=True):
            if text not in known:
                known[text] = read(text)
            value = known[text]
            if value is None:
                bad[row] = True
            else:
                values[row] = value
    return column_of(values, kind, there & ~bad), bad


def _block_moments(
    block: npt.NDArray[np.uint8], marks: dict[int, str], fraction: int, kept: int, digits: int
) -> tuple[Numbers, Flags]:
    good = _has_marks(block, marks)
    year = _number(block, 0, 4)
    month, day, hour, minute, second = (_number(block, at, size) for at, size in _CLOCK_AT)
    good &= _is_day(year, month, day) & (hour < 24) & (minute < 60) & (second < 60)
    seconds = _days(year, month, day) * _DAY_SECONDS + hour * 3600 + minute * 60 + second
    values = seconds * 10**digits
    some = min(fraction, kept)
    if some:
        values += _number(block, _WITHOUT_FRACTION + 1, some) * 10 ** (digits - some)
    return values, good


def _has_marks(block: npt.NDArray[np.uint8], marks: dict[int, str]) -> Flags:
    """Return which rows have marks at some places and digits at all others."""
    good = np.ones(len(block), np.bool_)
    for place in range(block.shape[1]):
        column = block[:, place]
        good &= column == ord(marks[place]) if place in marks else (column - np.uint8(48)) <= 9
    return good


def _number(block: npt.NDArray[np.uint8], at: int, size: int) -> Numbers:
    value = np.zeros(len(block), np.int64)
    for place in range(at, at + size):
        value = value * 10 + (block[:, place].astype(np.int64) - 48)
    return value


def _is_day(year: Numbers, month: Numbers, day: Numbers) -> Flags:
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    last = _LAST_DAYS[np.clip(month, 0, 12)] + ((month == 2) & leap)
    known: Flags = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= last)
    return known


def _days(year: Numbers, month: Numbers, day: Numbers) -> Numbers:
    """Return the days from 1970-01-01 to days of the Gregorian calendar."""
    shifted = (14 - month) // 12
    y, m = year + 4800 - shifted, month + 12 * shifted - 3
    result: Numbers = day + (153 * m + 2) // 5 + 365 * y + y // 4 - y // 100 + y // 400 - 32045 - 2440588
    return result


# --- one text --------------------------------------------------------------------------------------------------------


def read_moment(text: str, kind: SqlType, standard: TimestampFormat) -> int | None:
    """Return the units since 1970 that a text says by a standard; seconds may be missing in ISO-8601, a day behind the month's last is that."""
    parts = _MOMENT.fullmatch(text)
    is_zoned, is_iso = kind.root == "TIMESTAMP_LTZ", standard == "ISO-8601"
    if parts is None or (parts[4] == " ") is is_iso or (parts[9] == "Z") is not is_zoned:
        return None
    if parts[7] is None and not is_iso:
        return None
    return _units(parts, kind, is_strict=is_iso and not is_zoned)


def read_lax_moment(text: str, kind: SqlType) -> int | None:
    """Return the units since 1970 of a text whose parts may have one digit, as Java's Timestamp reads it."""
    parts = _LAX_MOMENT.fullmatch(text.strip())
    return None if parts is None else _units(parts, kind, is_strict=False, rolls=True)


def read_day(text: str) -> int | None:
    """Return the days since 1970 of an ISO date."""
    parts = _DAY.fullmatch(text)
    return None if parts is None else _day_of(int(parts[1]), int(parts[2]), int(parts[3]))


def read_lax_day(text: str) -> int | None:
    """Return the days since 1970 of a date whose parts may have one digit, as Java's Date reads it: 02-31 is a day of March."""
    parts = _LAX_DAY.fullmatch(text.strip())
    return None if parts is None else _rolled_day(int(parts[1]), int(parts[2]), int(parts[3]))


def read_time(text: str, *, needs_seconds: bool) -> int | None:
    """Return the milliseconds of a day."""
    parts = _TIME.fullmatch(text)
    if parts is None or (needs_seconds and parts[3] is None):
        return None
    hour, minute, second = int(parts[1]), int(parts[2]), int(parts[3] or 0)
    if (hour, minute, second) == (24, 0, 0) and needs_seconds and not int(parts[4] or 0):
        return 0
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * 1000 + int(f"{parts[4] or '':0<3}"[:3])


def _units(parts: re.Match[str], kind: SqlType, *, is_strict: bool, rolls: bool = False) -> int | None:
    year, month, day, hour, minute = (int(parts[i]) for i in (1, 2, 3, 5, 6))
    second = int(parts[7] or 0)
    digits = digits_of(kind)
    fraction = int(f"{parts[8] or '':0<{digits}}"[: min(kind.sizes[0], digits)].ljust(digits, "0") or 0)
    is_midnight = (hour, minute, second, fraction) == (24, 0, 0, 0) and not is_strict  # of the next day
    if (hour > 23 and not is_midnight) or minute > 59 or second > 59:
        return None
    days = _rolled_day(year, month, day) if rolls else _day_of(year, month, day, is_strict=is_strict)
    if days is None:
        return None
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * int(10**digits) + fraction


def _day_of(year: int, month: int, day: int, *, is_strict: bool = True) -> int | None:
    if not 1 <= month <= 12 or not 1 <= day <= 31 or year < 1:
        return None
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    last = int(_LAST_DAYS[month]) + leap
    if day > last and is_strict:
        return None
    return date(year, month, min(day, last)).toordinal() - _EPOCH_DAY


def _rolled_day(year: int, month: int, day: int) -> int | None:
    if not 1 <= month <= 12 or not 1 <= day <= 31 or year < 1:
        return None
    return date(year, month, 1).toordinal() + day - 1 - _EPOCH_DAY


_EPOCH_DAY = date(1970, 1, 1).toordinal()
