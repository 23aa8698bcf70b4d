"""Points in time as microseconds since 1970 in numpy: columns of every type, time zones, and the fields of a calendar.

The calendar is the Gregorian one, also before 1582. A wall time that a zone skips is taken as one hour later, as Java does; of one that
comes twice the first, or for `of_standard` the one of standard time, as java.time and SimpleDateFormat have it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of, numbers_in, valid_in

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND
_SLOT = 900 * SECOND  # offsets of zones change at full quarters of an hour
_DENSE = 1 << 16
_EPOCH = datetime(1970, 1, 1)
_LEAST, _MOST = -62_135_596_800 * SECOND + DAY, 253_402_300_800 * SECOND - 2 * DAY


def micros_in(column: pa.Array) -> Numbers:
    """Return dates, times and timestamps as microseconds, 0 at nulls; what is below a microsecond is cut off."""
    numbers = numbers_in(column).astype(np.int64)
    valid = valid_in(column)
    if valid is not None:
        numbers = np.where(valid, numbers, 0)
    kind = column.type
    if pa.types.is_date32(kind):
        return numbers * DAY
    unit = {"s": SECOND, "ms": 1_000, "us": 1, "ns": -1_000}[kind.unit]
    return numbers * unit if unit > 0 else numbers // -unit


def nanos_in(column: pa.Array) -> Numbers | None:
    """Return the nanoseconds that `micros_in` cuts off; None where the type has none."""
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.unit != "ns":
        return None
    valid = valid_in(column)
    rest: Numbers = numbers_in(column).astype(np.int64) % 1_000
    return rest if valid is None else np.where(valid, rest, 0)


def column_of_micros(micros: Numbers, kind: pa.DataType, valid: Flags | None, nanos: Numbers | None = None) -> pa.Array:
    """Return microseconds as a column of dates, times or timestamps."""
    if pa.types.is_date32(kind):
        return column_of((micros // DAY).astype(np.int32), kind, valid)
    if pa.types.is_time32(kind):
        return column_of((micros // 1_000).astype(np.int32), kind, valid)
    if kind.unit == "ns":
        return column_of(micros * 1_000 + (0 if nanos is None else nanos), kind, valid)
    return column_of(micros, kind, valid)


def to_local(micros: Numbers, zone: tzinfo) -> Numbers:
    """Return the wall time of a zone at some instants, as microseconds since its 1970."""
    return micros + _offsets(micros, zone, _offset_of_instant)


def to_instant(local: Numbers, zone: tzinfo, *, of_standard: bool = False) -> Numbers:
    """Return the instants at which a zone has some wall times."""
    first = _offsets(local, zone, _offset_of_first)
    if not of_standard:
        return local - first
    return local - np.minimum(first, _offsets(local, zone, _offset_of_second))


def local_column(instants: pa.Array, zone: tzinfo) -> pa.Array:
    """Return the wall times of instants, as timestamps of the same unit without a zone."""
    kind = pa.timestamp(instants.type.unit)
    return column_of_micros(to_local(micros_in(instants), zone), kind, valid_in(instants), nanos_in(instants))


def instant_column(local: pa.Array, zone: tzinfo) -> pa.Array:
    """Return the instants of wall times, as timestamps of the same unit in UTC."""
    kind = pa.timestamp(local.type.unit, "UTC")
    return column_of_micros(to_instant(micros_in(local), zone), kind, valid_in(local), nanos_in(local))


def _offsets(micros: Numbers, zone: tzinfo, of_slot: Callable[[tzinfo, int], int]) -> Numbers:
    fixed = zone.utcoffset(None)
    if fixed is not None or not len(micros):
        return np.full(len(micros), 0 if fixed is None else fixed // timedelta(microseconds=1))
    slots = micros // _SLOT
    low, high = int(slots.min()), int(slots.max())
    if high - low >= _DENSE:
        different, places = np.unique(slots, return_inverse=True)
        return np.array([of_slot(zone, slot) for slot in different.tolist()], np.int64)[places]
    table = np.zeros(high - low + 1, np.int64)
    is_used = np.zeros(len(table), np.bool_)
    is_used[slots - low] = True
    used = np.flatnonzero(is_used)
    table[used] = [of_slot(zone, slot) for slot in (used + low).tolist()]
    result: Numbers = table[slots - low]
    return result


@lru_cache(maxsize=1 << 16)
def _offset_of_instant(zone: tzinfo, slot: int) -> int:
    moment = _EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=min(max(slot * _SLOT, _LEAST), _MOST))
    return _micros(moment.astimezone(zone).utcoffset())


@lru_cache(maxsize=1 << 16)
def _offset_of_first(zone: tzinfo, slot: int) -> int:
    return _micros(_wall(zone, slot).utcoffset())


@lru_cache(maxsize=1 << 16)
def _offset_of_second(zone: tzinfo, slot: int) -> int:
    return _micros(_wall(zone, slot).replace(fold=1).utcoffset())


def _wall(zone: tzinfo, slot: int) -> datetime:
    return (_EPOCH + timedelta(microseconds=min(max(slot * _SLOT, _LEAST), _MOST))).replace(tzinfo=zone)


def _micros(offset: timedelta | None) -> int:
    return 0 if offset is None else offset // timedelta(microseconds=1)


def civil_of(days: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return year, month and day of days since 1970."""
    dates = days.astype("M8[D]")
    months = dates.astype("M8[M]")
    number = months.astype(np.int64)
    day = (dates - months.astype("M8[D]")).astype(np.int64) + 1
    return number // 12 + 1970, number % 12 + 1, day


def days_of(year: Numbers, month: Numbers, day: Numbers) -> Numbers:
    """Return days since 1970 of dates whose months and days may be beyond their limits."""
    months = (np.asarray(year, np.int64) - 1970) * 12 + np.asarray(month, np.int64) - 1
    result: Numbers = months.astype("M8[M]").astype("M8[D]").astype(np.int64) + day - 1
    return result


def month_lengths(year: Numbers, month: Numbers) -> Numbers:
    """Return how many days months have."""
    return days_of(year, month + 1, np.ones(1, np.int64)) - days_of(year, month, np.ones(1, np.int64))


def months_added(local: Numbers, months: Numbers) -> Numbers:
    """Return wall times some months later, at the last day of a month that is too short."""
    days, rest = local // DAY, local % DAY
    year, month, day = civil_of(days)
    return days_of(year, month + months, np.minimum(day, month_lengths(year, month + months))) * DAY + rest
