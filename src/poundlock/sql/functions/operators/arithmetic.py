"""+, -, *, /, % and the minus before a number.

Integers wrap around and are divided towards zero, decimals are exact and rounded half up to the result's type, as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import column_of, numbers_in
from poundlock.sql.coercion import FLOATS, NUMBERS, TEXTS, arithmetic_type, number_of_text
from poundlock.sql.functions.function import DivisionByZero, Evaluation, Given, SqlFunction, TypeMismatch
from poundlock.sql.functions.kernels.columns import wrapped
from poundlock.sql.functions.kernels.decimals import (
    difference,
    exact,
    fitted,
    is_zero,
    product,
    quotient,
    remainder,
    total,
)
from poundlock.sql.functions.kernels.distinct import valid_of
from poundlock.sql.types import SqlType

_OF_DECIMALS: Mapping[str, Callable[[pa.Array, pa.Array, SqlType], pa.Array]] = {
    "+": total, "-": difference, "*": product, "/": quotient, "%": remainder,
}  # fmt: skip
_OF_ARROW: Mapping[str, Callable[[pa.Array, pa.Array], pa.Array]] = {
    "+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide,
}  # fmt: skip


def _accepts(given: Sequence[Given]) -> Sequence[SqlType | None]:
    """Return the types to cast to: a text becomes a number as the other one is, NULL takes the other one's type."""
    types = [each.type for each in given]
    made: list[SqlType | None] = []
    for own, other in zip(types, reversed(types), strict=True):
        if own.root in TEXTS and other.root in NUMBERS:
            made.append(number_of_text(other))
        else:
            made.append(other.with_null() if own.root == "NULL" and other.root in NUMBERS else None)
    return made


def _returns(given: Sequence[Given], sign: str) -> SqlType:
    a, b = (each.type for each in given)
    made = arithmetic_type(sign, a, b)
    if made is None:
        raise TypeMismatch(f"{a} {sign} {b}: these are not two numbers", next="CAST what is no number to one")
    return made


def _run(columns: Sequence[pa.Array], evaluation: Evaluation, sign: str) -> pa.Array:
    a, b = columns
    kind = evaluation.returns
    if kind.root in FLOATS:
        x, y = (pc.cast(each, kind.arrow, safe=False) for each in columns)
        if sign != "%":
            return _OF_ARROW[sign](x, y)
        with np.errstate(all="ignore"):
            return column_of(np.fmod(numbers_in(x), numbers_in(y)), kind.arrow, valid_of((x, y)))
    if sign in ("/", "%"):
        _refuse_zero(a, b, sign)
    if pa.types.is_decimal(a.type) or pa.types.is_decimal(b.type):
        return _OF_DECIMALS[sign](exact(a), exact(b), kind)
    if sign in ("/", "%"):
        return _divided(a, b, sign, kind)
    made = _OF_ARROW[sign](a, b)
    return made if made.type == kind.arrow else pc.cast(made, kind.arrow, safe=False)


def _divided(a: pa.Array, b: pa.Array, sign: str, kind: SqlType) -> pa.Array:
    valid = valid_of((a, b))
    width = np.promote_types(numbers_in(a).dtype, numbers_in(b).dtype)
    x, y = numbers_in(a).astype(width), numbers_in(b).astype(width)
    if valid is not None:
        y = np.where(valid, y, 1)
    # The remainder has the dividend's sign; without it the division is exact, and the least number by -1 wraps around.
    rest = np.fmod(x, y)
    with np.errstate(all="ignore"):
        made = rest if sign == "%" else np.where(y == -1, -x, (x - rest) // np.where(y == -1, 1, y))
    return column_of(wrapped(made, kind.arrow), kind.arrow, valid)


def _refuse_zero(a: pa.Array, b: pa.Array, sign: str) -> None:
    zero = (
        is_zero(b)
        if pa.types.is_decimal(b.type)
        else pc.equal(b, column_of(np.zeros(1, numbers_in(b).dtype), b.type)[0])
    )
    if pc.any(pc.and_(zero, pc.is_valid(a))).as_py():
        raise DivisionByZero(
            f"division by zero in {'a remainder' if sign == '%' else 'a division'}",
            next="leave such rows out with CASE WHEN x <> 0 THEN … END or NULLIF(x, 0), and start the job again",
        )


def _same_number(given: Sequence[Given]) -> SqlType:
    if given[0].type.root not in NUMBERS:
        raise TypeMismatch(f"- {given[0].type}: that is no number", next="CAST it to one")
    return given[0].type


def _negated(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    made = pc.negate(columns[0])
    return fitted(made, evaluation.returns) if evaluation.returns.root == "DECIMAL" else made


FUNCTIONS: Sequence[SqlFunction] = (
    *(
        SqlFunction(sign, partial(_returns, sign=sign), partial(_run, sign=sign), _accepts, is_total=sign in "+-*")
        for sign in ("+", "-", "*", "/", "%")
    ),
    SqlFunction("MOD", partial(_returns, sign="%"), partial(_run, sign="%"), _accepts),
    SqlFunction("- x", _same_number, _negated, is_total=True),
)
