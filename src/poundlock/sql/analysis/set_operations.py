"""UNION, INTERSECT and EXCEPT: rows of queries whose columns are of common types."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from poundlock.sql.analysis.context import Analysis
from poundlock.sql.analysis.joins import conjunction
from poundlock.sql.coercion import common_type
from poundlock.sql.expressions.tree import ColumnRef, SqlCall, cast_to
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import (
    LogicalAggregate,
    LogicalFilter,
    LogicalProject,
    LogicalRelation,
    LogicalUnionAll,
    SqlAggregateCall,
)
from poundlock.sql.types import SqlType

_BEHIND = {"with_", "order", "limit", "offset"}
_COUNT = SqlType("BIGINT", is_nullable=False)


def parts_of(query: exp.SetOperation) -> list[exp.Expr]:
    """Return the queries whose rows a set operation is of."""
    return _united(query) if isinstance(query, exp.Union) else [query.this, query.expression]


def _united(query: exp.Union) -> list[exp.Expr]:
    """Return the queries of a chain of UNION, or of UNION ALL: their order makes no difference, and they are one step."""
    parts, left = [query.expression], query.this
    while isinstance(left, exp.Union) and not _BEHIND & {name for name, each in left.args.items() if each}:
        if left.args.get("distinct") != query.args.get("distinct"):
            break
        parts.append(left.expression)
        left = left.this
    return [left, *reversed(parts)]


def set_operation(
    analysis: Analysis, query: exp.SetOperation, written: Sequence[exp.Expr], sides: Sequence[LogicalRelation]
) -> LogicalRelation:
    """Return the rows of a set operation.

    Args:
        written: its queries; `sides`: their relations.

    Raises:
        SqlError: they have not as many columns, or ones that have no common type.
    """
    left, name = sides[0], query.key.upper()
    types = [each.type for each in left.fields]
    for node, side in zip(written[1:], sides[1:], strict=True):
        if len(left.fields) != len(side.fields):
            raise analysis.error(
                node,
                f"{name} of {len(left.fields)} and of {len(side.fields)} columns",
                "select as many on both sides",
                "column_count_mismatch",
            )
        for place, (one, other) in enumerate(zip(types, side.fields, strict=True)):
            shared = common_type([one, other.type])
            if shared is None:
                raise analysis.error(node, f"{name} of {one} and {other.type}", "CAST one of them", "type_mismatch")
            types[place] = shared
    columns = zip(*(each.fields for each in sides), strict=True)
    times = [same[0].time if len({each.time for each in same}) == 1 else None for same in columns]
    names = [analysis.names.fresh(each.name) for each in left.fields]
    fields = tuple(
        Field(field.name, column, kind, time)
        for field, column, kind, time in zip(left.fields, names, types, times, strict=True)
    )
    parts = [_as(each, fields) for each in sides]
    is_distinct = bool(query.args.get("distinct"))
    if isinstance(query, exp.Union):
        union: LogicalRelation = LogicalUnionAll(fields, tuple(parts))
        return distinct_rows(union) if is_distinct else union
    return _counted(analysis, query, parts, fields, is_distinct=is_distinct)


def distinct_rows(relation: LogicalRelation) -> LogicalRelation:
    """Return the different rows of a relation."""
    plain = tuple(each.plain() for each in relation.fields)
    return LogicalAggregate(plain, relation, tuple(each.column for each in plain), ())


def _as(relation: LogicalRelation, fields: Sequence[Field]) -> LogicalRelation:
    expressions = tuple(cast_to(each.ref, to.type) for each, to in zip(relation.fields, fields, strict=True))
    return LogicalProject(tuple(fields), relation, expressions)


def _counted(
    analysis: Analysis,
    query: exp.SetOperation,
    parts: Sequence[LogicalRelation],
    fields: tuple[Field, ...],
    *,
    is_distinct: bool,
) -> LogicalRelation:
    """Return INTERSECT and EXCEPT: of each row how often either side has it says how often the result does."""
    plain = tuple(each.plain() for each in fields)
    marks = [analysis.names.fresh(side) for side in ("on_left", "on_right")]
    marked = []
    for place, part in enumerate(parts):
        ones = [analysis.literal(int(place == at), _COUNT) for at in range(2)]
        columns = (*plain, *(Field(mark, mark, _COUNT) for mark in marks))
        marked.append(LogicalProject(columns, part, (*(each.ref for each in plain), *ones)))
    union = LogicalUnionAll(marked[0].fields, tuple(marked))
    sums = [analysis.names.fresh(f"{mark}_count") for mark in marks]
    calls = tuple(SqlAggregateCall("sum", (mark,), total, _COUNT) for mark, total in zip(marks, sums, strict=True))
    keys = tuple(each.column for each in plain)
    counted = LogicalAggregate((*plain, *(Field(each, each, _COUNT) for each in sums)), union, keys, calls)
    left, right = (ColumnRef(each, _COUNT) for each in sums)
    kind = "except" if isinstance(query, exp.Except) else "intersect"
    if is_distinct:
        zero = analysis.literal(0, _COUNT)
        boolean = SqlType("BOOLEAN")
        has_left = SqlCall(">", (left, zero), boolean)
        on_right = SqlCall("=" if kind == "except" else ">", (right, zero), boolean)
        whole = conjunction([has_left, on_right])
        assert whole is not None
        kept: LogicalRelation = LogicalFilter(counted.fields, counted, whole)
        return LogicalProject(plain, kept, tuple(each.ref for each in plain))
    how_often = SqlCall("$EXCEPT_COUNT" if kind == "except" else "$INTERSECT_COUNT", (left, right), _COUNT)
    times = analysis.names.fresh("times")
    repeated = LogicalProject((*plain, Field(times, times, _COUNT)), counted, (*(f.ref for f in plain), how_often))
    return analysis.repeated(repeated, plain, times)
