"""Values of texts, as CAST reads them: null where a text is none of the type.

Numbers are read column by column; the rest value by value, each different text once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import tzinfo
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import column_of, numbers_in, texts_of, valid_in
from poundlock.sql.functions.kernels.columns import by_value, one_text, trues, truths, wrapped
from poundlock.sql.functions.kernels.decimals import of_decimals
from poundlock.sql.functions.kernels.distinct import integers_in, python_column
from poundlock.sql.functions.kernels.sql_times import date_days, timestamp_micros
from poundlock.sql.functions.kernels.time_values import instant_column
from poundlock.sql.types import SqlType

_WHOLE = r"^(?P<sign>[+-]?)0*(?P<digits>[0-9]*)(?P<rest>\.[0-9]*)?$"
_LONGEST_WHOLE = 19  # digits of the greatest 64-bit number
_REAL = re.compile(
    r"\s*([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?=[dDfF]?\s*$)))[dDfF]?\s*", re.ASCII
)
_DECIMAL = re.compile(r"[ \n\t]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[ \n\t]*", re.ASCII)
_PLAIN_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_PLAIN_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?$"
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_HOUR_MS, _MINUTE_MS, _SECOND_MS = 3_600_000, 60_000, 1000
_MICROS = 6  # digits of a second


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
    plain = pc.if_else(pc.and_(truths(read), pc.not_equal(digits, one_text(""))), digits, one_text("0"))
    size = numbers_in(pc.cast(plain, pa.uint64()))
    negative = trues(pc.equal(sign, one_text("-")))
    most = np.uint64(1 << (kind.arrow.bit_width - 1))
    read &= np.where(negative, size <= most, size < most)
    values = size.astype(np.int64)
    return column_of(wrapped(np.where(negative, -values, values), kind.arrow), kind.arrow, read)


def reals(column: pa.Array, kind: SqlType) -> pa.Array:
    """Return floating point numbers."""
    made = by_value(column, lambda values: python_column(list(map(_real, values)), pa.float64()))
    return pc.cast(made, kind.arrow, safe=False)


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
    plain = _of_arrow(column, _PLAIN_DATE, pa.date32())
    return by_value(column, _of_python(date_days, pa.date32())) if plain is None else plain


def times(column: pa.Array, kind: SqlType) -> pa.Array:
    """Return times of a day: hour, hour:minute or hour:minute:second, with a fraction and an offset where there are any."""
    unit = 10 ** max(3 - kind.sizes[0], 0)

    def read(text: str) -> int | None:
        ms = _time(text)
        return None if ms is None else ms // unit * unit

    return by_value(column, _of_python(read, pa.time32("ms")))


def timestamps(column: pa.Array, kind: SqlType, zone: tzinfo) -> pa.Array:
    """Return timestamps: year-month-day, and hour:minute:second with up to nine digits of a fraction; a day behind the month's last is that."""
    (precision,) = kind.sizes
    local = (
        _micros(column, precision) if precision <= _MICROS else by_value(column, _of_python(_nanos, pa.timestamp("ns")))
    )
    return instant_column(local, zone) if kind.root == "TIMESTAMP_LTZ" else local


def _micros(column: pa.Array, precision: int) -> pa.Array:
    local = _of_arrow(column, _PLAIN_TIMESTAMP, pa.timestamp("us"))
    if local is None:
        local = by_value(column, _of_python(timestamp_micros, pa.timestamp("us")))
    unit = 10 ** (_MICROS - precision)
    return column_of(integers_in(local) // unit * unit, local.type, valid_in(local)) if unit > 1 else local


def _nanos(text: str) -> int | None:
    micros = timestamp_micros(text)
    fraction = text.partition(".")[2]
    return None if micros is None else micros * 1000 + int(f"{fraction:0<9}"[_MICROS:9])


def _of_arrow(column: pa.Array, plain: str, kind: pa.DataType) -> pa.Array | None:
    """Return texts that all have the plain form, read by Arrow; None where one has not, or is no day."""
    if pc.all(pc.match_substring_regex(column, plain)).as_py():
        try:
            return pc.cast(column, kind)
        except pa.ArrowInvalid:
            return None
    return None


def _of_python(read: Callable[[str], int | None], kind: pa.DataType) -> Callable[[list[str]], pa.Array]:
    return lambda values: python_column(list(map(read, values)), kind)


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
