"""Relations over rows in an order as steps of a stream: OVER, ORDER BY, and joins with the version of a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, get_args

from poundlock.errors import DefinitionError
from poundlock.sql.expressions.tree import Expression, Literal, SqlCall
from poundlock.sql.lowering.windows import keys_text
from poundlock.sql.relations.tree import (
    Frame,
    LogicalOver,
    LogicalProject,
    LogicalRelation,
    LogicalSort,
    LogicalTemporalJoin,
    OrderKey,
    SqlAggregateCall,
)
from poundlock.sql.user.aggregates import own_aggregate
from poundlock.stream.nodes import SortColumn
from poundlock.stream.over_nodes import OverCall, OverName, OverNode, RowFrame, RowOrder, TemporalJoinNode

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.stream.nodes import Node

_SHIFTS = ("lag", "lead")


def over_node(relation: LogicalOver, operator: str, stream: Node, ttl_ms: int | None) -> OverNode:
    """Return the step of OVER aggregates.

    Args:
        operator: the name of the step.
        stream: the rows.

    Raises:
        DefinitionError: there is no such aggregate.
    """
    by, order = _order_of(relation.input, relation.order)
    calls = [over_call(call, relation.frame, relation.input) for call in relation.calls]
    keys = [keys_text(relation.keys)]
    return OverNode(operator, [stream], keys, [None], None, {}, order=order, by=by, calls=calls, ttl_ms=ttl_ms)


def sort_node(relation: LogicalSort, operator: str, stream: Node) -> OverNode:
    """Return the step of ORDER BY; arguments as in `over_node`."""
    by, order = _order_of(relation.input, relation.order)
    if by == "arrival":
        order = order[1:]
    limit = (relation.limit, relation.offset)
    return OverNode(operator, [stream], [[]], [None], None, {}, order=order, by=by, limit=limit[0], offset=limit[1])


def temporal_join_node(
    relation: LogicalTemporalJoin,
    operator: str,
    streams: Sequence[Node],
    condition: Callable[[pa.RecordBatch], pa.Array] | None,
) -> TemporalJoinNode:
    """Return the step of a join with the version of a time.

    Args:
        streams: left and right.
        condition: what else must hold of a pair.

    Raises:
        DefinitionError: there is no key.
    """
    if not relation.keys:
        raise DefinitionError(
            "FOR SYSTEM_TIME AS OF without an equal key",
            next="write ON left.column = right.column of the versions' PRIMARY KEY",
        )
    assert relation.kind in ("inner", "left")
    keys = [keys_text([pair[side] for pair in relation.keys]) for side in (0, 1)]
    return TemporalJoinNode(
        operator,
        list(streams),
        keys,
        [None, None],
        None,
        {},
        times=relation.times,
        kind=relation.kind,
        condition=condition,
    )


def _order_of(relation: LogicalRelation, order: Sequence[OrderKey]) -> tuple[RowOrder, list[SortColumn]]:
    """Return what rows are ordered by."""
    columns = [SortColumn(key.column, key.is_descending, key.nulls_first) for key in order]
    time = relation.field(order[0].column).time if order else None
    if time is None or order[0].is_descending:
        return "any", columns
    return ("event_time", columns) if time == "rowtime" else ("arrival", columns)


def over_call(call: SqlAggregateCall, frame: Frame, relation: LogicalRelation) -> OverCall:
    """Return an OVER aggregate as streams have it.

    Args:
        relation: the rows, which have numbers of LAG, LEAD and NTILE as columns.

    Raises:
        DefinitionError: they have none of its kind.
    """
    if call.kind not in get_args(OverName):
        raise DefinitionError(f"{call.kind.upper()} with OVER is not there yet", next="take another aggregate")
    arguments = call.arguments
    offset, default, column = 1, None, arguments[0] if arguments else None
    if call.kind == "ntile":
        offset, column = _number(call, arguments[0], relation), None
    elif call.kind in _SHIFTS and len(arguments) > 1:
        offset = _number(call, arguments[1], relation)
        default = arguments[2] if len(arguments) > 2 else None
    return OverCall(
        function=call.kind,  # type: ignore[arg-type]
        name=call.column,
        type=call.type.arrow,
        column=column,
        frame=RowFrame(frame.unit, frame.preceding, frame.following),
        distinct=call.is_distinct,
        filter=call.filter,
        separator=_separator(call, relation),
        offset=offset,
        default=default,
        own=None if call.own is None else own_aggregate(call.own, relation.field(call.arguments[0]).type),
    )


def _separator(call: SqlAggregateCall, relation: LogicalRelation) -> str:
    if call.kind != "listagg" or len(call.arguments) < 2:
        return call.options[0] if call.options else ","
    return str(_literal(call, call.arguments[1], relation))


def _number(call: SqlAggregateCall, column: str, relation: LogicalRelation) -> int:
    value = _literal(call, column, relation)
    if not isinstance(value, int) or value < (1 if call.kind == "ntile" else 0):
        raise DefinitionError(
            f"{call.kind.upper()} with {value}", next="write a whole number above it, such as LAG(x, 2)"
        )
    return value


def _literal(call: SqlAggregateCall, column: str, relation: LogicalRelation) -> object:
    """Return the value that is written for an argument.

    Raises:
        DefinitionError: it is another one for each row.
    """
    if isinstance(relation, LogicalProject):
        pairs = zip(relation.fields, relation.expressions, strict=True)
        expression: Expression | None = next((e for f, e in pairs if f.column == column), None)
        while isinstance(expression, SqlCall) and expression.function == "CAST" and len(expression.arguments) == 1:
            expression = expression.arguments[0]
        if isinstance(expression, Literal):
            return expression.value
    raise DefinitionError(
        f"an argument of {call.kind.upper()} that is not written as a value", next="write it as one, such as LAG(x, 2)"
    )
