"""Functions of numbers. Those of floating point numbers take every number as DOUBLE; ROUND and its like keep decimals exact."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import column_of, numbers_in, valid_in
from poundlock.sql.coercion import DOUBLE, FLOATS, INT, INTEGERS, NUMBERS, TEXTS, rounded_type
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction
from poundlock.sql.functions.kernels.columns import decimals, truths, valid_flags, wrapped
from poundlock.sql.functions.kernels.decimals import fitted, half_up, is_zero, wide
from poundlock.sql.functions.kernels.distinct import integers_in, valid_of
from poundlock.sql.types import SqlType

_EXACT_POWERS = 22  # of ten that a DOUBLE has exactly
Reals = npt.NDArray[np.float64]
_MODES: Mapping[str, str] = {"ROUND": "half_towards_infinity", "TRUNCATE": "towards_zero"}


def _numbers(given: Sequence[Given], name: str, form: str, *counts: int) -> None:
    if len(given) not in counts or not all(each.type.root in (*NUMBERS, "NULL") for each in given):
        types = ", ".join(str(each.type) for each in given)
        raise DefinitionError(f"{name} does not take ({types})", next=f"write {form}, of numbers")


def _is_nullable(given: Sequence[Given]) -> bool:
    return any(each.type.is_nullable for each in given)


# --- of DOUBLE ----------------------------------------------------------------------------------------------------------

_OF_ONE: Mapping[str, Callable[[Reals], Reals]] = {
    "SQRT": np.sqrt, "LN": np.log, "LOG10": np.log10, "LOG2": np.log2, "EXP": np.exp, "SIN": np.sin, "COS": np.cos,
    "TAN": np.tan, "COT": lambda x: 1.0 / np.tan(x), "ASIN": np.arcsin, "ACOS": np.arccos, "ATAN": np.arctan,
    "SINH": np.sinh, "COSH": np.cosh, "TANH": np.tanh, "DEGREES": np.degrees, "RADIANS": np.radians,
}  # fmt: skip
_OF_TWO: Mapping[str, Callable[[Reals, Reals], Reals]] = {
    "POWER": np.power, "ATAN2": np.arctan2,
}  # fmt: skip


def _double(given: Sequence[Given], name: str, counts: tuple[int, ...]) -> SqlType:
    _numbers(given, name, f"{name}({', '.join('xyz'[: counts[-1]])})", *counts)
    return DOUBLE.with_null(_is_nullable(given))


def _as_doubles(given: Sequence[Given]) -> Sequence[SqlType | None]:
    return [
        DOUBLE.with_null(each.type.is_nullable) if each.type.root in (*NUMBERS, "NULL", *TEXTS) else None
        for each in given
    ]


def _reals(columns: Sequence[pa.Array], evaluation: Evaluation, compute: Callable[..., Reals]) -> pa.Array:
    with np.errstate(all="ignore"):
        return column_of(compute(*map(numbers_in, columns)), pa.float64(), valid_of(columns))


def _of_double(name: str, compute: Callable[..., Reals], count: int) -> SqlFunction:
    returns = partial(_double, name=name, counts=(count,))
    return SqlFunction(name, returns, partial(_reals, compute=compute), _as_doubles, is_total=True)


def _log(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return _reals(columns, evaluation, _logarithm)


def _logarithm(base_or_number: Reals, number: Reals | None = None) -> Reals:
    return np.log(base_or_number) if number is None else np.log(number) / np.log(base_or_number)


def _constant(given: Sequence[Given], name: str) -> SqlType:
    _numbers(given, name, f"{name}()", 0)
    return DOUBLE.not_null()


def _repeated(columns: Sequence[pa.Array], evaluation: Evaluation, value: float) -> pa.Array:
    return column_of(np.full(evaluation.rows, value), pa.float64())


# --- that keep the type -------------------------------------------------------------------------------------------------


def _same(given: Sequence[Given], name: str) -> SqlType:
    _numbers(given, name, f"{name}(x)", 1)
    return INT if given[0].type.root == "NULL" else given[0].type


def _absolute(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return pc.abs(columns[0])


def _sign(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    column, kind = columns[0], evaluation.returns
    if kind.root == "DECIMAL":
        one = decimals([10 ** kind.sizes[1]], pa.decimal256(kind.sizes[1] + 1, kind.sizes[1]))[0]
        sign = pc.if_else(pc.starts_with(pc.cast(column, pa.string()), "-"), pc.negate(one), one)
        return fitted(pc.if_else(is_zero(column), wide(column, 1), pc.cast(sign, wide(column, 1).type)), kind)
    return pc.cast(pc.sign(column), kind.arrow)


# --- ROUND, TRUNCATE, FLOOR, CEIL ---------------------------------------------------------------------------------------


def _places(given: Sequence[Given]) -> int | None:
    """Return the places behind the point, None where they are no literal."""
    if len(given) < 2:
        return 0
    return given[1].value if given[1].is_literal else None


def _rounded(given: Sequence[Given], name: str) -> SqlType:
    _numbers(given, name, f"{name}(x) or {name}(x, places)", 1, 2)
    kind = given[0].type
    if len(given) > 1 and given[1].type.root not in (*INTEGERS, "NULL"):
        raise DefinitionError(f"{name} to {given[1].type} places", next="write a whole number of places")
    if kind.root == "NULL":
        return INT
    places = _places(given)
    if kind.root == "DECIMAL" and places is not None:
        kind = rounded_type(kind, places)
    return kind.with_null(_is_nullable(given))


def _round(columns: Sequence[pa.Array], evaluation: Evaluation, name: str) -> pa.Array:
    column, kind = columns[0], evaluation.returns
    if len(columns) > 1 and columns[1].null_count:
        column = pc.if_else(pc.is_valid(columns[1]), column, pa.nulls(len(column), column.type))
    places = integers_in(columns[1]) if len(columns) > 1 else np.zeros(1, np.int64)
    different = np.unique(places[valid_flags(columns[1])] if len(columns) > 1 else places)
    if len(different) <= 1:
        return _to_places(column, int(different[0]) if len(different) else 0, kind, name)
    # Every number of places is computed for all rows, and taken where it is that of the row.
    made = _to_places(column, int(different[0]), kind, name)
    for number in different[1:]:
        flags = truths(integers_in(columns[1]) == number)
        made = pc.if_else(flags, _to_places(column, int(number), kind, name), made)
    return made


def _to_places(column: pa.Array, places: int, kind: SqlType, name: str) -> pa.Array:
    if kind.root == "DECIMAL":
        if places >= column.type.scale:
            return fitted(column, kind)
        return fitted(pc.round(wide(column, 1), max(places, -76), _MODES[name]), kind)
    if kind.root in INTEGERS:
        return column if places >= 0 else _whole_to_places(column, -places, kind, name)
    if name == "TRUNCATE":
        return pc.round(column, places, "towards_zero")

    # Flink rounds the decimal that the number is written as.
    moved, sure = half_up(column, places)
    made = moved / 10.0**places if places <= _EXACT_POWERS else moved
    if not sure.all():
        values = numbers_in(column)
        made[~sure] = [_half_up(value, places) for value in values[~sure].tolist()]
    return column_of(made.astype(numbers_in(column).dtype), column.type, valid_in(column))


def _half_up(value: float, places: int) -> float:
    if not math.isfinite(value):
        return value
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


def _whole_to_places(column: pa.Array, zeros: int, kind: SqlType, name: str) -> pa.Array:
    if zeros > 18:
        return column_of(np.zeros(len(column), numbers_in(column).dtype), kind.arrow, valid_in(column))
    unit, values = 10**zeros, integers_in(column)
    rest = np.fmod(values, unit)
    made = values - rest
    if name == "ROUND":
        made += np.where(np.abs(rest) * 2 >= unit, np.sign(values) * unit, 0)
    return column_of(wrapped(made, kind.arrow), kind.arrow, valid_in(column))


def _to_whole(given: Sequence[Given], name: str) -> SqlType:
    _numbers(given, name, f"{name}(x)", 1)
    kind = given[0].type
    if kind.root == "DECIMAL":
        return SqlType("DECIMAL", (kind.sizes[0], 0), is_nullable=kind.is_nullable)
    return INT if kind.root == "NULL" else kind


def _whole(columns: Sequence[pa.Array], evaluation: Evaluation, mode: str) -> pa.Array:
    column, kind = columns[0], evaluation.returns
    if kind.root == "DECIMAL":
        return fitted(pc.round(wide(column, 1), 0, mode), kind)
    return pc.round(column, 0, mode) if kind.root in FLOATS else column


# --- chance -------------------------------------------------------------------------------------------------------------


def _random(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    seed = int(integers_in(columns[0])[0]) if columns and evaluation.rows else None
    return column_of(np.random.default_rng(None if seed is None else abs(seed)).random(evaluation.rows), pa.float64())


def _random_integer(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    bound = np.maximum(integers_in(columns[-1]), 1)
    seed = int(integers_in(columns[0])[0]) if len(columns) > 1 and evaluation.rows else None
    made = np.random.default_rng(None if seed is None else abs(seed)).integers(0, bound)
    return column_of(made.astype(np.int32), pa.int32(), valid_of(columns))


def _random_type(given: Sequence[Given], name: str, kind: SqlType, *counts: int) -> SqlType:
    if len(given) not in counts or not all(each.type.root in INTEGERS for each in given):
        types = ", ".join(str(each.type) for each in given)
        raise DefinitionError(
            f"{name} does not take ({types})", next=f"give it {' or '.join(map(str, counts))} whole numbers"
        )
    return kind.with_null(_is_nullable(given))


FUNCTIONS: Sequence[SqlFunction] = (
    *(_of_double(name, compute, 1) for name, compute in _OF_ONE.items()),
    *(_of_double(name, compute, 2) for name, compute in _OF_TWO.items()),
    SqlFunction("LOG", partial(_double, name="LOG", counts=(1, 2)), _log, _as_doubles, is_total=True),
    SqlFunction("PI", partial(_constant, name="PI"), partial(_repeated, value=math.pi), is_total=True),
    SqlFunction("E", partial(_constant, name="E"), partial(_repeated, value=math.e), is_total=True),
    SqlFunction("ABS", partial(_same, name="ABS"), _absolute, is_total=True),
    SqlFunction("SIGN", partial(_same, name="SIGN"), _sign, is_total=True),
    *(
        SqlFunction(name, partial(_rounded, name=name), partial(_round, name=name), is_total=True)
        for name in ("ROUND", "TRUNCATE")
    ),
    SqlFunction("FLOOR", partial(_to_whole, name="FLOOR"), partial(_whole, mode="down"), is_total=True),
    SqlFunction("CEIL", partial(_to_whole, name="CEIL"), partial(_whole, mode="up"), is_total=True),
    SqlFunction("CEILING", partial(_to_whole, name="CEILING"), partial(_whole, mode="up"), is_total=True),
    SqlFunction(
        "RAND", lambda given: _random_type(given, "RAND", DOUBLE, 0, 1), _random, is_deterministic=False, is_total=True
    ),
    SqlFunction(
        "RAND_INTEGER",
        lambda given: _random_type(given, "RAND_INTEGER", INT, 1, 2),
        _random_integer,
        is_deterministic=False,
        is_total=True,
    ),
)
