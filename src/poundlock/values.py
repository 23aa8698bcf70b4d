"""Small frozen values that are parsed once, where the user says them: durations, sizes, clocks.

Nothing here imports anything but the standard library.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo

from poundlock.errors import DefinitionError

_RETENTIONS = ("RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION")
_MODES = ("EXACTLY_ONCE", "AT_LEAST_ONCE")

_UNITS_S = {
    "ms": 0.001, "millisecond": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0,
    "h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0,
}  # fmt: skip
_UNITS_B = {
    "b": 1, "byte": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20,
    "g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30, "t": 1 << 40, "tb": 1 << 40, "tib": 1 << 40,
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1)
_GMT = re.compile(r"GMT([+-])([0-9]{1,2})(?::([0-9]{2}))?")
_HOURS = range(-12, 15)  # east of Greenwich, for which the database has a zone without minutes
_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def _split(text: str, units: dict[str, float] | dict[str, int], what: str, example: str) -> tuple[float, float]:
    match = _TEXT.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is None or (unit not in units and unit.removesuffix("s") not in units):
        raise DefinitionError(f"{text!r} is not a {what}", next=f'write a number and a unit, such as "{example}"')
    return float(match[1]), float(units.get(unit) or units[unit.removesuffix("s")])


def time_zone(name: object) -> tzinfo:
    """Return a time zone.

    Args:
        name: of the zone database, such as "Europe/Berlin" and "UTC", or as Java has it: "GMT+8", "GMT+08:00", "GMT-03:30", east of
            Greenwich with +. Of those the ones without minutes are zones of the database.

    Raises:
        DefinitionError: there is none of that name.
    """
    try:
        given = _GMT.fullmatch(name) if isinstance(name, str) else None
        if given is None:
            return ZoneInfo(name)  # type: ignore[arg-type]
        hours, minutes = int(f"{given[1]}{given[2]}"), int(given[3] or 0)
        if abs(hours) > 23 or minutes > 59:
            raise ValueError(name)
        if not minutes and hours in _HOURS:  # the database's names have the other sign
            return ZoneInfo(f"Etc/GMT{'-' if given[1] == '+' else '+'}{abs(hours)}")
        span = timedelta(hours=abs(hours), minutes=minutes)
        return timezone(-span if given[1] == "-" else span)
    except (ValueError, KeyError, OSError, TypeError, AttributeError):
        raise DefinitionError(
            f"{name!r} is no time zone",
            next='write a name such as "Europe/Berlin", an offset such as "GMT-08:00", or "UTC"',
        ) from None


def duration(value: str | timedelta) -> timedelta:
    """Return a time span from text such as "60 s", "500 ms", "1 min", "2 h", or a timedelta.

    Raises:
        DefinitionError: the text has no unit that is known, or the span is negative or too long.
    """
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise DefinitionError(f"{value!r} is negative", next="give a span of zero or more")
        return value
    if not isinstance(value, str):
        raise DefinitionError(f"{value!r} is not a duration", next='write a number and a unit, such as "60 s"')
    number, unit = _split(value, _UNITS_S, "duration", "60 s")
    try:
        return timedelta(seconds=number * unit)
    except OverflowError:
        raise DefinitionError(
            f"{value!r} is longer than 999999999 days", next='give a shorter time, such as "60 s"'
        ) from None


def positive(what: str, value: str | timedelta) -> timedelta:
    """Return a time span of at least a millisecond, the unit of event time.

    Args:
        what: what it is, for the message.
        value: as for `duration`.

    Raises:
        DefinitionError: it is shorter, or none.
    """
    span = duration(value)
    if span < timedelta(milliseconds=1):
        raise DefinitionError(f"{what} is {format_duration(span)}", next=f'give a {what} above zero, such as "10 s"')
    return span


def signed_duration(value: str | timedelta) -> timedelta:
    """Return a time span that may be negative, such as "-8 h"."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str) and value.strip().startswith("-"):
        return -duration(value.strip()[1:])
    return duration(value)


def span_ms(value: str | timedelta) -> int:
    """Return a time span, which may be negative, in whole milliseconds."""
    return signed_duration(value) // timedelta(milliseconds=1)


def positive_number(what: str, value: object) -> int:
    """Return a whole number of 1 or more.

    Raises:
        DefinitionError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DefinitionError(f"{what} is {value!r}", next=f"give a {what} of 1 or more, such as 100")
    return value


def size(value: str | int) -> int:
    """Return a number of bytes from text such as "128 MB" (1 MB = 1024 * 1024 bytes, as in Flink) or a whole number.

    Raises:
        DefinitionError: the text has no unit that is known, or the number is negative.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise DefinitionError(f"{value!r} is negative", next="give a size of zero bytes or more")
        return value
    if not isinstance(value, str):
        raise DefinitionError(f"{value!r} is not a size", next='write a number and a unit, such as "128 MB"')
    number, unit = _split(value, _UNITS_B, "size", "128 MB")
    return int(number * unit)


def format_bytes(count: float) -> str:
    """Return a number of bytes for people: 1536 -> "1.5 KB"."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


def grown_s(initial_s: float, multiplier: float, longest_s: float, times: int) -> float:
    """Return a delay in seconds that grew so many times, each time by the multiplier; never more than the longest."""
    delay = initial_s
    for _ in range(times):
        delay = min(delay * multiplier, longest_s)
        if delay >= longest_s:
            break
    return delay


def format_duration(span: timedelta) -> str:
    """Return a time span for people: 90 s -> "1.5 min"."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for limit, divisor, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:g} {unit}"
    return f"{seconds / 86400:g} d"


def utc_text(ms: int | None) -> str:
    """Return a time for people, in UTC: `2018-12-19T01:50:26.432Z`; "-" for none. One that no calendar has stays a number."""
    if ms is None:
        return "-"
    try:
        return f"{(_EPOCH + timedelta(milliseconds=ms)).isoformat('T', 'milliseconds')}Z"
    except OverflowError:
        return str(ms)


def ms_ahead(shown_ms: int, asked_ms: int, answered_ms: int, grain_ms: int = 1) -> int:
    """Return by how many ms another clock is ahead of this one, by what it showed between two moments of this one's; negative = behind.

    0 where it was within the time that the answer took: more is not known.

    Args:
        grain_ms: in which steps it shows the time, rounded down.
    """
    if shown_ms > answered_ms:
        return shown_ms - answered_ms
    return min(0, shown_ms + grain_ms - 1 - asked_ms)


def checkpoint_retention(value: object) -> str:
    """Return what becomes of a cancelled job's checkpoint, in Flink's words and any spelling of them.

    Raises:
        DefinitionError: it is none of them.
    """
    return _word(value, _RETENTIONS)


def checkpointing_mode(value: object) -> str:
    """Return what a job's checkpoints promise, in Flink's words and any spelling of them.

    Raises:
        DefinitionError: it is none of them.
    """
    return _word(value, _MODES)


def _word(value: object, known: Sequence[str]) -> str:
    """Return one of the words that Flink writes in capitals, however it is spelt. Raises DefinitionError if it is none."""
    name = value.strip().upper().replace("-", "_") if isinstance(value, str) else ""
    if name not in known:
        raise DefinitionError(f"{value!r} is not known", next=f"use {' or '.join(known)}")
    return name


class Clock(Protocol):
    """Where the time comes from; passed in, so that a test can hold it still."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01T00:00:00Z."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is set. It never goes back."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now = now_ms

    def now_ms(self) -> int:
        return self._now

    def set(self, now_ms: int) -> None:
        self._now = max(self._now, now_ms)
