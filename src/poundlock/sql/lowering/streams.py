"""Relations as streams of a job. A relation that stands in two places becomes one stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from poundlock.connectors.datagen.source import DatagenSource
from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.analysis.windows import bounds_of
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal, SqlCall
from poundlock.sql.lowering.match_rows import MatchColumns, output_schema
from poundlock.sql.lowering.ordered import over_node, sort_node, temporal_join_node
from poundlock.sql.lowering.own_windows import own_window
from poundlock.sql.lowering.programs import (
    CalcProgram,
    CalcStep,
    ExpandProgram,
    InsertionsProgram,
    RepeatProgram,
    UnnestProgram,
    ValuesProgram,
    needed_steps,
)
from poundlock.sql.lowering.schemas import schema_of
from poundlock.sql.lowering.watermarks import DelayedWatermarks, delay_of, watermark_of
from poundlock.sql.lowering.window_rows import ROWS, FirstRows, RankedRowsProgram, WindowTableProgram
from poundlock.sql.lowering.windows import StreamAggregate, assigner_of, keys_text, stream_aggregate
from poundlock.sql.relations.changes import is_updating
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import (
    LogicalAggregate,
    LogicalAssignWatermark,
    LogicalDeduplicate,
    LogicalExpand,
    LogicalFilter,
    LogicalIntervalJoin,
    LogicalJoin,
    LogicalMatch,
    LogicalOver,
    LogicalProject,
    LogicalRelation,
    LogicalRepeat,
    LogicalScan,
    LogicalSort,
    LogicalTemporalJoin,
    LogicalTopN,
    LogicalUnionAll,
    LogicalUnnest,
    LogicalValues,
    LogicalWindowAggregate,
    LogicalWindowJoin,
    LogicalWindowTable,
    LogicalWindowTopN,
    SqlAggregateCall,
)
from poundlock.sql.types import SqlType
from poundlock.sql.user.aggregates import own_aggregate
from poundlock.stream.changelog_nodes import AggregateCall as GroupAggregateCall
from poundlock.stream.changelog_nodes import AggregateName, ChangelogTopNNode, GroupAggregateNode, RegularJoinNode
from poundlock.stream.functions.process import ArrowAggregateWindow
from poundlock.stream.matching import MatchNode
from poundlock.stream.nodes import (
    CalcNode,
    DeduplicateNode,
    SortColumn,
    TopNNode,
    UnionNode,
    WatermarkNode,
    WindowNode,
)
from poundlock.stream.over_nodes import OverNode
from poundlock.stream.stream import DataStream
from poundlock.stream.timed_join_nodes import SqlIntervalJoinNode, SqlWindowJoinNode
from poundlock.stream.watermarks import WatermarkStrategy
from poundlock.stream.windows.builtin_assigners import TumblingEventTimeWindows

if TYPE_CHECKING:
    from poundlock.job import Job

TIME = "sql_rowtime"
"""The column that event time is given to a stream in."""
_INSTANT = SqlType("TIMESTAMP_LTZ", (6,))


@dataclass
class Lowering:
    """Makes the streams of one job.

    Args:
        scan: makes the stream of a table.
        updating_table: tells whether a table's rows change.
        ttl_ms: how long state of a key is kept after its last change; None for ever.
        idle_ms: a partition without rows for longer is not waited for; None where each is waited for.
    """

    job: Job
    context: EvaluationContext
    scan: Callable[[LogicalScan], DataStream]
    updating_table: Callable[[LogicalScan], bool]
    ttl_ms: int | None = None
    idle_ms: int | None = None
    _made: dict[int, tuple[LogicalRelation, DataStream]] = field(default_factory=dict)

    def stream(self, relation: LogicalRelation) -> DataStream:
        """Return the stream of a relation, whose columns are called as the relation's fields are in batches.

        Raises:
            DefinitionError: there is no step that does its work.
        """
        known = self._made.get(id(relation))
        if known is None:
            known = self._made[id(relation)] = relation, self._lowered(relation)
        return known[1]

    def is_updating(self, relation: LogicalRelation) -> bool:
        """Return whether the rows of a stream have kinds of change."""
        return is_updating(relation, self.updating_table)

    def _lowered(self, relation: LogicalRelation) -> DataStream:
        if isinstance(relation, LogicalProject | LogicalFilter):
            return self._calc(relation)
        lower = self._kinds().get(type(relation))
        if lower is None:
            raise DefinitionError(
                f"{type(relation).__name__} is not there yet in a job of SQL", next="write the query without it"
            )
        return lower(relation)

    def _kinds(self) -> Mapping[type[LogicalRelation], Callable[[Any], DataStream]]:
        return {
            LogicalScan: self.scan,
            LogicalValues: self._values,
            LogicalAssignWatermark: self._watermark,
            LogicalUnionAll: self._union,
            LogicalUnnest: self._unnest,
            LogicalExpand: self._expand,
            LogicalRepeat: self._repeat,
            LogicalWindowTable: self._window_table,
            LogicalWindowAggregate: self._window_aggregate,
            LogicalWindowTopN: self._window_top_n,
            LogicalAggregate: self._aggregate,
            LogicalJoin: self._join,
            LogicalIntervalJoin: self._interval_join,
            LogicalWindowJoin: self._window_join,
            LogicalTopN: self._top_n,
            LogicalDeduplicate: self._deduplicate,
            LogicalMatch: self._match,
            LogicalOver: self._over,
            LogicalSort: self._sort,
            LogicalTemporalJoin: self._temporal_join,
        }

    # --- without state ----------------------------------------------------------------------------------------------------

    def calc(
        self,
        stream: DataStream,
        program: Any,
        fields: Sequence[Field],
        *,
        kinds: bool,
        name: str = "calc",
        holds_back_ms: int = 0,
    ) -> DataStream:
        """Return a stream behind a program.

        Args:
            kinds: whether rows have a kind of change.
            holds_back_ms: by how much the watermark stays behind.
        """
        schema = schema_of(fields)
        if kinds:
            schema = schema.append(pa.field(ROW_KIND, pa.string()))
        node = CalcNode(self.job.operator_id(name, None), [stream.node], program, ddl.render(schema), holds_back_ms)
        return stream.then(node)

    def _calc(self, relation: LogicalRelation) -> DataStream:
        steps: list[CalcStep] = []
        inner = relation
        while isinstance(inner, LogicalProject | LogicalFilter) and (inner is relation or id(inner) not in self._made):
            if isinstance(inner, LogicalFilter):
                steps.append(CalcStep(condition=inner.condition))
            else:
                steps.append(CalcStep(tuple(f.column for f in inner.fields), inner.expressions))
            inner = inner.input
        kept = needed_steps([*reversed(steps)])
        stream = self.stream(inner)
        program = CalcProgram(kept, self.context, watermark_of=watermark_of(kept, stream.node))
        return self.calc(stream, program, relation.fields, kinds=self.is_updating(relation))

    def _values(self, relation: LogicalValues) -> DataStream:
        source = DatagenSource("row bigint", fields={"row": "sequence"}, count=len(relation.rows))
        stream = self.job.from_source(source, name=None)
        program = ValuesProgram(tuple(f.column for f in relation.fields), relation.rows, self.context)
        if not relation.fields:
            return stream
        return self.calc(stream, program, relation.fields, kinds=False, name="values")

    def _watermark(self, relation: LogicalAssignWatermark) -> DataStream:
        delay = delay_of(relation.time, relation.watermark)
        inner = relation.input
        fields = (*inner.fields, Field(TIME, TIME, _INSTANT))
        time = relation.field(relation.time)
        instant = SqlCall("$ROWTIME", (time.ref,), _INSTANT)
        if delay is None:  # another expression: its greatest value is the watermark
            instant, delay = SqlCall("$WATERMARK", (time.ref, relation.watermark), _INSTANT), 0
        expressions: tuple[Expression, ...] = (*(f.ref for f in inner.fields), instant)
        steps = (CalcStep(tuple(f.column for f in fields), expressions),)
        updating = self.is_updating(inner)
        stream = self.calc(self.stream(inner), CalcProgram(steps, self.context), fields, kinds=updating, name="rowtime")
        strategy = WatermarkStrategy.for_generator(partial(DelayedWatermarks, delay), timestamp=TIME, column=TIME)
        if self.idle_ms is not None:
            strategy = strategy.with_idleness(timedelta(milliseconds=self.idle_ms))
        node = WatermarkNode(self.job.operator_id("watermark", None), [stream.node], strategy)
        return stream.then(node)

    def _union(self, relation: LogicalUnionAll) -> DataStream:
        kinds = [self.is_updating(part) for part in relation.parts]
        streams = [
            self._with_kind(self.stream(part), part) if any(kinds) and not updating else self.stream(part)
            for part, updating in zip(relation.parts, kinds, strict=True)
        ]
        return streams[0].then(UnionNode(self.job.operator_id("union", None), [each.node for each in streams]))

    def _with_kind(self, stream: DataStream, relation: LogicalRelation) -> DataStream:
        """Return a stream of insertions as one of changes."""
        kind = Literal("+I", SqlType("VARCHAR", (2,)))
        names = (*(f.column for f in relation.fields), ROW_KIND)
        step = CalcStep(names, (*(f.ref for f in relation.fields), kind))
        return self.calc(stream, CalcProgram((step,), self.context), relation.fields, kinds=True)

    def _unnest(self, relation: LogicalUnnest) -> DataStream:
        inner = relation.input
        kept = tuple(f.column for f in relation.fields if any(f.column == g.column for g in inner.fields))
        own = tuple(f for f in relation.fields if f.column not in kept)
        program = UnnestProgram(
            relation.collection,
            kept,
            tuple(f.type.arrow for f in own),
            tuple(f.column for f in own),
            relation.is_outer,
            relation.ordinality,
        )
        return self.calc(self.stream(inner), program, relation.fields, kinds=self.is_updating(inner), name="unnest")

    def _expand(self, relation: LogicalExpand) -> DataStream:
        inner = relation.input
        program = ExpandProgram(tuple(f.column for f in inner.fields), relation.keys, relation.sets, relation.number)
        return self.calc(self.stream(inner), program, relation.fields, kinds=self.is_updating(inner), name="expand")

    def _repeat(self, relation: LogicalRepeat) -> DataStream:
        program = RepeatProgram(tuple(f.column for f in relation.fields), relation.times)
        return self.calc(
            self.stream(relation.input), program, relation.fields, kinds=self.is_updating(relation), name="repeat"
        )

    # --- changelogs -------------------------------------------------------------------------------------------------------

    def _aggregate(self, relation: LogicalAggregate) -> DataStream:
        inner = relation.input
        stream = self.stream(inner)
        calls = [group_aggregate(call, inner) for call in relation.calls]
        if self.is_updating(inner) and self.job.runtime_mode != "batch":
            for call in calls:
                check_retracts(call)
        node = GroupAggregateNode(
            self.job.operator_id("group-aggregate", None),
            [stream.node],
            [keys_text(relation.keys)],
            [None],
            None,
            {},
            aggregates=calls,
            ttl_ms=self.ttl_ms,
        )
        return stream.then(node)

    def _join(self, relation: LogicalJoin) -> DataStream:
        left, right = self.stream(relation.left), self.stream(relation.right)
        node = RegularJoinNode(
            self.job.operator_id("join", None),
            [left.node, right.node],
            _keys_of_sides(relation),
            [None, None],
            None,
            {},
            kind=relation.kind,
            condition=self._condition(relation),
            ttl_ms=(self.ttl_ms, self.ttl_ms),
        )
        return self._columns_of_join(left.then(node), relation)

    def _interval_join(self, relation: LogicalIntervalJoin) -> DataStream:
        for each in relation.inputs:
            self._no_updates(each, "an interval join")
        left, right = self.stream(relation.left), self.stream(relation.right)
        node = SqlIntervalJoinNode(
            self.job.operator_id("interval-join", None),
            [left.node, right.node],
            _keys_of_sides(relation),
            list(relation.times),
            None,
            {},
            kind=relation.kind,
            lower_ms=relation.lower,
            upper_ms=relation.upper,
            condition=self._condition(relation),
        )
        # A row that waited for its match is as old as it may wait; one without a match comes out a ms behind its last possible one.
        behind = max(0, -relation.lower, relation.upper) + 1
        return self._columns_of_join(left.then(node), relation, behind)

    def _window_join(self, relation: LogicalWindowJoin) -> DataStream:
        for each in relation.inputs:
            self._no_updates(each, "a join of windows")
        if relation.window is not None and relation.window.by_clock:
            raise DefinitionError("a join of windows by the clock is not there yet", next="give them an event time")
        left, right = (self._with_window_time(each) for each in relation.inputs)
        node = SqlWindowJoinNode(
            self.job.operator_id("window-join", None),
            [left.node, right.node],
            _keys_of_sides(relation),
            [TIME, TIME],
            None,
            {},
            kind=relation.kind,
            condition=self._condition(relation),
        )
        return self._columns_of_join(left.then(node), relation)

    def _condition(self, relation: LogicalJoin) -> PairCondition | None:
        return None if relation.condition is None else PairCondition(relation.condition, self.context)

    def _columns_of_join(self, joined: DataStream, relation: LogicalJoin, holds_back_ms: int = 0) -> DataStream:
        """Return a join with the columns of its relation alone: keys may have been computed for it."""
        names = tuple(f.column for f in relation.fields)
        step = CalcStep(names, tuple(f.ref for f in relation.fields))
        program = CalcProgram((step,), self.context)
        kinds = self.is_updating(relation)
        return self.calc(joined, program, relation.fields, kinds=kinds, holds_back_ms=holds_back_ms)

    # --- windows ----------------------------------------------------------------------------------------------------------

    def _window_aggregate(self, relation: LogicalWindowAggregate) -> DataStream:
        inner = relation.input
        self._no_updates(inner, "a window aggregate")
        stream, calls = self._filtered_arguments(inner, relation.calls)
        if any(call.own is not None for call in relation.calls):
            return self._own_window_aggregate(relation, stream, calls)
        types = {f.column: f.type for f in inner.fields}
        made = [
            stream_aggregate(call, types.get(call.arguments[0]) if call.arguments else None, filtered)
            for call, filtered in calls
        ] or [StreamAggregate(("count(*) AS `$rows`",), Literal(None, SqlType("BIGINT")))]
        node = WindowNode(
            self.job.operator_id("window", None),
            [stream.node],
            keys_text(relation.keys),
            assigner_of(relation.window, self.context.zone),
            None if relation.window.by_clock else relation.window.time,
            [text for each in made for text in each.texts],
        )
        results = {call.column: each.result for call, each in zip(relation.calls, made, strict=False)}
        return self._window_columns(relation, stream.then(node), results)

    def _own_window_aggregate(
        self,
        relation: LogicalWindowAggregate,
        stream: DataStream,
        calls: Sequence[tuple[SqlAggregateCall, str | None]],
    ) -> DataStream:
        """Return a window aggregate, one of whose calls at least is of a function of the user's own."""
        function, schema, results = own_window(relation.input, calls)
        node = WindowNode(
            self.job.operator_id("window", None),
            [stream.node],
            keys_text(relation.keys),
            assigner_of(relation.window, self.context.zone),
            None if relation.window.by_clock else relation.window.time,
            [],
            function,
            schema,
        )
        return self._window_columns(relation, stream.then(node), results)

    def _window_columns(
        self, relation: LogicalWindowAggregate, windowed: DataStream, results: dict[str, Expression]
    ) -> DataStream:
        """Return windows that fired with the columns of their relation."""
        expressions = tuple(self._window_column(relation, f, results) for f in relation.fields)
        step = CalcStep(tuple(f.column for f in relation.fields), expressions)
        return self.calc(windowed, CalcProgram((step,), self.context), relation.fields, kinds=False)

    def _window_table(self, relation: LogicalWindowTable) -> DataStream:
        inner = relation.input
        if relation.window.kind == "session":
            raise DefinitionError(
                "the rows of SESSION windows without an aggregate are not there yet",
                next="GROUP BY window_start, window_end and the keys of PARTITION BY",
            )
        start, end, time = (f.column for f in relation.fields[-3:])
        program = WindowTableProgram(
            relation.window,
            tuple(f.column for f in inner.fields),
            (start, end, time),
            relation.fields[-1].type,
            self.context,
        )
        return self.calc(self.stream(inner), program, relation.fields, kinds=self.is_updating(inner), name="windows")

    def _window_top_n(self, relation: LogicalWindowTopN) -> DataStream:
        inner = relation.input
        self._no_updates(inner, "Top-N of windows")
        stream = self._with_window_time(inner)
        rows = FirstRows(schema_of(inner.fields), relation.order, relation.last)
        rows_ddl = ddl.render(schema_of(inner.fields))
        node = WindowNode(
            self.job.operator_id("window-top-n", None),
            [stream.node],
            # The bounds of a window of 1 ms stand beside the keys, among which are those of the window that rows are of.
            [f"{key} AS `$key_{number}`" for number, key in enumerate(keys_text(relation.keys))],
            TumblingEventTimeWindows("1 ms"),
            TIME,
            [],
            ArrowAggregateWindow(rows),
            f"`{ROWS}` array<struct<{rows_ddl}>>",
        )
        program = RankedRowsProgram(tuple(f.column for f in inner.fields), relation.first, relation.rank)
        return self.calc(stream.then(node), program, relation.fields, kinds=False)

    def _with_window_time(self, relation: LogicalRelation) -> DataStream:
        """Return rows of windows with the last ms of their window as event time."""
        bounds = bounds_of(relation)
        assert bounds is not None
        end = relation.field(str(bounds.end))
        moment = SqlCall("$WINDOW_TIME", (end.ref,), _INSTANT, (str(int(bounds.window.is_local)),))
        timed = CalcStep((*(f.column for f in relation.fields), TIME), (*(f.ref for f in relation.fields), moment))
        fields = (*relation.fields, Field(TIME, TIME, _INSTANT))
        return self.calc(self.stream(relation), CalcProgram((timed,), self.context), fields, kinds=False)

    def _window_column(
        self, relation: LogicalWindowAggregate, field: Field, results: dict[str, Expression]
    ) -> Expression:
        if field.column in results:
            return results[field.column]
        if not relation.is_attached and field.column in relation.bounds:
            place = relation.bounds.index(field.column)
            bound = ColumnRef(("window_start", "window_end", "window_end")[place], _INSTANT)
            return SqlCall(
                "$WINDOW_BOUND", (bound,), field.type, (str(int(place == 2)), str(int(relation.window.is_local)))
            )
        return field.ref

    def _filtered_arguments(
        self, inner: LogicalRelation, calls: Sequence[SqlAggregateCall]
    ) -> tuple[DataStream, list[tuple[SqlAggregateCall, str | None]]]:
        """Return a stream in which the argument of an aggregate with a filter is null where the filter is not true."""
        stream = self.stream(inner)
        if all(call.filter is None for call in calls):
            return stream, [(call, None) for call in calls]
        fields = list(inner.fields)
        expressions: list[Expression] = [f.ref for f in inner.fields]
        made: list[tuple[SqlAggregateCall, str | None]] = []
        for number, call in enumerate(calls):
            if call.filter is None:
                made.append((call, None))
                continue
            column = f"$filtered_{number}"
            value: Expression = Literal(1, SqlType("INT"))
            if call.arguments:
                value = inner.field(call.arguments[0]).ref
            chosen = SqlCall(
                "CASE",
                (inner.field(call.filter).ref, value, Literal(None, value.type.with_null())),
                value.type.with_null(),
            )
            fields.append(Field(column, column, chosen.type))
            expressions.append(chosen)
            made.append((call, column))
        step = CalcStep(tuple(f.column for f in fields), tuple(expressions))
        return self.calc(stream, CalcProgram((step,), self.context), fields, kinds=False), made

    def _no_updates(self, relation: LogicalRelation, what: str) -> None:
        if self.is_updating(relation):
            raise DefinitionError(
                f"{what} of rows that change",
                next="aggregate or join them without a window, or read an append-only table",
            )

    # --- Top-N and deduplication ----------------------------------------------------------------------------------------

    def _top_n(self, relation: LogicalTopN) -> DataStream:
        inner = relation.input
        order = [SortColumn(key.column, key.is_descending, key.nulls_first) for key in relation.order]
        if self.is_updating(inner):
            return self._top_n_of_changes(inner, relation.keys, order, (relation.first, relation.last), relation.rank)
        stream = self.stream(inner)
        node = TopNNode(
            self.job.operator_id("top-n", None),
            [stream.node],
            [keys_text(relation.keys)],
            [None],
            None,
            {},
            n=relation.last,
            order_by=order,
            rank=relation.rank,
            ttl_ms=self.ttl_ms,
            update_before=relation.rank is not None,
            first=relation.first,
        )
        ranked = stream.then(node)
        if self.is_updating(relation):
            return ranked
        program = InsertionsProgram(tuple(f.column for f in relation.fields))
        return self.calc(ranked, program, relation.fields, kinds=False, name="insertions")

    def _top_n_of_changes(
        self,
        inner: LogicalRelation,
        keys: Sequence[str],
        order: Sequence[SortColumn],
        places: tuple[int, int],
        rank: str | None = None,
        *,
        newest_first: bool = False,
    ) -> DataStream:
        stream = self.stream(inner)
        node = ChangelogTopNNode(
            self.job.operator_id("top-n", None),
            [stream.node],
            [keys_text(keys)],
            [None],
            None,
            {},
            last=places[1],
            order_by=order,
            first=places[0],
            rank=rank,
            newest_first=newest_first,
            ttl_ms=self.ttl_ms,
        )
        return stream.then(node)

    def _deduplicate(self, relation: LogicalDeduplicate) -> DataStream:
        inner = relation.input
        if self.is_updating(inner):
            last = relation.keep == "last"
            order = [] if relation.by_clock else [SortColumn(relation.time, last)]
            return self._top_n_of_changes(inner, relation.keys, order, (1, 1), newest_first=last)
        stream = self.stream(inner)
        node = DeduplicateNode(
            self.job.operator_id("deduplicate", None),
            [stream.node],
            [keys_text(relation.keys)],
            [None if relation.by_clock else relation.time],
            None,
            {},
            keep=relation.keep,
            order="arrival" if relation.by_clock else "event_time",
            ttl_ms=self.ttl_ms,
            update_before=relation.keep == "last",
        )
        return stream.then(node)

    # --- patterns of rows -------------------------------------------------------------------------------------------------

    def _match(self, relation: LogicalMatch) -> DataStream:
        inner = relation.input
        if self.is_updating(inner):
            raise relation.of_updates
        stream, columns = self.stream(inner), MatchColumns(relation, self.context)
        program = columns.program()
        if columns.computed:
            fields = (*inner.fields, *(own for own, _ in columns.computed))
            expressions = (*(f.ref for f in inner.fields), *(computed for _, computed in columns.computed))
            step = CalcStep(tuple(f.column for f in fields), expressions)
            stream = self.calc(stream, CalcProgram((step,), self.context), fields, kinds=False)
        node = MatchNode(
            self.job.operator_id("match", None),
            [stream.node],
            [keys_text(relation.keys)],
            [None if relation.by_clock else relation.order[0].column],
            output_schema(program),
            {},
            pattern=relation.pattern,
            after=relation.after,
            program=program,
            order=[SortColumn(key.column, key.is_descending, key.nulls_first) for key in relation.order[1:]],
            within_ms=relation.within_ms,
        )
        step = CalcStep(tuple(f.column for f in relation.fields), relation.measures)
        return self.calc(stream.then(node), CalcProgram((step,), self.context), relation.fields, kinds=False)

    # --- rows in an order -----------------------------------------------------------------------------------------------

    def _over(self, relation: LogicalOver) -> DataStream:
        stream = self.stream(relation.input)
        node = over_node(relation, self.job.operator_id("over", None), stream.node, self.ttl_ms)
        return self._ordered(stream, relation.input, node, "OVER")

    def _sort(self, relation: LogicalSort) -> DataStream:
        stream = self.stream(relation.input)
        node = sort_node(relation, self.job.operator_id("sort", None), stream.node)
        return self._ordered(stream, relation.input, node, "ORDER BY")

    def _ordered(self, stream: DataStream, relation: LogicalRelation, node: OverNode, what: str) -> DataStream:
        if self.job.runtime_mode != "batch":
            node.check_stream()
            if not node.gives_changes:
                self._no_updates(relation, what)
        return stream.then(node)

    def _temporal_join(self, relation: LogicalTemporalJoin) -> DataStream:
        self._no_updates(relation.left, "a join with versions")
        left, right = self.stream(relation.left), self.stream(relation.right)
        condition = None if relation.condition is None else PairCondition(relation.condition, self.context)
        operator = self.job.operator_id("temporal-join", None)
        joined = left.then(temporal_join_node(relation, operator, [left.node, right.node], condition))
        step = CalcStep(tuple(f.column for f in relation.fields), tuple(f.ref for f in relation.fields))
        return self.calc(joined, CalcProgram((step,), self.context), relation.fields, kinds=False)


def _keys_of_sides(relation: LogicalJoin) -> list[list[str]]:
    return [keys_text([pair[side] for pair in relation.keys]) for side in (0, 1)]


def check_retracts(call: GroupAggregateCall) -> None:
    """Raise DefinitionError for an aggregate of the user's own that cannot take back rows."""
    if call.own is not None and not call.own.retracts:
        raise DefinitionError(
            f"{call.own.name} of rows that change, which it cannot take back",
            next="write def retract(self, accumulator, …) of an aggregate by row",
        )


def group_aggregate(call: SqlAggregateCall, relation: LogicalRelation) -> GroupAggregateCall:
    """Return an aggregate of groups as streams have it.

    Args:
        relation: the rows.

    Raises:
        DefinitionError: they have none of its kind.
    """
    if call.kind not in get_args(AggregateName):
        raise DefinitionError(f"{call.kind.upper()} is not there yet", next="take another aggregate")
    return GroupAggregateCall(
        function=call.kind,  # type: ignore[arg-type]
        name=call.column,
        type=call.type.arrow,
        column=call.arguments[0] if call.arguments else None,
        distinct=call.is_distinct,
        filter=call.filter,
        separator=call.options[0] if call.options else ",",
        own=None if call.own is None else own_aggregate(call.own, relation.field(call.arguments[0]).type),
    )


@dataclass(frozen=True)
class PairCondition:
    """What has to be true of a pair of rows."""

    condition: Expression
    context: EvaluationContext

    def __call__(self, pairs: pa.RecordBatch) -> pa.Array:
        """Return it for each pair."""
        return evaluate(self.condition, pairs, self.context)
