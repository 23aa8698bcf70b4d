"""Expressions of single values: for conditions whose values are known one after the other.

What is common in them is computed by Python, with the results that columns have; anything else as columns of one row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from poundlock.formats.convert import column_values, declared_rows
from poundlock.sql.coercion import EXACT, INTEGERS, TEXTS
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal, SqlCall, columns_of
from poundlock.sql.lowering.schemas import schema_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.types import SqlType
from poundlock.stream.matching import MatchedRows

Value = Callable[[MatchedRows], Any]
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_ALIKE: Sequence[Sequence[str]] = (EXACT, TEXTS, ("DOUBLE",), ("BOOLEAN",), ("DATE",), ("TIMESTAMP",))
_MICROS = 6


def single_value(expression: Expression, getters: Mapping[str, Value], context: EvaluationContext) -> Value:
    """Return what computes an expression.

    Args:
        getters: by the columns of the expression, what gives their values.
    """
    if isinstance(expression, ColumnRef):
        return getters[expression.name]
    if isinstance(expression, Literal) and _is_plain(expression.type):
        known = expression.value
        return lambda rows: known
    if isinstance(expression, SqlCall):
        arguments = [each.type for each in expression.arguments]
        make = _made_by_python(expression, arguments)
        if make is not None:
            return make(*(single_value(each, getters, context) for each in expression.arguments))
    return _by_columns(expression, getters, context)


def _is_plain(kind: SqlType) -> bool:
    """Return whether a literal's value is what a column's is."""
    plain = kind.root in (*INTEGERS, *TEXTS, "DOUBLE", "BOOLEAN", "DECIMAL", "DATE", "INTERVAL_DAY_TIME", "NULL")
    return plain or (kind.root == "TIMESTAMP" and kind.sizes[0] <= _MICROS)


def _made_by_python(call: SqlCall, arguments: Sequence[SqlType]) -> Callable[..., Value] | None:
    name, roots = call.function, [each.root for each in arguments]
    if name in ("AND", "OR"):
        return _and if name == "AND" else _or
    if name in ("NOT", "IS NULL", "IS NOT NULL"):
        return {"NOT": _not, "IS NULL": _is_null, "IS NOT NULL": _is_not_null}[name]
    if name in _COMPARISONS and all(map(_is_plain, arguments)) and any(set(roots) <= {*some} for some in _ALIKE):
        return _with_values(_COMPARISONS[name])
    if name in _ARITHMETIC and set(roots) <= {*INTEGERS} and call.type.root in INTEGERS:
        return _with_values(_wrapped(_ARITHMETIC[name], _BITS[call.type.root]))
    if name in _ARITHMETIC and call.type.root == "DOUBLE" and set(roots) <= {*INTEGERS, "DOUBLE"}:
        compute = _ARITHMETIC[name]
        return _with_values(lambda a, b: compute(float(a), float(b)))
    if name == "CAST" and roots[0] in INTEGERS and call.type.root == "DOUBLE":
        return lambda value: lambda rows: None if (known := value(rows)) is None else float(known)
    if name == "CAST" and {roots[0], call.type.root} <= {*INTEGERS} and _BITS[roots[0]] <= _BITS[call.type.root]:
        return lambda value: value
    is_moved = name in ("DATETIME +", "DATETIME -") and roots == ["TIMESTAMP", "INTERVAL_DAY_TIME"]
    if is_moved and _is_plain(arguments[0]):
        sign = 1 if name == "DATETIME +" else -1
        return _with_values(lambda at, by: at + sign * timedelta(milliseconds=by))
    return None


def _with_values(compute: Callable[[Any, Any], Any]) -> Callable[[Value, Value], Value]:
    """Return a function of two values that is null where one of them is."""

    def made(left: Value, right: Value) -> Value:
        def value(rows: MatchedRows) -> Any:
            a = left(rows)
            if a is None:
                return None
            b = right(rows)
            return None if b is None else compute(a, b)

        return value

    return made


def _wrapped(compute: Callable[[Any, Any], Any], bits: int) -> Callable[[Any, Any], Any]:
    half, whole = 1 << (bits - 1), 1 << bits
    return lambda a, b: (compute(a, b) + half) % whole - half


def _and(left: Value, right: Value) -> Value:
    def value(rows: MatchedRows) -> Any:
        a = left(rows)
        if a is False:
            return False
        b = right(rows)
        return False if b is False else None if a is None or b is None else True

    return value


def _or(left: Value, right: Value) -> Value:
    def value(rows: MatchedRows) -> Any:
        a = left(rows)
        if a is True:
            return True
        b = right(rows)
        return True if b is True else None if a is None or b is None else False

    return value


def _not(of: Value) -> Value:
    return lambda rows: None if (known := of(rows)) is None else not known


def _is_null(of: Value) -> Value:
    return lambda rows: of(rows) is None


def _is_not_null(of: Value) -> Value:
    return lambda rows: of(rows) is not None


def _by_columns(expression: Expression, getters: Mapping[str, Value], context: EvaluationContext) -> Value:
    """Return what computes an expression as columns of one row."""
    types = _types_in(expression)
    fields = [Field(name, name, types[name]) for name in dict.fromkeys(columns_of(expression))]
    schema, own = schema_of(fields), [getters[each.column] for each in fields]
    if not own:
        schema, own = schema_of([Field("nothing", "nothing", SqlType("INT"))]), [lambda rows: None]

    def value(rows: MatchedRows) -> Any:
        batch = declared_rows("match", schema, [tuple(get(rows) for get in own)])
        return column_values(evaluate(expression, batch, context))[0]

    return value


def _types_in(expression: Expression) -> dict[str, SqlType]:
    if isinstance(expression, ColumnRef):
        return {expression.name: expression.type}
    if isinstance(expression, Literal):
        return {}
    return {name: kind for each in expression.arguments for name, kind in _types_in(each).items()}
