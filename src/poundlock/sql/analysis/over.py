"""OVER: aggregates of the rows around each, and the numbers of rows from which Top-N and deduplication are made."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from poundlock.sql.analysis.aggregate_calls import (
    RANKS,
    STATISTICS,
    aggregate_in,
    arguments_row,
    result_type,
    statistic,
)
from poundlock.sql.analysis.context import Analysis, Special
from poundlock.sql.analysis.joins import conjunction, conjuncts_of
from poundlock.sql.analysis.scope import QueryScope
from poundlock.sql.analysis.windows import bounds_of
from poundlock.sql.errors import shown
from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal, SqlCall, cast_to, columns_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import (
    Frame,
    LogicalDeduplicate,
    LogicalFilter,
    LogicalOver,
    LogicalProject,
    LogicalRelation,
    LogicalTopN,
    LogicalValues,
    LogicalWindowTopN,
    OrderKey,
    SqlAggregateCall,
)
from poundlock.sql.types import SqlType
from poundlock.sql.user.function import SqlUserFunction

KeptRow = typing.Literal["first", "last"]
_DEFAULT = 2  # the place of the argument of LAG and LEAD for where there is no row
_WHOLE = Frame("range", None, None)
_SO_FAR = Frame("range", None)
_Place = tuple[tuple[Expression, ...], tuple[tuple[Expression, OrderKey], ...], Frame]
"""PARTITION BY, ORDER BY and the frame of an OVER."""


@dataclass
class Overs:
    """The OVER aggregates of a query's outputs.

    Args:
        named: the windows of WINDOW.
        before: what is asked before about parts of expressions: aggregates of GROUP BY.
    """

    analysis: Analysis
    scope: QueryScope
    named: Sequence[exp.Expr]
    before: Special
    _made: list[tuple[_Place, list[_Call]]] = field(default_factory=list)

    def special(self, node: exp.Expr) -> Expression | None:
        """Return what a part of an expression is, where it is an OVER or what is asked before."""
        if isinstance(node, exp.Window):
            return self._over(node)
        return self.before(node)

    def _over(self, node: exp.Window) -> Expression:
        written = aggregate_in(node.this, over=True)
        if written is None:
            raise self.analysis.error(node, f"{shown(node.this)} is no aggregate", "write such as SUM(x) OVER (…)")
        window = self._window(node)
        partition = tuple(
            self.analysis.expression(each, self.scope, self.before) for each in window.args.get("partition_by") or ()
        )
        order = tuple(
            (self.analysis.expression(each.this, self.scope, self.before), self._key(each))
            for each in (window.args["order"].expressions if window.args.get("order") is not None else ())
        )
        frame = self._frame(node, window, bool(order))
        if written.name in (*RANKS, "LAG", "LEAD"):
            frame = _SO_FAR
        typed = [self.analysis.expression(each, self.scope, self.before) for each in written.arguments]
        filter_ = None
        if written.filter is not None:
            filter_ = self.analysis.condition(written.filter, self.scope, self.before)
        if not self.analysis.is_batch:
            self._check_streaming(node, written.name, order)
        place = (partition, order, frame)
        if written.own is not None:
            row = arguments_row(self.analysis.own_arguments(written.own, typed, written.node))
            own = _Call("own", (row,), filter_, written.is_distinct, written.own.result, own=written.own)
            return self._added(place, own)
        made = result_type(self.analysis, written, [each.type for each in typed])
        if written.name in ("LAG", "LEAD") and len(typed) > _DEFAULT:
            typed[_DEFAULT] = cast_to(typed[_DEFAULT], made)
        if written.name not in STATISTICS:
            return self._added(place, _Call(written.name.lower(), tuple(typed), filter_, written.is_distinct, made))

        def aggregate(name: str, argument: Expression, kind: SqlType) -> Expression:
            return self._added(place, _Call(name.lower(), (argument,), filter_, written.is_distinct, kind))

        return statistic(self.analysis, written, typed[0], made, aggregate)

    def _added(self, place: _Place, call: _Call) -> Expression:
        """Return the column of an aggregate of rows around each; equal ones are computed once."""
        for known, calls in self._made:
            if known == place:
                same = next((each for each in calls if replace(each, column="") == call), None)
                if same is not None:
                    return ColumnRef(same.column, call.type)
                break
        else:
            calls = []
            self._made.append((place, calls))
        call = replace(call, column=self.analysis.names.fresh(call.kind))
        calls.append(call)
        return ColumnRef(call.column, call.type)

    def _check_streaming(self, node: exp.Expr, name: str, order: Sequence[tuple[Expression, OrderKey]]) -> None:
        if name in ("LEAD", "PERCENT_RANK", "CUME_DIST", "NTILE"):
            raise self.analysis.error(
                node,
                f"{name} in a stream looks at rows that are to come",
                "SET 'execution.runtime-mode' = 'batch' for a bounded table",
                "unsupported_query",
            )
        if name in RANKS or name == "LAG":
            return
        time = self._is_time(order[0][0]) if order else False
        if not time or len(order) > 1:
            raise self.analysis.error(
                node,
                "OVER in a stream is ordered by one time attribute",
                "write ORDER BY the column that the watermark is for",
                "unsupported_query",
            )
        if order[0][1].is_descending:
            raise self.analysis.error(
                node, "OVER in a stream is ordered ascending", "leave DESC out", "unsupported_query"
            )

    def _is_time(self, expression: Expression) -> bool:
        return isinstance(expression, ColumnRef) and any(
            f.column == expression.name and f.time is not None for r in self.scope.relations for f in r.fields
        )

    def _window(self, node: exp.Window) -> exp.Expr:
        alias = node.args.get("alias")
        if alias is None:
            return node
        for each in self.named:
            if each.name == alias.name:
                return each
        raise self.analysis.error(node, f"there is no window {alias.name}", "write WINDOW name AS (…) behind FROM")

    def _key(self, node: exp.Expr) -> OrderKey:
        is_descending = bool(node.args.get("desc"))
        nulls_first = node.args.get("nulls_first")
        return OrderKey("", is_descending, not is_descending if nulls_first is None else bool(nulls_first))

    def _frame(self, node: exp.Expr, window: exp.Expr, ordered: bool) -> Frame:
        spec = window.args.get("spec")
        if spec is None:
            return _SO_FAR if ordered else _WHOLE
        unit = "rows" if str(spec.args.get("kind")).upper() == "ROWS" else "range"
        start = self._bound(node, spec.args.get("start"), spec.args.get("start_side"), unit)
        end = self._bound(node, spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"), unit)
        if start is not None and start > 0:
            raise self.analysis.error(
                node, "a frame that begins behind its row", "begin it with PRECEDING", "unsupported_query"
            )
        if not self.analysis.is_batch and end != 0:
            raise self.analysis.error(
                node, "a frame in a stream ends with CURRENT ROW", "write … AND CURRENT ROW", "unsupported_query"
            )
        return Frame(unit, None if start is None else -start, end)  # type: ignore[arg-type]

    def _bound(self, node: exp.Expr, value: object, side: object, unit: str) -> int | None:
        """Return where a frame begins or ends, from the row: rows or ms, None where it has no bound."""
        if value is None or str(value).upper() == "UNBOUNDED":
            return None
        if str(value).upper() == "CURRENT ROW":
            return 0
        sign = -1 if str(side).upper() == "PRECEDING" else 1
        if unit == "rows" and isinstance(value, exp.Literal) and value.name.isdigit():
            return sign * int(value.name)
        span = self.analysis.interval_ms(value) if isinstance(value, exp.Expr) else None
        if span is None:
            raise self.analysis.error(
                node, f"a frame of {value}", "write ROWS n PRECEDING, or RANGE INTERVAL … PRECEDING"
            )
        return sign * span

    def relation(self, relation: LogicalRelation) -> LogicalRelation:
        """Return a relation with the columns of all OVER aggregates behind its own."""
        for (partition, order, frame), calls in self._made:
            relation = self._one(relation, partition, order, frame, calls)
        return relation

    def _one(
        self,
        relation: LogicalRelation,
        partition: Sequence[Expression],
        order: Sequence[tuple[Expression, OrderKey]],
        frame: Frame,
        calls: Sequence[_Call],
    ) -> LogicalRelation:
        fields, expressions = list(relation.fields), [each.ref for each in relation.fields]
        added: list[tuple[Expression, Field]] = []

        def column(typed: Expression) -> str:
            if isinstance(typed, ColumnRef):
                return typed.name
            for known, own in added:
                if known == typed:
                    return own.column
            own = Field("computed", self.analysis.names.fresh("computed"), typed.type)
            added.append((typed, own))
            return own.column

        keys = tuple(column(each) for each in partition)
        ordered = tuple(replace(key, column=column(each)) for each, key in order)
        made = tuple(
            SqlAggregateCall(
                each.kind,
                tuple(column(argument) for argument in each.arguments),
                each.column,
                each.type,
                each.is_distinct,
                None if each.filter is None else column(each.filter),
                own=each.own,
            )
            for each in calls
        )
        if added:
            relation = LogicalProject(
                (*fields, *(own for _, own in added)), relation, (*expressions, *(typed for typed, _ in added))
            )
        results = tuple(Field(each.kind, each.column, each.type) for each in made)
        return LogicalOver((*relation.fields, *results), relation, keys, ordered, frame, made)


@dataclass(frozen=True, slots=True)
class _Call:
    kind: str
    arguments: tuple[Expression, ...]
    filter: Expression | None
    is_distinct: bool
    type: SqlType
    column: str = ""
    own: SqlUserFunction | None = None


# --- Top-N and deduplication -----------------------------------------------------------------------------------------


def ranked(analysis: Analysis, relation: LogicalRelation, node: exp.Expr) -> LogicalRelation:
    """Return Top-N or deduplication in the place of a filter over the numbers of rows, anything else as it is.

    Args:
        node: the condition of the filter, for errors.
    """
    if not isinstance(relation, LogicalFilter):
        return relation
    projects: list[LogicalProject] = []
    inner = relation.input
    while isinstance(inner, LogicalProject):
        projects.append(inner)
        inner = inner.input
    if not isinstance(inner, LogicalOver) or len(inner.calls) != 1 or inner.calls[0].kind.upper() not in RANKS:
        return relation
    number = _named_above(inner.calls[0].column, projects)
    if number is None:
        return relation
    first, last, rest = 1, None, []
    for condition in conjuncts_of(relation.condition):
        low, high = _range(condition, number)
        if low is None and high is None:
            rest.append(condition)
        first = max(first, low or 1)
        last = high if last is None else min(last, last if high is None else high)
    if last is None:
        return relation
    if inner.calls[0].kind != "row_number" and not analysis.is_batch:
        raise analysis.error(
            node,
            f"{inner.calls[0].kind.upper()} in a stream",
            "take ROW_NUMBER(), or batch mode",
            "unsupported_query",
        )
    if inner.calls[0].kind != "row_number":
        return relation
    if last < first:
        return LogicalValues(tuple(each.plain() for each in relation.fields), ())
    made = _top_n(inner, first, last)
    for project in reversed(projects):
        now = {f.column: f for f in made.fields}
        fields = tuple(
            replace(f, time=now[e.name].time) if isinstance(e, ColumnRef) and e.name in now else f
            for f, e in zip(project.fields, project.expressions, strict=True)
        )
        made = LogicalProject(fields, made, project.expressions)
    whole = conjunction(rest)
    return made if whole is None else LogicalFilter(made.fields, made, whole)


def _top_n(over: LogicalOver, first: int, last: int) -> LogicalRelation:
    rank = over.calls[0].column
    bounds = bounds_of(over.input)
    if bounds is not None and {bounds.start, bounds.end} <= set(over.keys):
        return LogicalWindowTopN(over.fields, over.input, over.keys, over.order, first, last, rank)
    time = over.input.field(over.order[0].column) if over.order else None
    if time is not None and time.time is not None and len(over.order) == 1 and (first, last) == (1, 1):
        keep: KeptRow = "last" if over.order[0].is_descending else "first"
        kept = over.input.fields if keep == "first" else tuple(f.plain() for f in over.input.fields)
        deduplicated = LogicalDeduplicate(
            kept, over.input, over.keys, time.column, by_clock=time.time == "proctime", keep=keep
        )
        one = Literal(1, over.calls[0].type)
        number = Field(over.calls[0].kind, rank, over.calls[0].type)
        return LogicalProject((*kept, number), deduplicated, (*(f.ref for f in kept), one))
    plain = tuple(each.plain() for each in over.fields)
    return LogicalTopN(plain, over.input, over.keys, over.order, first, last, rank)


def _named_above(column: str, projects: Sequence[LogicalProject]) -> str | None:
    """Return what a column is called above some projections, None where one leaves it out."""
    for project in reversed(projects):
        names = [
            f.column
            for f, e in zip(project.fields, project.expressions, strict=True)
            if isinstance(e, ColumnRef) and e.name == column
        ]
        if not names:
            return None
        column = names[0]
    return column


def _range(condition: Expression, number: str) -> tuple[int | None, int | None]:
    """Return the least and the greatest of a number that a condition allows, None where it has nothing to do with it."""
    if not isinstance(condition, SqlCall) or len(condition.arguments) != 2 or set(columns_of(condition)) != {number}:
        return None, None
    one, other = (_plain(each) for each in condition.arguments)
    sign = condition.function
    if isinstance(one, Literal):
        one, other = other, one
        sign = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
    if not isinstance(one, ColumnRef) or not isinstance(other, Literal) or not isinstance(other.value, int):
        return None, None
    ranges: dict[str, tuple[int | None, int | None]] = {
        "=": (other.value, other.value),
        "<=": (None, other.value),
        "<": (None, other.value - 1),
        ">=": (other.value, None),
        ">": (other.value + 1, None),
    }
    return ranges.get(sign, (None, None))


def _plain(expression: Expression) -> Expression:
    """Return what is cast between whole numbers."""
    while isinstance(expression, SqlCall) and expression.function == "CAST" and len(expression.arguments) == 1:
        expression = expression.arguments[0]
    return expression
