"""Texts of values as Jackson writes them, column by column; what JSON and CSV have in common."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import texts_of
from poundlock.sql.formats.times import TimestampFormat
from poundlock.sql.functions.kernels.columns import by_value
from poundlock.sql.functions.kernels.distinct import python_column
from poundlock.sql.functions.kernels.rendering import decimal_texts, time_texts, timestamp_texts
from poundlock.sql.types import SqlType

_WIDE = Context(prec=80)
_NEEDS_EXPONENT = r"^-?(?:\d*0|0\.000000\d*)$"
"""Decimals, without zeros at the end of a fraction, that may have an exponent: those of tens, and those below a millionth."""


def one(text: str) -> pa.Scalar:
    """Return a text as a value of Arrow's."""
    return texts_of([text])[0]


def texts(values: Sequence[str | None]) -> pa.Array:
    """Return texts as a column; None for null."""
    return python_column(values, pa.string())


def byte_strings(values: Sequence[bytes | None]) -> pa.Array:
    """Return byte strings as a column; None for null."""
    return python_column(values, pa.binary())


def joined_texts(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Return texts one behind the other; null where one is null."""
    return pc.binary_join_element_wise(*parts, one(""))


def truths(column: pa.Array) -> pa.Array:
    """Return true and false."""
    return pc.if_else(column, one("true"), one("false"))


def short_decimals(column: pa.Array, *, plain: bool) -> pa.Array:
    """Return decimals.

    Args:
        plain: with all digits of their scale; else without zeros at their end, and with an exponent where Java's BigDecimal has one.
    """
    digits = decimal_texts(column)
    if plain or not len(column):
        return digits
    if column.type.scale:
        digits = pc.utf8_rtrim(pc.utf8_rtrim(digits, "0"), ".")
    special = pc.match_substring_regex(digits, _NEEDS_EXPONENT)
    if not pc.any(special).as_py():
        return digits
    return pc.if_else(special, by_value(digits, lambda values: texts([_scientific(v) for v in values])), digits)


def _scientific(value: str | None) -> str | None:
    if value is None:
        return None
    number = Decimal(value)
    return str(number.normalize(_WIDE)) if number else "0"


def without_exponents(digits: pa.Array) -> pa.Array:
    """Return texts of decimals, those with an exponent without it."""
    special = pc.match_substring(digits, "E")
    if not pc.any(special).as_py():
        return digits
    plain = by_value(digits, lambda values: texts([None if v is None else f"{Decimal(v):f}" for v in values]))
    return pc.if_else(special, plain, digits)


def moments(column: pa.Array, kind: SqlType, standard: TimestampFormat) -> pa.Array:
    """Return timestamps without zeros at the end of their fractions; those with a zone in UTC, with Z behind them."""
    is_zoned = kind.root == "TIMESTAMP_LTZ"
    naive = column.cast(pa.timestamp(column.type.unit)) if is_zoned else column
    text = _short_fraction(timestamp_texts(naive, max(kind.sizes[0], 1)))
    if standard == "ISO-8601":
        text = pc.replace_substring(text, " ", "T")
    return joined_texts(text, one("Z")) if is_zoned else text


def times(column: pa.Array) -> pa.Array:
    """Return times of a day without zeros at the end of their fractions."""
    return _short_fraction(time_texts(column, 3))


def _short_fraction(text: pa.Array) -> pa.Array:
    return pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")


def base64_texts(column: pa.Array) -> pa.Array:
    """Return byte strings in base 64."""
    return by_value(column, lambda values: texts([None if v is None else base64.b64encode(v).decode() for v in values]))
