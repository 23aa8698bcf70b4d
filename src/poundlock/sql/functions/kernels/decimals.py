"""Arithmetic of decimals: exact, then rounded half up to the digits of the result's type; null where it has more digits than that.

Arrow computes in 256 bits what may not fit into 128. What does not fit into 256 either is computed value by value.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import column_of, numbers_in, valid_in
from poundlock.sql.functions.kernels.columns import by_value, decimals, null_where, placed, trues, truths, unscaled_in
from poundlock.sql.functions.kernels.distinct import valid_of
from poundlock.sql.types import SqlType

MOST_DIGITS, MOST_WIDE_DIGITS, _DIGITS_OF_64_BITS = 38, 76, 18
_SCALE_OF_ARROW = 4
_SURELY_EXACT, _NEAR_THE_MIDDLE = 2.0**40, 1e-3
_CONTEXT = Context(prec=160, rounding=ROUND_DOWN)
_OF_INTEGER = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def exact(column: pa.Array) -> pa.Array:
    """Return whole numbers as decimals, and decimals as they are."""
    digits = _OF_INTEGER.get(column.type)
    return column if digits is None else pc.cast(column, pa.decimal128(digits, 0))


def wide(column: pa.Array, more: int = 0) -> pa.Array:
    """Return decimals in 256 bits, with some digits more before the point than they have."""
    kind = column.type
    return pc.cast(column, pa.decimal256(min(kind.precision + more, MOST_WIDE_DIGITS), kind.scale))


def fitted(column: pa.Array, kind: SqlType) -> pa.Array:
    """Return decimals as values of a type: rounded half up to its scale, null where they have too many digits."""
    arrow = kind.arrow
    if column.type == arrow:
        return column
    have = column.type
    if have.scale > arrow.scale:
        if have.precision >= MOST_WIDE_DIGITS:
            return _one_by_one(column, kind)
        column = pc.round(wide(column, 1), arrow.scale, "half_towards_infinity")
    try:
        return pc.cast(column, arrow)
    except pa.ArrowInvalid:
        column = wide(column)
        limit = decimals([10 ** (arrow.precision - arrow.scale)], pa.decimal256(arrow.precision - arrow.scale + 1, 0))
        return pc.cast(null_where(column, trues(pc.greater_equal(pc.abs(column), limit[0]))), arrow)


def total(a: pa.Array, b: pa.Array, kind: SqlType) -> pa.Array:
    """Return the sums of decimals."""
    return fitted(pc.add(*_alike(a, b)), kind)


def difference(a: pa.Array, b: pa.Array, kind: SqlType) -> pa.Array:
    """Return the differences of decimals."""
    return fitted(pc.subtract(*_alike(a, b)), kind)


def product(a: pa.Array, b: pa.Array, kind: SqlType) -> pa.Array:
    """Return the products of decimals."""
    digits = a.type.precision + b.type.precision + 1
    if digits > MOST_WIDE_DIGITS:
        return _pairs(a, b, kind, lambda x, y: x * y, a.type.scale + b.type.scale)
    if digits > MOST_DIGITS:
        a, b = wide(a), wide(b)
    return fitted(pc.multiply(a, b), kind)


def quotient(a: pa.Array, b: pa.Array, kind: SqlType) -> pa.Array:
    """Return the quotients of decimals; no divisor is zero."""
    (p, s), (q, t) = (a.type.precision, a.type.scale), (b.type.precision, b.type.scale)
    # Divided as whole numbers, with at least one digit more than the result has: that one says how to round. Arrow puts as many
    # digits behind a dividend of scale 0 as the divisor's scale is, and four.
    shift = max(kind.sizes[1] + 1 + t - s, q + 1, _SCALE_OF_ARROW)
    scale = shift + s - t
    if p + shift > MOST_WIDE_DIGITS or not 0 <= scale <= MOST_WIDE_DIGITS:
        return _pairs(a, b, kind, lambda x, y: _towards_zero(x * 10**shift, y), scale)
    dividend = _as(wide(a), pa.decimal256(p, 0))
    divisor = _as(wide(b), pa.decimal256(q, shift - _SCALE_OF_ARROW))
    divided = pc.divide(dividend, divisor)
    return fitted(
        _as(divided, pa.decimal256(min(max(divided.type.precision, scale), MOST_WIDE_DIGITS - 1), scale)), kind
    )


def remainder(a: pa.Array, b: pa.Array, kind: SqlType) -> pa.Array:
    """Return what is left of decimals, with the sign of the dividend; no divisor is zero."""
    scale = max(a.type.scale, b.type.scale)
    digits = [each.type.precision - each.type.scale + scale for each in (a, b)]
    if max(digits) > _DIGITS_OF_64_BITS:
        return _pairs(a, b, kind, _rest, scale)
    x, y = (low_bits(pc.cast(each, pa.decimal128(n, scale))) for each, n in zip((a, b), digits, strict=True))
    valid = valid_of((a, b))
    made = np.fmod(x, y if valid is None else np.where(valid, y, 1))
    return fitted(of_64_bits(made, pa.decimal128(max(digits), scale), valid), kind)


def low_bits(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return decimals of at most 18 digits as whole numbers of their last digit."""
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column), np.int64)
    words = np.frombuffer(data, np.int64).reshape(-1, column.type.byte_width // 8)
    return words[column.offset : column.offset + len(column), 0]


def of_64_bits(unscaled: npt.NDArray[np.int64], kind: pa.DataType, valid: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return whole numbers of the last digit as decimals."""
    words = np.empty((len(unscaled), 2), np.int64)
    words[:, 0] = unscaled
    words[:, 1] = unscaled >> 63
    return column_of(words, kind, valid)


def half_up(column: pa.Array, places: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return floating point numbers times a power of ten, rounded half up as the decimals that they are written as, and where that is sure.

    It is not where a number is near the middle of two, or has many digits: those have to be looked at one by one.
    """
    with np.errstate(all="ignore"):
        moved = numbers_in(column).astype(np.float64) * 10.0**places
        size = np.abs(moved)
        sure = (size < _SURELY_EXACT) & (np.abs(size - np.floor(size) - 0.5) > _NEAR_THE_MIDDLE)
        sure &= 0 <= places <= _DIGITS_OF_64_BITS
        return np.copysign(np.floor(size + 0.5), moved), sure


def of_reals(column: pa.Array, kind: SqlType) -> pa.Array:
    """Return floating point numbers as decimals: those that they are written as, rounded half up."""
    precision, scale = kind.sizes
    valid = valid_in(column)
    moved, sure = half_up(column, scale)
    sure &= pa.types.is_float64(column.type)
    if valid is not None:
        sure |= ~valid
    moved = np.where(sure, moved, 0.0)
    with np.errstate(invalid="ignore"):
        fits = np.abs(moved) < 10.0**precision
        made = of_64_bits(moved.astype(np.int64), kind.arrow, fits if valid is None else fits & valid)
    if sure.all():
        return made
    is_float = bool(pa.types.is_float32(column.type))
    rest = by_value(
        column.filter(truths(~sure)),
        lambda values: of_decimals([Decimal(str(np.float32(v)) if is_float else repr(v)) for v in values], kind),
    )
    rows = np.arange(len(column))
    return placed([(rows[sure], made.filter(truths(sure))), (rows[~sure], rest)], len(column), kind.arrow)


def of_decimals(values: list[Decimal | None], kind: SqlType) -> pa.Array:
    """Return Python's decimals as values of a type: rounded half up, null where they have too many digits."""
    precision, scale = kind.sizes
    return decimals([None if value is None else _scaled(value, precision, scale) for value in values], kind.arrow)


def is_zero(column: pa.Array) -> pa.Array:
    """Return which decimals are zero."""
    return pc.equal(column, decimals([0], column.type)[0])


def _scaled(value: Decimal, precision: int, scale: int) -> int | None:
    if not value.is_finite() or value.adjusted() > precision:
        return None
    made = int(value.scaleb(scale, _CONTEXT).to_integral_value(ROUND_HALF_UP, _CONTEXT))
    return made if abs(made) < 10**precision else None


def _alike(a: pa.Array, b: pa.Array) -> tuple[pa.Array, pa.Array]:
    scale = max(a.type.scale, b.type.scale)
    if max(each.type.precision - each.type.scale for each in (a, b)) + scale + 1 <= MOST_DIGITS:
        return a, b
    # The sum of two decimals of 38 digits has at most 77; but one of the two numbers of digits is below that.
    return tuple(pc.cast(each, pa.decimal256(MOST_WIDE_DIGITS - 1, scale)) for each in (a, b))


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same whole numbers under another type."""
    return pa.Array.from_buffers(kind, len(column), column.buffers(), column.null_count, column.offset)


def _towards_zero(a: int, b: int) -> int:
    made = abs(a) // abs(b)
    return made if (a < 0) == (b < 0) else -made


def _rest(a: int, b: int) -> int:
    made = abs(a) % abs(b)
    return -made if a < 0 else made


def _pairs(a: pa.Array, b: pa.Array, kind: SqlType, compute: Callable[[int, int], int], scale: int) -> pa.Array:
    """Compute over pairs of whole numbers, whose result is of a scale; those of a remainder are brought to that scale before."""
    x, y = unscaled_in(a), unscaled_in(b)
    if compute is _rest:
        x = [None if value is None else value * 10 ** (scale - a.type.scale) for value in x]
        y = [None if value is None else value * 10 ** (scale - b.type.scale) for value in y]
    made = [None if v is None or w is None else compute(v, w) for v, w in zip(x, y, strict=True)]
    return of_decimals([None if value is None else Decimal(value).scaleb(-scale, _CONTEXT) for value in made], kind)


def _one_by_one(column: pa.Array, kind: SqlType) -> pa.Array:
    return of_decimals(column.to_pylist(), kind)
