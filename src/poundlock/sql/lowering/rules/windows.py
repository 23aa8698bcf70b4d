"""Windows by table-valued functions, and aggregates of windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from poundlock.sql.expressions.tree import Expression, Literal, SqlCall
from poundlock.sql.lowering.own_windows import own_window
from poundlock.sql.lowering.programs import CalcProgram, CalcStep
from poundlock.sql.lowering.rules.session_rows import session_rows
from poundlock.sql.lowering.streams import Lowering
from poundlock.sql.lowering.window_rows import WindowTableProgram
from poundlock.sql.lowering.windows import (
    StreamAggregate,
    assigner_of,
    bound_of,
    keys_text,
    moving_zone,
    stream_aggregate,
)
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import LogicalRelation, LogicalWindowAggregate, LogicalWindowTable, SqlAggregateCall
from poundlock.sql.types import SqlType
from poundlock.stream.nodes import WindowNode
from poundlock.stream.stream import DataStream


def window_aggregate(lowering: Lowering, relation: LogicalWindowAggregate) -> DataStream:
    """Return the stream of an aggregate of windows, a row of which comes when its window is over.

    Raises:
        DefinitionError: rows change, or windows have no such aggregate.
    """
    inner = relation.input
    lowering.no_updates(inner, "a window aggregate")
    stream, calls = _filtered_arguments(lowering, inner, relation.calls)
    if any(call.own is not None for call in relation.calls):
        return _own_window_aggregate(lowering, relation, stream, calls)
    types = {f.column: f.type for f in inner.fields}
    made = [
        stream_aggregate(call, types.get(call.arguments[0]) if call.arguments else None, filtered)
        for call, filtered in calls
    ] or [StreamAggregate(("count(*) AS `$rows`",), Literal(None, SqlType("BIGINT")))]
    node = WindowNode(
        lowering.job.operator_id("window", None),
        [stream.node],
        keys_text(relation.keys),
        assigner_of(relation.window, lowering.context.zone),
        None if relation.window.by_clock else relation.window.time,
        [text for each in made for text in each.texts],
        zone=moving_zone(relation.window, lowering.context.zone),
    )
    results = {call.column: each.result for call, each in zip(relation.calls, made, strict=False)}
    return _window_columns(lowering, relation, stream.then(node), results)


def _own_window_aggregate(
    lowering: Lowering,
    relation: LogicalWindowAggregate,
    stream: DataStream,
    calls: Sequence[tuple[SqlAggregateCall, str | None]],
) -> DataStream:
    """Return a window aggregate, one of whose calls at least is of a function of the user's own."""
    function, schema, results = own_window(relation.input, calls)
    node = WindowNode(
        lowering.job.operator_id("window", None),
        [stream.node],
        keys_text(relation.keys),
        assigner_of(relation.window, lowering.context.zone),
        None if relation.window.by_clock else relation.window.time,
        [],
        function,
        schema,
        zone=moving_zone(relation.window, lowering.context.zone),
    )
    return _window_columns(lowering, relation, stream.then(node), results)


def _window_columns(
    lowering: Lowering, relation: LogicalWindowAggregate, windowed: DataStream, results: dict[str, Expression]
) -> DataStream:
    """Return windows that fired with the columns of their relation."""
    zone = lowering.context.zone
    expressions = tuple(_window_column(relation, f, results, zone) for f in relation.fields)
    step = CalcStep(tuple(f.column for f in relation.fields), expressions)
    return lowering.calc(windowed, CalcProgram((step,), lowering.context), relation.fields, kinds=False)


def window_table(lowering: Lowering, relation: LogicalWindowTable) -> DataStream:
    """Return a stream with each row once for each of its windows."""
    inner = relation.input
    if relation.window.kind == "session":
        return session_rows(lowering, relation)
    start, end, time = (f.column for f in relation.fields[-3:])
    program = WindowTableProgram(
        relation.window,
        tuple(f.column for f in inner.fields),
        (start, end, time),
        relation.fields[-1].type,
        lowering.context,
    )
    return lowering.calc(
        lowering.stream(inner), program, relation.fields, kinds=lowering.is_updating(inner), name="windows"
    )


def _window_column(
    relation: LogicalWindowAggregate, field: Field, results: dict[str, Expression], zone: tzinfo
) -> Expression:
    if field.column in results:
        return results[field.column]
    if not relation.is_attached and field.column in relation.bounds:
        return bound_of(relation.window, relation.bounds.index(field.column), field.type, zone)
    return field.ref


def _filtered_arguments(
    lowering: Lowering, inner: LogicalRelation, calls: Sequence[SqlAggregateCall]
) -> tuple[DataStream, list[tuple[SqlAggregateCall, str | None]]]:
    """Return a stream in which the argument of an aggregate with a filter is null where the filter is not true."""
    stream = lowering.stream(inner)
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
    return lowering.calc(stream, CalcProgram((step,), lowering.context), fields, kinds=False), made
