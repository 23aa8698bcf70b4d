"""PRINTF, whose formats are java.util.Formatter's, with Locale.US.

Python writes each different combination of a format and values once. A format that is none, or does not fit its values, gives NULL, as in
Flink. What Flink has beside, dates (%t), hash codes (%h) and hexadecimal points (%a), is refused by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError, TerminalError
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction
from poundlock.sql.functions.kernels.distinct import over_distinct
from poundlock.sql.functions.kernels.json_texts import java_double
from poundlock.sql.functions.signatures import is_null
from poundlock.sql.types import STRING, SqlType

_DIRECTIVE = re.compile(r"%(?:(\d+)\$|(<))?([-#+ 0,(]*)([1-9]\d*)?(?:\.(\d+))?([a-zA-Z%])")
_FLAGS: Mapping[str, str] = {
    "s": "-", "b": "-", "c": "-", "%": "-", "n": "", "d": "-+ 0,(", "o": "-#+ 0(", "x": "-#+ 0(", "f": "-#+ 0,(", "e": "-#+ 0(", "g": "-+ 0,(",
}  # fmt: skip
"""The flags of each conversion."""
_MISSING = "aht"
_CAPITAL = "sbcxeg"  # conversions that may be written as capitals
_BITS: Mapping[pa.DataType, int] = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64, pa.float32(): 32}
_TAKES = (*("CHAR", "VARCHAR"), "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "NULL")
_LARGE = Context(prec=1_100, rounding=ROUND_HALF_UP)


class _NoFormat(Exception):
    """What java.util.Formatter refuses."""


def _printf(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    bits = [_BITS.get(column.type, 0) for column in columns[1:]]

    def compute(text: str | None, *values: Any) -> str | None:
        try:
            return None if text is None else _formatted(text, values, bits)
        except _NoFormat:
            return None

    return over_distinct(columns, compute, pa.string(), takes_nulls=True)


def _formatted(text: str, values: Sequence[Any], bits: Sequence[int]) -> str:
    made, end, ordinary, last = [], 0, 0, -1
    for directive in _DIRECTIVE.finditer(text):
        made.append(text[end : directive.start()])
        end = directive.end()
        index, again, flags, width, precision, letter = directive.groups()
        conversion = letter.lower()
        if conversion in _MISSING:
            raise TerminalError(
                f"PRINTF with %{letter}, which is not there", next="CAST the value to STRING, and write %s"
            )
        if conversion not in _FLAGS or (letter != conversion and conversion not in _CAPITAL):
            raise _NoFormat
        _check(conversion, flags, width, precision)
        if conversion in "n%":
            made.append("\n" if conversion == "n" else _filled("%", flags, width))
            continue
        if again is None:
            last = ordinary if index is None else int(index) - 1
            ordinary += index is None
        if not 0 <= last < len(values):
            raise _NoFormat
        digits = None if precision is None else int(precision)
        one = _converted(conversion, values[last], flags, int(width or 0), digits, bits[last])
        one = _filled(one, flags, width)
        made.append(one.upper() if letter != conversion else one)
    made.append(text[end:])
    if "%" in _DIRECTIVE.sub("", text):
        raise _NoFormat
    return "".join(made)


def _check(conversion: str, flags: str, width: str | None, precision: str | None) -> None:
    """Raise where a directive has what its conversion does not take."""
    bad = len(set(flags)) < len(flags) or any(flag not in _FLAGS[conversion] for flag in flags)
    bad = bad or (width is None and ("-" in flags or "0" in flags)) or ("-" in flags and "0" in flags)
    bad = bad or ("+" in flags and " " in flags) or (conversion == "n" and width is not None)
    if bad or (precision is not None and conversion not in "sbfeg"):
        raise _NoFormat


def _filled(text: str, flags: str, width: str | None) -> str:
    return text.ljust(int(width or 0)) if "-" in flags else text.rjust(int(width or 0))


def _converted(conversion: str, value: Any, flags: str, width: int, precision: int | None, bits: int) -> str:
    """Return a value as a conversion writes it, zeros before it among that, blanks not.

    Raises:
        _NoFormat: it does not take such a value.
    """
    if conversion == "b":
        return _cut("false" if value is None else str(value).lower() if isinstance(value, bool) else "true", precision)
    if value is None:
        return _cut("null", precision)
    if conversion == "s":
        return _cut(_text(value, bits), precision)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if conversion == "c":
        if not is_whole or bits > 32 or not 0 <= value <= 0x10FFFF:
            raise _NoFormat
        return chr(value)
    if is_whole and conversion in "ox" and not {*flags} & {*"+ ("}:
        number = f"{value % (1 << bits):{conversion}}"
        before = ("0" if conversion == "o" else "0x") if "#" in flags else ""
        return before + number.rjust(width - len(before), "0") if "0" in flags else before + number
    if is_whole and conversion == "d":
        return _signed(value < 0, f"{abs(value):,}" if "," in flags else str(abs(value)), flags, width)
    if isinstance(value, float) and conversion in "feg":
        return _point(conversion, value, flags, width, precision)
    raise _NoFormat


def _cut(text: str, precision: int | None) -> str:
    return text if precision is None else text[:precision]


def _text(value: Any, bits: int) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    return java_double(float(str(np.float32(value))) if bits else value)  # a FLOAT has fewer digits than a DOUBLE


def _signed(is_negative: bool, digits: str, flags: str, width: int) -> str:
    """Return a number with its sign, and the zeros that `0` asks for."""
    before = "" if is_negative else "+" if "+" in flags else " " if " " in flags else ""
    behind = ""
    if is_negative:
        before, behind = ("(", ")") if "(" in flags else ("-", "")
    room = width - len(before) - len(behind) if "0" in flags else 0
    return before + digits.rjust(room, "0") + behind


def _point(conversion: str, value: float, flags: str, width: int, precision: int | None) -> str:
    if not math.isfinite(value):
        if math.isnan(value):
            return "NaN"
        return _signed(value < 0, "Infinity", flags.replace("0", ""), width)
    digits, number = 6 if precision is None else precision, abs(Decimal(repr(value)))
    if conversion == "g":
        digits = max(digits, 1)
        rounded = _rounded(number, digits)
        is_plain = not rounded or Decimal("0.0001") <= rounded < Decimal(10) ** digits
        conversion, digits = (
            ("f", max(digits - 1 - (rounded.adjusted() if rounded else 0), 0)) if is_plain else ("e", digits - 1)
        )
    if conversion == "f":
        fixed = number.quantize(Decimal(1).scaleb(-digits), context=_LARGE)
        text = f"{fixed:,f}" if "," in flags else f"{fixed:f}"
    else:
        rounded = _rounded(number, digits + 1)
        whole, _, exponent = (f"{rounded:.{digits}e}" if rounded else f"{0.0:.{digits}e}").partition("e")
        text = f"{whole}e{exponent[0]}{exponent[1:].rjust(2, '0')}"
    if "#" in flags and not digits:
        text = text.replace("e", ".e") if "e" in text else f"{text}."
    return _signed(math.copysign(1, value) < 0, text, flags, width)


def _rounded(number: Decimal, digits: int) -> Decimal:
    """Return a number with so many digits, half of one up."""
    return number if not number else number.normalize(Context(prec=digits, rounding=ROUND_HALF_UP))


def _type(given: Sequence[Given]) -> SqlType:
    if not given or (given[0].type.root not in ("CHAR", "VARCHAR") and not is_null(given[0])):
        raise DefinitionError("PRINTF without a format", next="write PRINTF('%s', x)")
    for each in given[1:]:
        if each.type.root not in _TAKES:
            raise DefinitionError(f"PRINTF of {each.type}", next="CAST it to STRING, or to DOUBLE")
    return STRING


FUNCTIONS: Sequence[SqlFunction] = (
    SqlFunction("PRINTF", _type, _printf, lambda given: [STRING if is_null(each) else None for each in given]),
)
