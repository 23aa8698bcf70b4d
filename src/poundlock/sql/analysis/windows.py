"""Windows in queries: table-valued functions, the older group windows, and which columns of a relation are bounds of a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from poundlock.sql.analysis.context import Analysis
from poundlock.sql.errors import shown
from poundlock.sql.expressions.tree import ColumnRef, columns_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import (
    LogicalFilter,
    LogicalProject,
    LogicalRelation,
    LogicalTopN,
    LogicalWindowAggregate,
    LogicalWindowTable,
    SqlWindow,
    WindowKind,
)
from poundlock.sql.types import SqlType

BOUNDS = ("window_start", "window_end", "window_time")
_ARGUMENTS: Mapping[str, tuple[WindowKind, int]] = {
    "TUMBLE": ("tumble", 1),
    "HOP": ("hop", 2),
    "CUMULATE": ("cumulate", 2),
    "SESSION": ("session", 1),
}
"""The functions, and how many spans of time each needs."""
_NAMED: Mapping[str, tuple[str, ...]] = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}
"""What arguments are called where they are written by name."""
_UNITS_MS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000, "WEEK": 604_800_000}  # fmt: skip
PLAIN_TIME = SqlType("TIMESTAMP", (3,))


def is_window_function(name: str) -> bool:
    """Return whether a function of tables makes windows."""
    return name.upper() in _ARGUMENTS


def in_order(analysis: Analysis, call: exp.Anonymous) -> Sequence[exp.Expr]:
    """Return the arguments of a window function in their order, also where they are written by name.

    Raises:
        SqlError: it has no argument of a name, one is there twice, or some have names and others have not.
    """
    name = str(call.this).upper()
    named = [each for each in call.expressions if isinstance(each, exp.Kwarg)]
    if not named:
        return list(call.expressions)
    order = _NAMED[name]
    given = {each.this.name.upper(): each.expression for each in named}
    if len(given) != len(call.expressions) or not given.keys() <= set(order):
        raise analysis.error(
            call,
            f"{name} takes {', '.join(order)} by name, each once, and all of them or none",
            f"write such as {name}(DATA => TABLE orders, TIMECOL => DESCRIPTOR(ts), …)",
            "wrong_arguments",
        )
    missing = next((each for each in order if each not in given and each != "OFFSET"), None)
    if missing is not None:
        raise analysis.error(call, f"{name} without {missing}", f"write {missing} => …", "wrong_arguments")
    return [given[each] for each in order if each in given]


def window_table(
    analysis: Analysis,
    name: str,
    relation: LogicalRelation,
    time: exp.Expr,
    spans: Sequence[exp.Expr],
    keys: Sequence[Field],
) -> LogicalWindowTable:
    """Return the rows of a relation with their windows.

    Args:
        name: of the function.
        time: what DESCRIPTOR names.
        spans: the intervals, as they are written.
        keys: PARTITION BY of sessions.

    Raises:
        SqlError: the column is no time attribute, or the spans do not fit each other.
    """
    window = window_of_spans(analysis, name, relation, time, spans)
    window = replace(window, partition=tuple(key.column for key in keys))
    event = relation.field(window.time)
    kept = tuple(
        each.plain() if each.column == window.time and not window.by_clock else each for each in relation.fields
    )
    bounds = [Field(each, analysis.names.fresh(each), PLAIN_TIME.not_null()) for each in BOUNDS[:2]]
    time_type = event.type.not_null()
    at = Field("window_time", analysis.names.fresh("window_time"), time_type, event.time)
    return LogicalWindowTable((*kept, *bounds, at), relation, window)


def window_of_spans(
    analysis: Analysis, name: str, relation: LogicalRelation, time: exp.Expr, spans: Sequence[exp.Expr]
) -> SqlWindow:
    """Return a window; raises as `window_table`."""
    kind, needed = _ARGUMENTS[name.upper()]
    lengths = [span_ms(analysis, each) for each in spans]
    if not needed <= len(lengths) <= needed + (kind != "session"):
        raise analysis.error(
            time,
            f"{name.upper()} takes {needed} or {needed + 1} spans of time, and got {len(lengths)}",
            "write such as INTERVAL '10' SECOND for each",
            "wrong_arguments",
        )
    field = _time_attribute(analysis, relation, time)
    offset = lengths[needed] if len(lengths) > needed else 0
    size, step = (lengths[1], lengths[0]) if needed == 2 else (lengths[0], 0)
    if size <= 0 or (needed == 2 and step <= 0):
        raise analysis.error(
            time, f"{name.upper()} with a span that is not above zero", "give longer ones", "invalid_window"
        )
    if kind == "cumulate" and size % step:
        raise analysis.error(
            time,
            f"CUMULATE with a size of {size} ms, which is no multiple of its step of {step} ms",
            "write CUMULATE(TABLE t, DESCRIPTOR(time), step, size), the size a multiple of the step",
            "invalid_window",
        )
    if kind == "tumble" and abs(offset) >= size:
        raise analysis.error(
            time, "TUMBLE with an offset that is not below its size", "give a smaller one", "invalid_window"
        )
    return SqlWindow(
        kind,
        field.column,
        by_clock=field.time == "proctime",
        size=size,
        step=step,
        offset=offset,
        is_local=field.type.root == "TIMESTAMP_LTZ",
    )


def group_window(
    analysis: Analysis, node: exp.Expr, name: str, arguments: Sequence[exp.Expr], relation: LogicalRelation
) -> SqlWindow:
    """Return the window of `GROUP BY TUMBLE(time, size)` and its like, whose arguments stand in another order than those of tables."""
    if name.upper() == "HOP" and len(arguments) > 2:
        return window_of_spans(analysis, "HOP", relation, arguments[0], arguments[1:])
    return window_of_spans(analysis, name, relation, arguments[0], arguments[1:])


def span_ms(analysis: Analysis, node: exp.Expr) -> int:
    """Return how long an interval is, ms.

    Raises:
        SqlError: it is none of a fixed length.
    """
    value = analysis.interval_ms(node)
    if value is None:
        raise analysis.error(
            node,
            f"{shown(node)} is no span of time of a fixed length",
            f"write such as INTERVAL '10' SECOND; units are {', '.join(_UNITS_MS)}",
            "invalid_window",
        )
    return value


def _time_attribute(analysis: Analysis, relation: LogicalRelation, time: exp.Expr) -> Field:
    parts = [each.name for each in time.parts] if isinstance(time, exp.Column) else [time.name]
    field, rest = analysis.scope_of(relation).find(parts, time)
    if rest or field.time is None:
        raise analysis.error(
            time,
            f"{'.'.join(parts)} is of type {field.type} and no time attribute",
            "give the table WATERMARK FOR it, or a column AS PROCTIME()",
            "not_a_time_attribute",
        )
    return field


# --- windows of relations --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """The columns of a relation that are bounds of a window.

    Args:
        is_over: whether its rows come once the window is over, as those of an aggregate do.
    """

    window: SqlWindow
    start: str | None
    end: str | None
    time: str | None
    is_over: bool


def bounds_of(relation: LogicalRelation) -> WindowBounds | None:
    """Return the bounds of a window that are columns of a relation, None where there are none."""
    if isinstance(relation, LogicalWindowTable):
        start, end, time = (each.column for each in relation.fields[-3:])
        return WindowBounds(relation.window, start, end, time, is_over=False)
    if isinstance(relation, LogicalWindowAggregate):
        return WindowBounds(relation.window, *relation.bounds, is_over=True)
    if isinstance(relation, LogicalFilter | LogicalTopN):
        return bounds_of(relation.input)
    if isinstance(relation, LogicalProject):
        inner = bounds_of(relation.input)
        if inner is None:
            return None
        called = relation.passed
        first, last, at = (None if each is None else called.get(each) for each in (inner.start, inner.end, inner.time))
        if first is None and last is None and at is None:
            return None
        return WindowBounds(inner.window, first, last, at, is_over=inner.is_over)
    return None


def without_window(relation: LogicalRelation) -> LogicalRelation | None:
    """Return the rows of a relation before they were given windows, with its other columns; None where a condition or an expression is
    of a window's bounds."""
    if isinstance(relation, LogicalWindowTable):
        return relation.input
    if isinstance(relation, LogicalFilter):
        inner = without_window(relation.input)
        if inner is None or not set(columns_of(relation.condition)) <= {each.column for each in inner.fields}:
            return None
        return LogicalFilter(inner.fields, inner, relation.condition)
    if isinstance(relation, LogicalProject):
        inner = without_window(relation.input)
        if inner is None:
            return None
        known = {each.column for each in inner.fields}
        kept = []
        for field, expression in zip(relation.fields, relation.expressions, strict=True):
            if set(columns_of(expression)) <= known:
                time = inner.field(expression.name).time if isinstance(expression, ColumnRef) else None
                kept.append((replace(field, time=time), expression))
            elif not isinstance(expression, ColumnRef):
                return None
        return LogicalProject(tuple(f for f, _ in kept), inner, tuple(e for _, e in kept))
    return None
