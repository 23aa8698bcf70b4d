"""Joins: which conditions are equal keys, which bind two times or two windows, and what is left of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from poundlock.sql.analysis.context import Analysis
from poundlock.sql.analysis.windows import bounds_of
from poundlock.sql.coercion import EXACT, TEXTS, common_type
from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal, SqlCall, bound_by, cast_to, columns_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import (
    JoinKind,
    LogicalFilter,
    LogicalIntervalJoin,
    LogicalJoin,
    LogicalLookupJoin,
    LogicalProject,
    LogicalRelation,
    LogicalScan,
    LogicalWindowJoin,
)
from poundlock.sql.types import SqlType

_EQUALS, _AND = "=", "AND"
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BOOLEAN = SqlType("BOOLEAN")


def conjuncts_of(condition: Expression) -> Iterator[Expression]:
    """Yield the conditions that AND binds."""
    if isinstance(condition, SqlCall) and condition.function == _AND:
        for each in condition.arguments:
            yield from conjuncts_of(each)
    else:
        yield condition


def conjunction(conditions: Sequence[Expression]) -> Expression | None:
    """Return conditions bound by AND, None of none."""
    return bound_by(lambda a, b: SqlCall(_AND, (a, b), _BOOLEAN), conditions) if conditions else None


def filtered(relation: LogicalRelation, conditions: Sequence[Expression]) -> LogicalRelation:
    """Return the rows for which conditions are true; of an inner join they become a part, as far as they are of its sides."""
    if isinstance(relation, LogicalJoin) and relation.kind == "inner" and type(relation) is LogicalJoin:
        return _narrowed(relation, conditions)
    whole = conjunction(conditions)
    return relation if whole is None else LogicalFilter(relation.fields, relation, whole)


def _narrowed(join: LogicalJoin, conditions: Sequence[Expression]) -> LogicalRelation:
    left, right = _columns(join.left), _columns(join.right)
    of_left = [each for each in conditions if set(columns_of(each)) <= left and _is_certain(each)]
    of_right = [
        each for each in conditions if each not in of_left and set(columns_of(each)) <= right and _is_certain(each)
    ]
    both = [each for each in conditions if each not in of_left and each not in of_right]
    known = [] if join.condition is None else list(conjuncts_of(join.condition))
    return joined(
        "inner", filtered(join.left, of_left), filtered(join.right, of_right), [*known, *both], keys=join.keys
    )


def _is_certain(condition: Expression) -> bool:
    return any(True for _ in columns_of(condition))


def joined(
    kind: JoinKind,
    left: LogicalRelation,
    right: LogicalRelation,
    conditions: Iterable[Expression],
    *,
    keys: Sequence[tuple[str, str]] = (),
) -> LogicalJoin:
    """Return the join of two relations: of windows, of times that lie near each other, or of all rows.

    Args:
        conditions: that pairs have to meet.
        keys: columns that are known to be equal already.
    """
    parts = _Parts(left, right, list(keys))
    for each in conditions:
        parts.take(each)
    fields = _fields(kind, parts.left, parts.right)
    rest = conjunction(parts.rest)
    shared = tuple(parts.keys)
    bounds = bounds_of(parts.left), bounds_of(parts.right)
    if bounds[0] is not None and bounds[1] is not None:
        pairs = {(bounds[0].start, bounds[1].start), (bounds[0].end, bounds[1].end)}
        if pairs <= set(shared):
            return LogicalWindowJoin(fields, kind, parts.left, parts.right, shared, rest, window=bounds[0].window)
    near = _near(parts)
    if near is not None and shared and kind in ("inner", "left", "right", "full"):
        times, lower, upper, others = near
        return LogicalIntervalJoin(
            fields, kind, parts.left, parts.right, shared, conjunction(others), times=times, lower=lower, upper=upper
        )
    plain = tuple(each.plain() for each in fields)
    return LogicalJoin(plain, kind, parts.left, parts.right, shared, rest)


def _fields(kind: JoinKind, left: LogicalRelation, right: LogicalRelation) -> tuple[Field, ...]:
    if kind in ("semi", "anti"):
        return left.fields
    return (
        *(_padded(each, pad=kind in ("right", "full")) for each in left.fields),
        *(_padded(each, pad=kind in ("left", "full")) for each in right.fields),
    )


def _padded(field: Field, *, pad: bool) -> Field:
    return replace(field, type=replace(field.type, is_nullable=True)) if pad else field


def _columns(relation: LogicalRelation) -> set[str]:
    return {each.column for each in relation.fields}


@dataclass
class _Parts:
    left: LogicalRelation
    right: LogicalRelation
    keys: list[tuple[str, str]]

    def __post_init__(self) -> None:
        self.rest: list[Expression] = []

    def take(self, condition: Expression) -> None:
        pair = self._pair(condition)
        if pair is None:
            self.rest.append(condition)
        elif pair not in self.keys:
            self.keys.append(pair)

    def _pair(self, condition: Expression) -> tuple[str, str] | None:
        """Return the columns that a condition says to be equal; what has to be computed for it becomes one."""
        if not isinstance(condition, SqlCall) or condition.function != _EQUALS:
            return None
        one, other = condition.arguments
        sides = [set(columns_of(each)) for each in (one, other)]
        left, right = _columns(self.left), _columns(self.right)
        if not all(sides):
            return None
        if sides[0] <= right and sides[1] <= left:
            one, other = other, one
        elif not (sides[0] <= left and sides[1] <= right):
            return None
        shared = common_type([one.type, other.type])
        if shared is None:
            return None
        left_column = self._as_column("left", cast_to(one, shared))
        return left_column, self._as_column("right", cast_to(other, shared))

    def _as_column(self, side: str, typed: Expression) -> str:
        relation = self.left if side == "left" else self.right
        if isinstance(typed, ColumnRef):
            return typed.name
        column = f"$key_{side}_{len(self.keys)}"
        fields = (*relation.fields, Field(column, column, typed.type))
        made = LogicalProject(fields, relation, (*(each.ref for each in relation.fields), typed))
        if side == "left":
            self.left = made
        else:
            self.right = made
        return column


# --- tables that are looked up in --------------------------------------------------------------------------------------


def lookup_joined(
    kind: JoinKind, left: LogicalRelation, right: LogicalRelation, conditions: Iterable[Expression]
) -> LogicalLookupJoin | None:
    """Return the join of rows with those of a table at the time of the clock.

    Returns:
        None where the right side is no table, or no column of it is said to equal one of the left side.
    """
    parts = _Parts(left, right, [])
    for each in conditions:
        parts.take(each)
    asked = [(of_left, _in_table(parts.right, of_right)) for of_left, of_right in parts.keys]
    looked_up = tuple((of_left, column) for of_left, column in asked if column is not None)
    if not looked_up:
        return None
    fields = _fields(kind, parts.left, right)
    shared, rest = tuple(parts.keys), conjunction(parts.rest)
    return LogicalLookupJoin(
        (*fields[: len(left.fields)], *fields[len(parts.left.fields) :]),
        kind,
        parts.left,
        parts.right,
        shared,
        rest,
        looked_up=looked_up,
    )


def _in_table(relation: LogicalRelation, column: str) -> str | None:
    """Return which column of a table one is, None where the rows are not just those of a table, or the column is computed."""
    name: str | None = column
    while isinstance(relation, LogicalProject | LogicalFilter):
        if isinstance(relation, LogicalProject) and name is not None:
            given = {f.column: each for f, each in zip(relation.fields, relation.expressions, strict=True)}
            name = _same_value(given[name])
        relation = relation.input
    return name if isinstance(relation, LogicalScan) else None


def _same_value(expression: Expression) -> str | None:
    """Return the column that an expression has the values of, in a wider type or its own."""
    while isinstance(expression, SqlCall) and expression.function == "CAST":
        (inner,) = expression.arguments
        shared = common_type([inner.type, expression.type])
        is_wider = shared is not None and shared.with_null() == expression.type.with_null()
        if not is_wider or not any(inner.type.root in each and expression.type.root in each for each in (EXACT, TEXTS)):
            return None
        expression = inner
    return expression.name if isinstance(expression, ColumnRef) else None


# --- times -----------------------------------------------------------------------------------------------------------


def _near(parts: _Parts) -> tuple[tuple[str, str], int, int, list[Expression]] | None:
    """Return the times of both sides, between which bounds, ms, they lie, and the other conditions; None where nothing bounds them."""
    lower: int | None = None
    upper: int | None = None
    times: tuple[str, str] | None = None
    others: list[Expression] = []
    for condition in parts.rest:
        bound = _bound(condition, parts)
        if bound is None or times not in (None, bound[0]):
            others.append(condition)
            continue
        times, low, high = bound
        if low is not None:
            lower = low if lower is None else max(lower, low)
        if high is not None:
            upper = high if upper is None else min(upper, high)
    if times is None or lower is None or upper is None:
        return None
    return times, lower, upper, others


def _bound(condition: Expression, parts: _Parts) -> tuple[tuple[str, str], int | None, int | None] | None:
    """Return the times that a condition compares, and the least or greatest of right - left that it allows, ms."""
    if not isinstance(condition, SqlCall) or condition.function not in (*_TURNED, _EQUALS):
        return None
    one, other = (_moved_time(each) for each in condition.arguments)
    if one is None or other is None:
        return None
    (a, a_ms), (b, b_ms) = one, other
    sign = condition.function
    if _is_time(parts.right, a) and _is_time(parts.left, b):
        a, a_ms, b, b_ms, sign = b, b_ms, a, a_ms, _TURNED.get(sign, sign)
    elif not (_is_time(parts.left, a) and _is_time(parts.right, b)):
        return None
    apart = a_ms - b_ms  # left + a sign right + b: right - left is compared with a - b
    if sign == _EQUALS:
        return (a, b), apart, apart
    if sign in ("<", "<="):
        return (a, b), apart + (sign == "<"), None
    return (a, b), None, apart - (sign == ">")


def _is_time(relation: LogicalRelation, column: str) -> bool:
    return any(each.column == column and each.time == "rowtime" for each in relation.fields)


def _moved_time(typed: Expression) -> tuple[str, int] | None:
    """Return the column and by how many ms it is moved."""
    if isinstance(typed, ColumnRef):
        return typed.name, 0
    if isinstance(typed, SqlCall) and typed.function in ("DATETIME +", "DATETIME -") and len(typed.arguments) == 2:
        inner, span = _moved_time(typed.arguments[0]), typed.arguments[1]
        if inner is not None and isinstance(span, Literal) and span.type.root == "INTERVAL_DAY_TIME":
            return inner[0], inner[1] + (int(span.value) if typed.function == "DATETIME +" else -int(span.value))
    return None


def using_columns(analysis: Analysis, join: exp.Join, left: Sequence[Field], right: Sequence[Field]) -> list[str]:
    """Return the names that USING gives, or that NATURAL finds.

    Raises:
        SqlError: a side has no such column.
    """
    names = [each.name for each in join.args.get("using") or ()]
    if str(join.args.get("method") or "").upper() == "NATURAL":
        names = [each.name for each in left if any(each.name == other.name for other in right)]
    for name in names:
        for side, fields in (("left", left), ("right", right)):
            if not any(each.name == name for each in fields):
                raise analysis.error(
                    join, f"there is no column {name} on the {side} of USING", "name columns of both", "unknown_column"
                )
    return names
