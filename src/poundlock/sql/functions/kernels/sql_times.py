"""Dates and timestamps as SQL writes them, for one text: 2024-02-29, 2024-2-3 4:05:06.789."""

from __future__ import annotations

import re

from poundlock.sql.functions.kernels.time_values import DAY, HOUR, MINUTE, SECOND

_TIMESTAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII)
_DATE = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?)?", re.ASCII)

_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def timestamp_micros(text: str, *, is_lenient: bool = False) -> int | None:
    """Return the wall time that a text is, microseconds since 1970, None if it is none.

    Args:
        is_lenient: whether the 31st of a short month is a day of the next one; otherwise it is its last day.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(each or 0) for each in match.groups()[:6])
    is_midnight = hour == 24 and not (minute or second or int(match[7] or 0)) and not is_lenient
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 + is_midnight and minute < 60 and second < 60):
        return None
    days = day_of(year, month, day if is_lenient else min(day, _longest(year, month)))
    fraction = int((match[7] or "").ljust(9, "0")[:6])
    return days * DAY + hour * HOUR + minute * MINUTE + second * SECOND + fraction


def date_days(text: str) -> int | None:
    """Return the date that a text is up to its first blank, days since 1970, None if it is none; month and day may be missing."""
    blank = text.find(" ")
    match = _DATE.fullmatch(text[:blank] if blank > 0 else text)
    if match is None:
        return None
    year, month, day = (1 if each is None else int(each) for each in match.groups())
    if year > 9999 or not 1 <= month <= 12 or not 1 <= day <= _longest(year, month):
        return None
    return day_of(year, month, day)


def day_of(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a date, whose day may be beyond its month's last."""
    shifted = (14 - month) // 12
    y, m = year + 4800 - shifted, month + 12 * shifted - 3
    return day + (153 * m + 2) // 5 + 365 * y + y // 4 - y // 100 + y // 400 - 32045 - 2440588


def _longest(year: int, month: int) -> int:
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _LENGTHS[month - 1] + (month == 2 and is_leap)
