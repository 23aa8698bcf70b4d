"""Values by which a table is cut: numbers, dates and times as whole numbers of their smallest unit, and back as text and SQL."""

from __future__ import annotations

import datetime
import decimal
import re
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from poundlock.connectors.jdbc.dialect import Dialect
from poundlock.connectors.jdbc.source.columns import JdbcColumn
from poundlock.errors import DefinitionError

_DAY_NS = 86_400_000_000_000
_EPOCH = datetime.date(1970, 1, 1)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?(?: ?(Z|[+-]\d\d(?::?\d\d)?))?")


@dataclass(frozen=True, slots=True)
class ValueUnits:
    """How values of a column are counted.

    Args:
        scale: digits behind the point of a number.
    """

    kind: Literal["number", "date", "time"]
    scale: int = 0

    def units(self, text: str) -> int:
        """Return a value as a whole number. Raises ValueError: the text is none."""
        if self.kind == "number":
            scaled = decimal.Decimal(text.strip()).scaleb(self.scale, _WIDE)
            if not scaled.is_finite() or scaled != scaled.to_integral_value():
                raise ValueError(text)
            return int(scaled)
        if self.kind == "date":
            return (datetime.date.fromisoformat(text.strip()) - _EPOCH).days
        match = _TIME.fullmatch(text.strip())
        if match is None:
            raise ValueError(text)
        day, hours, minutes, seconds, fraction, zone = match.groups()
        clock = (int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0) - _offset_s(zone)
        days = (datetime.date.fromisoformat(day) - _EPOCH).days
        return days * _DAY_NS + clock * 1_000_000_000 + int((fraction or "").ljust(9, "0"))

    def text(self, units: int) -> str:
        """Return a whole number as the value's text."""
        if self.kind == "number":
            return format(decimal.Decimal(units).scaleb(-self.scale, _WIDE), "f")
        if self.kind == "date":
            return (_EPOCH + datetime.timedelta(days=units)).isoformat()
        days, rest = divmod(units, _DAY_NS)
        seconds, fraction = divmod(rest, 1_000_000_000)
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        digits = f"{fraction:09d}".rstrip("0")
        return f"{_EPOCH + datetime.timedelta(days=days)} {clock}{f'.{digits}' if digits else ''}"

    def literal(self, units: int, dialect: Dialect) -> str:
        """Return a whole number as SQL."""
        text = self.text(units)
        if self.kind == "number":
            return text
        return dialect.date(text) if self.kind == "date" else dialect.timestamp(text)


_WIDE = decimal.Context(prec=100)


def _offset_s(zone: str | None) -> int:
    if zone in (None, "Z"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return seconds if zone[0] == "+" else -seconds


def measure_of(column: JdbcColumn, what: str) -> ValueUnits:
    """Return how values of a column are counted.

    Raises:
        DefinitionError: they are no whole numbers, decimals, dates or times.
    """
    kind = column.arrow
    if pa.types.is_integer(kind) and column.type.lower() != "year":
        return ValueUnits("number")
    if pa.types.is_decimal(kind):
        return ValueUnits("number", kind.scale)
    if pa.types.is_date(kind):
        return ValueUnits("date")
    if pa.types.is_timestamp(kind):
        return ValueUnits("time")
    raise DefinitionError(
        f"column {column.name!r} of {what} is {column.type}, and a column to cut by has whole numbers, decimals, dates or times",
        next="name another column, or leave it out: all is then read in one piece",
    )


def given_units(measure: ValueUnits, name: str, value: str) -> int:
    """Return what a user gave as a value. Raises DefinitionError: it is none."""
    try:
        return measure.units(value)
    except (ValueError, ArithmeticError):
        such = {"number": "1000", "date": "2024-02-29", "time": "2024-02-29 12:00:00"}[measure.kind]
        raise DefinitionError(f"{name}={value!r} is no {measure.kind}", next=f'write such as {name}="{such}"') from None


def borders(low: int, high: int, pieces: int) -> list[int]:
    """Return the values that cut what lies between two into so many pieces of one width, about; each belongs to the piece before it."""
    span = high - low + 1
    return list(
        dict.fromkeys(
            low - 1 + span * i // pieces for i in range(1, pieces) if low <= low - 1 + span * i // pieces < high
        )
    )
