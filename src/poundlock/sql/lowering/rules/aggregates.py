"""Aggregates of groups without a window, whose rows change, and changelogs made whole by their keys."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from poundlock.errors import DefinitionError
from poundlock.sql.expressions.tree import Literal
from poundlock.sql.lowering.programs import CalcProgram, CalcStep
from poundlock.sql.lowering.streams import Lowering
from poundlock.sql.lowering.windows import keys_text
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import (
    LogicalAggregate,
    LogicalChangelogNormalize,
    LogicalProject,
    LogicalRelation,
    LogicalUnionAll,
    LogicalValues,
    SqlAggregateCall,
)
from poundlock.sql.types import SqlType
from poundlock.sql.user.aggregates import own_aggregate
from poundlock.stream.changelog_nodes import AggregateCall as GroupAggregateCall
from poundlock.stream.changelog_nodes import AggregateName, ChangelogNormalizeNode, GroupAggregateNode
from poundlock.stream.stream import DataStream

_COUNTED = "$counted"


def aggregate(lowering: Lowering, relation: LogicalAggregate) -> DataStream:
    """Return the stream of an aggregate, a row of which changes with each row of its group.

    Raises:
        DefinitionError: streams have no such aggregate, or one of the user's own cannot take back rows that change.
    """
    if lowering.job.runtime_mode == "batch" and not relation.keys:
        relation = _never_empty(relation)
    inner = relation.input
    stream = lowering.stream(inner)
    calls = [group_aggregate(call, inner) for call in relation.calls]
    if lowering.is_updating(inner) and lowering.job.runtime_mode != "batch":
        for call in calls:
            check_retracts(call)
    node = GroupAggregateNode(
        lowering.job.operator_id("group-aggregate", None),
        [stream.node],
        [keys_text(relation.keys)],
        [None],
        None,
        {},
        aggregates=calls,
        ttl_ms=lowering.ttl_of(relation.state_ttl),
    )
    return stream.then(node)


def normalize(lowering: Lowering, relation: LogicalChangelogNormalize) -> DataStream:
    """Return the whole changelog of a stream of upserts."""
    step = CalcStep(tuple(f.column for f in relation.fields), tuple(f.ref for f in relation.fields))
    program = CalcProgram((step,), lowering.context)
    stream = lowering.calc(lowering.stream(relation.input), program, relation.fields, kinds=True)
    node = ChangelogNormalizeNode(
        lowering.job.operator_id("changelog-normalize", None),
        [stream.node],
        [keys_text(relation.keys)],
        [None],
        None,
        {},
        ttl_ms=lowering.ttl_ms,
    )
    return stream.then(node)


def _never_empty(relation: LogicalAggregate) -> LogicalAggregate:
    """Return an aggregate of all rows with one row more, which no call counts: in batch mode there is a result where there are no rows."""
    inner = relation.input
    fields = tuple(replace(each.plain(), type=each.type.with_null()) for each in inner.fields)
    boolean, mark = SqlType("BOOLEAN"), _COUNTED
    while any(mark == each.column for each in fields):
        mark += "$"
    counted = Field(mark, mark, boolean)
    rows = LogicalProject((*fields, counted), inner, (*(f.ref for f in inner.fields), Literal(True, boolean)))
    empty = (*(Literal(None, f.type) for f in fields), Literal(False, boolean))
    union = LogicalUnionAll(rows.fields, (rows, LogicalValues(rows.fields, (empty,))))
    calls = tuple(call if call.filter is not None else replace(call, filter=mark) for call in relation.calls)
    return replace(relation, input=union, calls=calls)


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
