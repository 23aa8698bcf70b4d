"""Single values that no parser knows: times from text or numbers, decimals with a fixed scale.

Each function gives the exact value or raises ValueError with the reason; nothing is clipped.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from poundlock.errors import DefinitionError

UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_WIDE = Context(prec=100)


def check_unit(unit: str) -> int:
    """Return how many microseconds a unit has. Raises DefinitionError where it is not "s", "ms" or "us"."""
    if unit not in UNITS:
        raise DefinitionError(f"timestamp_unit={unit!r} is not known", next='use "s", "ms" or "us"')
    return UNITS[unit]


def to_timestamp(value: str | float, micros: int, zoned: bool) -> datetime:
    """Return a time from ISO text or a number since 1970; ValueError where it is none, or outside the years 1 to 9999.

    Args:
        value: "2018-12-19T01:50:26.432Z", "2018-12-19 01:50:26", "2018-12-19", or a number, also as text. Text without
            an offset is UTC; what is finer than a microsecond is cut off text and rounded in numbers.
        micros: how many microseconds one of the numbers is.
        zoned: whether the result has the zone UTC; a local time must not come with an offset.
    """
    if isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text):
            return _from_number(Decimal(text), micros, zoned)
        if text[4:5] != "-":
            raise ValueError(f"{value!r} is not a time")
        try:
            moment = datetime.fromisoformat(text)
            if not zoned:
                if moment.tzinfo is not None:
                    raise ValueError(f"{value!r} has an offset, a local time has none")
                return moment
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except OverflowError:
            raise ValueError(f"{value!r} is out of range") from None
    return _from_number(value, micros, zoned)


def _from_number(value: float | Decimal, micros: int, zoned: bool) -> datetime:
    try:
        moment = _EPOCH + timedelta(microseconds=round(value * micros))
    except (OverflowError, ValueError):
        raise ValueError(f"{value} is out of range for a time") from None
    return moment if zoned else moment.replace(tzinfo=None)


def to_date(value: str) -> date:
    """Return a date from text such as "2018-12-19". Raises ValueError where it is none."""
    text = value.strip()
    if len(text) != 10 or text[4] != "-":
        raise ValueError(f"{value!r} is not a date")
    return date.fromisoformat(text)


def to_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    """Return a decimal with this scale, rounded half up, as Spark does. Raises ValueError where it is no number or has too many digits."""
    if not value.is_finite() or value.adjusted() >= precision - scale:
        raise ValueError(f"{value} does not fit decimal({precision},{scale})")
    try:
        rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
    except InvalidOperation:
        raise ValueError(f"{value} does not fit decimal({precision},{scale})") from None
    if rounded and rounded.adjusted() >= precision - scale:
        raise ValueError(f"{value} does not fit decimal({precision},{scale})")
    return rounded
