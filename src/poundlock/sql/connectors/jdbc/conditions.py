"""Conditions of a query as SQL of PostgreSQL, as far as they mean the same there.

The server may leave out no row that the query wants: it is not asked about floating point numbers and decimals, which are rounded when they are
read, nor about the order of texts. The query computes its conditions in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal

from poundlock.connectors.postgres.connection import identifier, literal
from poundlock.sql.coercion import EXACT, INTEGERS, as_decimal
from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal, SqlCall

_SIGNS = ("=", "<>", "<", "<=", ">", ">=")
_EQUAL = ("=", "<>")


def conditions_of(conditions: Iterable[Expression], names: Mapping[str, str]) -> list[str]:
    """Return those of some conditions that the server can look at.

    Args:
        names: what columns of batches are called in the server.
    """
    made = (_condition(each, names) for each in conditions)
    return [each for each in made if each is not None]


def _condition(condition: Expression, names: Mapping[str, str]) -> str | None:
    if not isinstance(condition, SqlCall):
        return None
    arguments = condition.arguments
    if condition.function in ("AND", "OR"):
        parts = [_condition(each, names) for each in arguments]
        known = [f"({each})" for each in parts if each is not None]
        if not known or (condition.function == "OR" and len(known) < len(parts)):
            return None
        return f" {condition.function} ".join(known)
    if condition.function in ("IS NULL", "IS NOT NULL") and isinstance(arguments[0], ColumnRef):
        return f"{identifier(names[arguments[0].name])} {condition.function}"
    if condition.function in _SIGNS and len(arguments) == 2:
        return _compared(condition.function, arguments[0], arguments[1], names)
    if condition.function == "IN":
        parts = [_compared("=", arguments[0], each, names) for each in arguments[1:]]
        return None if None in parts else " OR ".join(f"({each})" for each in parts)
    return None


def _compared(sign: str, one: Expression, other: Expression, names: Mapping[str, str]) -> str | None:
    if isinstance(one, Literal):
        turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
        return _compared(turned, other, one, names)
    one, other = _bare(one), _bare(other)
    if not isinstance(one, ColumnRef) or not isinstance(other, Literal) or other.value is None:
        return None
    column, value = identifier(names[one.name]), other.value
    if one.type.root == "VARCHAR" and isinstance(value, str) and "\0" not in value and sign in _EQUAL:
        return f"{column}::text {sign} {literal(value)}"  # the order of texts is one of the server's
    if one.type.root in INTEGERS and isinstance(value, int | Decimal) and not isinstance(value, bool):
        return f"{column} {sign} {value}"
    if one.type.root == "BOOLEAN" and isinstance(value, bool) and sign in _EQUAL:
        return f"{column} {sign} {value}"
    if one.type.root == "DATE" and type(value) is date:
        return f"{column} {sign} DATE '{value.isoformat()}'"
    if (
        one.type.root in ("TIMESTAMP", "TIMESTAMP_LTZ")
        and isinstance(value, datetime)
        and one.type.root == other.type.root
    ):
        moment = value if value.tzinfo is None else value.astimezone(UTC)
        return f"{column} {sign} {'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'} '{moment.isoformat(' ')}'"
    return None


def _bare(expression: Expression) -> Expression:
    """Return what a cast is of, where it changes no value: of exact numbers into wider ones."""
    while isinstance(expression, SqlCall) and expression.function == "CAST":
        (inner,) = expression.arguments
        if inner.type.root not in EXACT or expression.type.root not in EXACT or not _is_wider(expression, inner):
            break
        expression = inner
    return expression


def _is_wider(cast: SqlCall, inner: Expression) -> bool:
    (precision, scale), (inner_precision, inner_scale) = as_decimal(cast.type), as_decimal(inner.type)
    return scale >= inner_scale and precision - scale >= inner_precision - inner_scale
