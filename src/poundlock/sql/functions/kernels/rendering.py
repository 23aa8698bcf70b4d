"""Texts of values, as CAST writes them and `print` shows them."""

from __future__ import annotations

from datetime import tzinfo
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import column_of, ends_in, joined, numbers_in
from poundlock.sql.functions.kernels.columns import by_value, one_text, placed, truths
from poundlock.sql.functions.kernels.distinct import python_column
from poundlock.sql.functions.kernels.time_values import local_column
from poundlock.sql.types import SqlType

_DAY_MS = 86_400_000
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}  # of a second
_LEAST_PLAIN, _MOST_PLAIN = 1e-3, 1e7  # a floating point number between them is written without an exponent


def text_of(column: pa.Array, kind: SqlType, zone: tzinfo) -> pa.Array:
    """Return the texts of values, those of texts as they are."""
    root = kind.root
    if root in ("CHAR", "VARCHAR"):
        return column
    if root == "NULL":
        return pa.nulls(len(column), pa.string())
    if root == "BOOLEAN":
        return pc.if_else(column, one_text("TRUE"), one_text("FALSE"))
    if root in ("FLOAT", "DOUBLE"):
        return real_texts(column)
    if root == "DECIMAL":
        return decimal_texts(column)
    if root in ("BINARY", "VARBINARY"):
        return utf8(column)
    if root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return timestamp_texts(local_column(column, zone) if root == "TIMESTAMP_LTZ" else column, kind.sizes[0])
    if root == "DATE":
        return pc.cast(column, pa.string())
    if root == "TIME":
        return time_texts(column, kind.sizes[0])
    if root == "INTERVAL_YEAR_MONTH":
        return by_value(column, lambda values: python_column(list(map(_months, values)), pa.string()))
    if root == "INTERVAL_DAY_TIME":
        return by_value(column, lambda values: python_column(list(map(_milliseconds, values)), pa.string()))
    if kind.of:
        return _nested(column, kind, zone)
    return pc.cast(column, pa.string())


def decimal_texts(column: pa.Array) -> pa.Array:
    """Return decimals with all digits of their scale, never with an exponent."""
    precision, scale = column.type.precision, column.type.scale
    whole = pa.Array.from_buffers(
        pa.decimal128(precision, 0), len(column), column.buffers(), column.null_count, column.offset
    )
    digits = pc.cast(whole, pa.string())
    if not scale:
        return digits
    is_negative = pc.starts_with(digits, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    sign = pc.if_else(is_negative, one_text("-"), one_text(""))
    before, behind = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(sign, before, one_text("."), behind, one_text(""))


def real_texts(column: pa.Array) -> pa.Array:
    """Return floating point numbers as Java writes them."""
    size = np.abs(numbers_in(column))
    # Arrow writes as many digits as are needed as well, but other exponents, and no point behind a whole number.
    plain = (size >= _LEAST_PLAIN) & (size < _MOST_PLAIN)
    written = pc.cast(column, pa.string())
    written = pc.if_else(
        pc.match_substring(written, "."), written, pc.binary_join_element_wise(written, one_text(".0"), one_text(""))
    )
    if plain.all():
        return written
    is_float = bool(pa.types.is_float32(column.type))
    others = column.filter(truths(~plain))
    rest = by_value(
        others, lambda values: python_column([real_text(value, is_float=is_float) for value in values], pa.string())
    )
    places = np.arange(len(column))
    return placed([(places[plain], written.filter(truths(plain))), (places[~plain], rest)], len(column), pa.string())


def real_text(value: float, *, is_float: bool = False) -> str:
    """Return a floating point number as Java writes it: `1.0E10`, `0.1`, `NaN`, `-Infinity`."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    shortest = str(np.float32(value)) if is_float else repr(value)
    if value == 0:
        return "-0.0" if shortest.startswith("-") else "0.0"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    written = "".join(map(str, digits))
    point = len(written) + int(exponent)
    if _LEAST_PLAIN <= abs(value) < _MOST_PLAIN:
        written = written.rjust(len(written) - min(point - 1, 0), "0").ljust(point + 1, "0")
        point = max(point, 1)
        return f"{'-' * sign}{written[:point]}.{written[point:]}"
    return f"{'-' * sign}{written[0]}.{written[1:] or '0'}E{point - 1}"


def timestamp_texts(local: pa.Array, precision: int) -> pa.Array:
    """Return local times as `2026-01-05 10:00:00.123`: with all digits of a second but zeros behind those of the precision."""
    digits = _DIGITS[local.type.unit]
    return _with_fraction(pc.cast(local, pa.string()), digits, min(precision, digits))


def time_texts(column: pa.Array, precision: int) -> pa.Array:
    """Return times of a day as `10:00:00.123`, with as many digits of a second as the precision is."""
    kept = min(precision, _DIGITS["ms"])
    whole = pc.cast(column, pa.string())
    return pc.utf8_slice_codeunits(whole, 0, len("10:00:00.") + kept if kept else len("10:00:00"))


def utf8(column: pa.Array) -> pa.Array:
    """Return byte strings as the texts that they are in UTF-8."""
    try:
        return pc.cast(column, pa.string())
    except pa.ArrowInvalid:
        return by_value(
            column, lambda values: python_column([value.decode("utf-8", "replace") for value in values], pa.string())
        )


def _with_fraction(whole: pa.Array, digits: int, kept: int) -> pa.Array:
    """Return texts that end in so many digits behind a point without the zeros at the end that are not among those that are kept."""
    if kept == digits:
        return whole
    if not kept:
        return pc.utf8_rtrim(pc.utf8_rtrim(whole, "0"), ".")
    before, rest = pc.utf8_slice_codeunits(whole, 0, kept - digits), pc.utf8_slice_codeunits(whole, kept - digits)
    return pc.binary_join_element_wise(before, pc.utf8_rtrim(rest, "0"), one_text(""))


def _months(months: int) -> str:
    years, rest = divmod(abs(months), 12)
    return f"{'-' if months < 0 else '+'}{years}-{rest:02}"


def _milliseconds(ms: int) -> str:
    days, rest = divmod(abs(ms), _DAY_MS)
    clock = f"{rest // 3_600_000:02}:{rest // 60_000 % 60:02}:{rest // 1000 % 60:02}.{rest % 1000:03}"
    return f"{'-' if ms < 0 else '+'}{days} {clock}"


def _nested(column: pa.Array, kind: SqlType, zone: tzinfo) -> pa.Array:
    """Return the texts of rows `(1, a)`, arrays `[1, NULL]` and maps `{k=1}`."""
    if kind.root == "ROW":
        fields = [_or_null(text_of(each, of, zone)) for each, of in zip(column.flatten(), kind.of, strict=True)]
        inner = pc.binary_join_element_wise(*fields, one_text(", ")) if len(fields) > 1 else fields[0]
        return _between("(", inner, ")", column)
    ends = ends_in(column)
    begin, count = int(ends[0]), int(ends[-1] - ends[0])
    if kind.root == "ARRAY":
        items = _or_null(text_of(column.values.slice(begin, count), kind.of[0], zone))
        brackets = "[]"
    else:
        values = SqlType("INT") if kind.root == "MULTISET" else kind.of[1]
        keys = _or_null(text_of(column.keys.slice(begin, count), kind.of[0], zone))
        items = pc.binary_join_element_wise(
            keys, _or_null(text_of(column.items.slice(begin, count), values, zone)), one_text("=")
        )
        brackets = "{}"
    lists = pa.ListArray.from_arrays(column_of((ends - begin).astype(np.int32), pa.int32()), items)
    return _between(brackets[0], pc.binary_join(lists, one_text(", ")), brackets[1], column)


def _or_null(column: pa.Array) -> pa.Array:
    return pc.coalesce(column, one_text("NULL"))


def _between(begin: str, inner: pa.Array, end: str, column: pa.Array) -> pa.Array:
    whole = joined([pc.binary_join_element_wise(one_text(begin), inner, one_text(end), one_text(""))])
    if not column.null_count:
        return whole
    return pc.if_else(pc.is_valid(column), whole, pa.nulls(len(whole), pa.string()))
