"""Expressions whose names are resolved and whose types are known: what the query analysis makes and what is computed over columns.

Picklable: tasks compute them. A column is named as it is called in the batch, not as the script calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from poundlock.sql.types import SqlType

if TYPE_CHECKING:
    from poundlock.sql.user.function import SqlUserFunction


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of the batch."""

    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that is written in the script; None for NULL.

    Args:
        value: int, Decimal, float, str, bool, bytes, date, time, datetime; of intervals whole months or milliseconds.
    """

    value: Any
    type: SqlType


@dataclass(frozen=True, slots=True)
class SqlCall:
    """A function of expressions, operators included.

    Args:
        function: its name in the table of functions, in capitals.
        options: what is no value of a row: a unit of time, what JSON_VALUE does with an error.
    """

    function: str
    arguments: tuple[Expression, ...]
    type: SqlType
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserCall(SqlCall):
    """A function of the user's own; `function` is its place in Python, which no function of ours is called by.

    Args:
        user: computes it over columns.
    """

    user: SqlUserFunction = field(kw_only=True)


Expression = ColumnRef | Literal | SqlCall


FEW = 16
"""Of so many parts a chain of functions is not deep."""


def bound_by(bind: Callable[[Expression, Expression], Expression], parts: Sequence[Expression]) -> Expression:
    """Return expressions bound by AND, by OR, or by another function of two that may bind any neighbours first.

    Many are bound as a tree that is not deep, because what goes through a tree goes down as far as it is deep.
    """
    if len(parts) > FEW:
        half = len(parts) // 2
        return bind(bound_by(bind, parts[:half]), bound_by(bind, parts[half:]))
    return reduce(bind, parts)


def columns_of(expression: Expression) -> Iterator[str]:
    """Yield the columns that an expression is of, each as often as it stands there."""
    if isinstance(expression, ColumnRef):
        yield expression.name
    elif isinstance(expression, SqlCall):
        for argument in expression.arguments:
            yield from columns_of(argument)


def functions_of(expression: Expression) -> Iterator[str]:
    """Yield the functions that an expression calls, each as often as it stands there."""
    if isinstance(expression, SqlCall):
        yield expression.function
        for argument in expression.arguments:
            yield from functions_of(argument)


def replaced(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Return an expression in whose place, or in the place of whose parts, stands what a function returns for them, where that is not None."""
    instead = change(expression)
    if instead is not None:
        return instead
    if not isinstance(expression, SqlCall):
        return expression
    return replace(expression, arguments=tuple(replaced(argument, change) for argument in expression.arguments))


def cast_to(expression: Expression, type_: SqlType) -> Expression:
    """Return an expression as a value of a type: itself where it is of it, null or not."""
    if expression.type.with_null() == type_.with_null():
        return expression
    return SqlCall("CAST", (expression,), type_.with_null(expression.type.is_nullable))
