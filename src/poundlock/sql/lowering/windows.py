"""Windows of SQL as windows of streams, and the aggregates of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from poundlock.errors import DefinitionError
from poundlock.operators.local_times import moves_clocks
from poundlock.sql.expressions.tree import ColumnRef, Expression, SqlCall, cast_to
from poundlock.sql.relations.tree import SqlAggregateCall, SqlWindow
from poundlock.sql.types import SqlType
from poundlock.stream.windows.assigners import WindowAssigner
from poundlock.stream.windows.builtin_assigners import (
    CumulativeEventTimeWindows,
    CumulativeProcessingTimeWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

_SPARK: Mapping[str, str] = {
    "count": "count", "sum": "sum", "min": "min", "max": "max", "first_value": "first", "last_value": "last",
    "array_agg": "collect_list",
}  # fmt: skip
_BIGINT = SqlType("BIGINT")
_INSTANT = SqlType("TIMESTAMP_LTZ", (6,))


def assigner_of(window: SqlWindow, zone: tzinfo) -> WindowAssigner:
    """Return the windows of a stream that a window of SQL is; by wall times where `moving_zone` gives a zone."""
    is_moved = window.is_local and moving_zone(window, zone) is None
    offset = timedelta(milliseconds=window.offset - (_ahead_ms(zone) if is_moved else 0))
    size, step = timedelta(milliseconds=window.size), timedelta(milliseconds=window.step)
    if window.kind == "tumble":
        offset = offset % size
        return (
            TumblingProcessingTimeWindows(size, offset) if window.by_clock else TumblingEventTimeWindows(size, offset)
        )
    if window.kind == "hop":
        kind = SlidingProcessingTimeWindows if window.by_clock else SlidingEventTimeWindows
        return kind(size, step, offset % step)
    if window.kind == "session":
        return ProcessingTimeSessionWindows(size) if window.by_clock else EventTimeSessionWindows(size)
    growing = CumulativeProcessingTimeWindows if window.by_clock else CumulativeEventTimeWindows
    return growing(step, size, offset % size)


def moving_zone(window: SqlWindow, zone: tzinfo) -> tzinfo | None:
    """Return the zone whose wall clocks a window follows, None where UTC's do, or its own are never moved."""
    return zone if window.is_local and moves_clocks(zone) else None


def bound_of(window: SqlWindow, place: int, kind: SqlType, zone: tzinfo) -> Expression:
    """Return a bound of a window of a stream as SQL has it.

    Args:
        place: 0 for its start, 1 for its end, 2 for its time.
        kind: the type that the bound has.
    """
    bound = ColumnRef("window_end" if place else "window_start", _INSTANT)
    given = "instant" if not window.is_local else "local" if moving_zone(window, zone) is None else "wall"
    return SqlCall("$WINDOW_BOUND", (bound,), kind, ("last" if place == 2 else "border", given))


def _ahead_ms(zone: tzinfo) -> int:
    """Return by how much the clocks of a zone, which are never moved, are ahead of UTC, ms."""
    ahead = datetime(2000, 1, 1, tzinfo=UTC).astimezone(zone).utcoffset()
    return (ahead or timedelta(0)) // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class StreamAggregate:
    """An aggregate of windows as streams have it, and what becomes of it.

    Args:
        texts: Spark SQL, each `AS` a column of its own.
        result: of those columns.
        parts: the same as kind, column and type of each, where rows have to be added up beside aggregates of the user's own.
    """

    texts: tuple[str, ...]
    result: Expression
    parts: tuple[tuple[str, str, SqlType], ...] = ()


def stream_aggregate(call: SqlAggregateCall, argument: SqlType | None, filtered: str | None) -> StreamAggregate:
    """Return an aggregate of windows.

    Args:
        argument: the type of its column; None for COUNT(*).
        filtered: the column of the argument that is null where a filter leaves a row out; None where there is no filter.

    Raises:
        DefinitionError: windows have no such aggregate.
    """
    column = filtered or (call.arguments[0] if call.arguments else None)
    of = "*" if column is None else quoted(column)
    out = quoted(call.column)
    if call.is_distinct:
        if call.kind != "count":
            raise _missing(call)
        made = _typed(call.column, _BIGINT, call.type)
        parts = (("count_distinct", call.column, _BIGINT),)
        return StreamAggregate((f"count(DISTINCT {of}) AS {out}",), made, parts)
    if call.kind == "avg" and argument is not None:
        return _average(call, argument, of)
    if call.kind not in _SPARK:
        raise _missing(call)
    kind, given = _SPARK[call.kind], _result(call, argument)
    result = _typed(call.column, given, call.type)
    return StreamAggregate((f"{kind}({of}) AS {out}",), result, ((kind, call.column, given),))


def _average(call: SqlAggregateCall, argument: SqlType, of: str) -> StreamAggregate:
    """Return an average as sum and count: of whole numbers Flink's is whole."""
    total, count = f"{call.column}$sum", f"{call.column}$count"
    sum_type = _sum_type(argument)
    texts = (f"sum({of}) AS {quoted(total)}", f"count({of}) AS {quoted(count)}")
    quotient = SqlCall("$AVG", (ColumnRef(total, sum_type), ColumnRef(count, _BIGINT)), call.type)
    return StreamAggregate(texts, quotient, (("sum", total, sum_type), ("count", count, _BIGINT)))


def _result(call: SqlAggregateCall, argument: SqlType | None) -> SqlType:
    """Return the type of what streams give."""
    if call.kind == "count" or argument is None:
        return _BIGINT
    if call.kind == "sum":
        return _sum_type(argument)
    if call.kind == "array_agg":
        return SqlType("ARRAY", of=(argument,))
    return argument


def _sum_type(argument: SqlType) -> SqlType:
    if argument.root == "DECIMAL":
        return SqlType("DECIMAL", (min(argument.sizes[0] + 10, 38), argument.sizes[1]))
    return SqlType("DOUBLE") if argument.root in ("FLOAT", "DOUBLE") else _BIGINT


def _typed(column: str, given: SqlType, wanted: SqlType) -> Expression:
    return cast_to(ColumnRef(column, given), wanted)


def _missing(call: SqlAggregateCall) -> DefinitionError:
    distinct = " DISTINCT" if call.is_distinct else ""
    return DefinitionError(
        f"{call.kind.upper()}{distinct} of a window is not there yet",
        next="group without a window, or take another one",
    )


def quoted(name: str) -> str:
    """Return a column's name in Spark's quotes."""
    return "`" + name.replace("`", "``") + "`"


def keys_text(columns: Sequence[str]) -> list[str]:
    """Return the columns of a key as Spark SQL."""
    return [quoted(each) for each in columns]
