"""Literals of a script as values with their types: numbers, texts, dates and times, intervals.

What is wrong with one is a DefinitionError here; the analysis adds the place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.coercion import BIGINT, BOOLEAN, DATE, DAY_TIME, DOUBLE, INT, MOST_DIGITS, NULL, YEAR_MONTH
from poundlock.sql.errors import shown
from poundlock.sql.expressions.tree import Literal
from poundlock.sql.types import SqlType

_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?", re.ASCII)
_FORMS: Mapping[str, str] = {
    "DATE": "yyyy-MM-dd",
    "TIME": "HH:mm:ss",
    "TIMESTAMP": "yyyy-MM-dd HH:mm:ss",
    "TIMESTAMPLTZ": "yyyy-MM-dd HH:mm:ss",
}
_MICROS = 6
_MONTHS: Mapping[str, int] = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_MILLISECONDS: Mapping[str, int] = {
    "WEEK": 604_800_000, "DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1000,
}  # fmt: skip
_SPANS = ("DAY", "HOUR", "MINUTE", "SECOND")
_SEPARATORS: Mapping[str, str] = {"HOUR": " ", "MINUTE": ":", "SECOND": ":"}
_NUMBER = {"SECOND": r"(\d+(?:\.\d{1,9})?)"}


def null() -> Literal:
    """Return NULL, which has no type yet."""
    return Literal(None, NULL)


def truth(node: exp.Boolean) -> Literal:
    """Return TRUE or FALSE."""
    return Literal(bool(node.this), BOOLEAN.not_null())


def text(value: str) -> Literal:
    """Return a text, whose type is CHAR of its length."""
    return Literal(value, SqlType("CHAR", (len(value),), is_nullable=False))


def byte_string(node: exp.HexString) -> Literal:
    """Return X'0a0b' as the bytes that it says."""
    digits = str(node.this)
    if len(digits) % 2 or not re.fullmatch("[0-9A-Fa-f]*", digits):
        raise DefinitionError(f"X'{digits}' is no byte string", next="write two digits from 0 to 9 and A to F a byte")
    return Literal(bytes.fromhex(digits), SqlType("BINARY", (len(digits) // 2,), is_nullable=False))


def number(written: str) -> Literal:
    """Return a number: INT or BIGINT, with a point DECIMAL, with an exponent DOUBLE."""
    if "e" in written.lower():
        return Literal(float(written), DOUBLE.not_null())
    before, point, behind = written.partition(".")
    if not point or not behind:
        whole = int(before)
        if whole < 1 << 63:
            return Literal(whole, (INT if whole < 1 << 31 else BIGINT).not_null())
    digits, scale = len(before) + len(behind), len(behind)
    if digits > MOST_DIGITS:
        raise DefinitionError(
            f"{written} has more than {MOST_DIGITS} digits", next="write it as DOUBLE, such as 1.5E40"
        )
    return Literal(Decimal(written), SqlType("DECIMAL", (digits, scale), is_nullable=False))


def negative(literal: Literal) -> Literal | None:
    """Return the number with a minus before it, None of what is no number."""
    if isinstance(literal.value, bool) or not isinstance(literal.value, int | float | Decimal):
        return None
    value = -literal.value
    return Literal(value, INT.not_null() if value == -(1 << 31) else literal.type)


def time_literal(written: str, kind: exp.DType) -> Literal:
    """Return a date, time or timestamp, the latter two with as many digits of a second as are written.

    Raises:
        DefinitionError: it is not written as one, or there is no such day or time.
    """
    name = "TIMESTAMP_LTZ" if kind is exp.DType.TIMESTAMPLTZ else kind.value
    day_text, _, clock_text = (
        written.partition(" ") if kind.value in ("TIMESTAMP", "TIMESTAMPLTZ") else (written, "", written)
    )
    day, clock = _DATE.fullmatch(day_text), _TIME.fullmatch(clock_text)
    is_date, is_time = kind is exp.DType.DATE, kind is exp.DType.TIME
    if (day is None and not is_time) or (clock is None and not is_date):
        raise _bad(name, written, f"it is not written as {_FORMS[kind.value]}")
    try:
        on = date(1970, 1, 1) if day is None or is_time else date(*map(int, day.groups()))
        at, digits = (time(), 0) if clock is None or is_date else _clock(clock)
    except ValueError as error:
        raise _bad(name, written, str(error)) from None
    if is_date:
        return Literal(on, DATE.not_null())
    if is_time:
        return Literal(at, SqlType("TIME", (digits,), is_nullable=False))
    made = datetime.combine(on, at)
    return Literal(made, SqlType("TIMESTAMP", (digits,), is_nullable=False))


def interval(node: exp.Interval) -> Literal:
    """Return an interval: whole months, or whole milliseconds.

    Raises:
        DefinitionError: it is not written as one of its unit.
    """
    value, unit, sign = node.this, node.args.get("unit"), 1
    while isinstance(value, exp.Neg | exp.Paren):
        sign = -sign if isinstance(value, exp.Neg) else sign
        value = value.this
    if not isinstance(value, exp.Literal) or unit is None:
        raise DefinitionError(
            f"{shown(node)} is no INTERVAL",
            next="write a number in quotes and a unit, INTERVAL '5' MINUTE; of a column: x * INTERVAL '1' MINUTE",
        )
    written = value.name.strip()
    if written[:1] in ("-", "+"):
        sign, written = -sign if written[0] == "-" else sign, written[1:]
    span = (
        [each.name.upper() for each in (unit.this, unit.expression)]
        if isinstance(unit, exp.IntervalSpan)
        else [unit.name.upper()]
    )
    units = [each.removesuffix("S") if each.removesuffix("S") in (*_MONTHS, *_MILLISECONDS) else each for each in span]
    if units == ["YEAR", "MONTH"]:
        return _years_and_months(written, sign)
    if len(units) == 1:
        return _of_unit(written, units[0], sign)
    return _of_span(written, units, sign)


def _of_unit(written: str, unit: str, sign: int) -> Literal:
    if unit not in _MONTHS and unit not in _MILLISECONDS:
        raise DefinitionError(
            f"there is no unit {unit} of intervals", next=f"write one of {', '.join((*_MONTHS, *_MILLISECONDS))}"
        )
    if not re.fullmatch(_NUMBER.get(unit, r"(\d+)"), written, re.ASCII):
        raise _bad("INTERVAL", written, f"it is no number of the unit {unit}")
    if unit in _MONTHS:
        return Literal(sign * int(written) * _MONTHS[unit], YEAR_MONTH.not_null())
    return Literal(sign * int(Decimal(written) * _MILLISECONDS[unit]), DAY_TIME.not_null())


def _years_and_months(written: str, sign: int) -> Literal:
    matched = re.fullmatch(r"(\d+)-(\d{1,2})", written, re.ASCII)
    if matched is None or int(matched[2]) > 11:
        raise _bad("INTERVAL", written, "it is not written as years-months, such as '1-06'")
    return Literal(sign * (int(matched[1]) * 12 + int(matched[2])), YEAR_MONTH.not_null())


def _of_span(written: str, units: list[str], sign: int) -> Literal:
    if not set(units) <= set(_SPANS) or _SPANS.index(units[0]) >= _SPANS.index(units[1]):
        raise DefinitionError(
            f"there are no intervals of {' TO '.join(units)}", next="write DAY TO SECOND, HOUR TO MINUTE or the like"
        )
    between = _SPANS[_SPANS.index(units[0]) : _SPANS.index(units[1]) + 1]
    pattern = r"(\d+)" + "".join(_SEPARATORS[unit] + _NUMBER.get(unit, r"(\d{1,2})") for unit in between[1:])
    matched = re.fullmatch(pattern, written, re.ASCII)
    if matched is None:
        raise _bad(
            "INTERVAL", written, f"it is not written as {' TO '.join(units)}, such as '1 02:03:04' for DAY TO SECOND"
        )
    total = sum(
        (Decimal(part) * _MILLISECONDS[unit] for part, unit in zip(matched.groups(), between, strict=True)), Decimal()
    )
    return Literal(sign * int(total), DAY_TIME.not_null())


def _clock(matched: re.Match[str]) -> tuple[time, int]:
    hour, minute, second = map(int, matched.groups()[:3])
    fraction = matched[4] or ""
    return time(hour, minute, second, int(f"{fraction:0<6}"[:_MICROS])), len(fraction)


def _bad(kind: str, written: str, why: str) -> DefinitionError:
    return DefinitionError(f"{kind} '{written}': {why}", next=f"write it as {_example(kind)}")


def _example(kind: str) -> str:
    return {
        "DATE": "DATE '2026-01-05'",
        "TIME": "TIME '10:00:00'",
        "INTERVAL": "INTERVAL '5' MINUTE",
    }.get(kind, f"{kind} '2026-01-05 10:00:00'")
