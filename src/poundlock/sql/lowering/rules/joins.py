"""Joins: of all rows, of rows in an interval, of windows, and with the version of a time."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import Expression
from poundlock.sql.lowering.ordered import temporal_join_node
from poundlock.sql.lowering.programs import CalcProgram, CalcStep
from poundlock.sql.lowering.rules.event_time import TIME, with_window_time
from poundlock.sql.lowering.streams import Lowering
from poundlock.sql.lowering.watermarks import refuse_watermark
from poundlock.sql.lowering.windows import keys_text
from poundlock.sql.relations.tree import LogicalIntervalJoin, LogicalJoin, LogicalTemporalJoin, LogicalWindowJoin
from poundlock.stream.changelog_nodes import RegularJoinNode
from poundlock.stream.stream import DataStream
from poundlock.stream.timed_join_nodes import SqlIntervalJoinNode, SqlWindowJoinNode


def join(lowering: Lowering, relation: LogicalJoin) -> DataStream:
    """Return the stream of a join that keeps the rows of both sides."""
    left, right = lowering.stream(relation.left), lowering.stream(relation.right)
    left_ttl, right_ttl = relation.state_ttl or (None, None)
    node = RegularJoinNode(
        lowering.job.operator_id("join", None),
        [left.node, right.node],
        _keys_of_sides(relation),
        [None, None],
        None,
        {},
        kind=relation.kind,
        condition=_condition(lowering, relation),
        ttl_ms=(lowering.ttl_of(left_ttl), lowering.ttl_of(right_ttl)),
    )
    return _columns_of_join(lowering, left.then(node), relation)


def interval_join(lowering: Lowering, relation: LogicalIntervalJoin) -> DataStream:
    """Return the stream of a join whose rows are within an interval of each other.

    Raises:
        DefinitionError: rows of a side change.
    """
    for each in relation.inputs:
        lowering.no_updates(each, "an interval join")
    left, right = lowering.stream(relation.left), lowering.stream(relation.right)
    node = SqlIntervalJoinNode(
        lowering.job.operator_id("interval-join", None),
        [left.node, right.node],
        _keys_of_sides(relation),
        list(relation.times),
        None,
        {},
        kind=relation.kind,
        lower_ms=relation.lower,
        upper_ms=relation.upper,
        condition=_condition(lowering, relation),
    )
    # A row that waited for its match is as old as it may wait; one without a match comes out a ms behind its last possible one.
    behind = max(0, -relation.lower, relation.upper) + 1
    return _columns_of_join(lowering, left.then(node), relation, behind)


def window_join(lowering: Lowering, relation: LogicalWindowJoin) -> DataStream:
    """Return the stream of a join whose rows are of the same window.

    Raises:
        DefinitionError: rows of a side change, or the windows are by the clock.
    """
    for each in relation.inputs:
        lowering.no_updates(each, "a join of windows")
    left, right = (with_window_time(lowering, each, "a join") for each in relation.inputs)
    node = SqlWindowJoinNode(
        lowering.job.operator_id("window-join", None),
        [left.node, right.node],
        _keys_of_sides(relation),
        [TIME, TIME],
        None,
        {},
        kind=relation.kind,
        condition=_condition(lowering, relation),
    )
    return _columns_of_join(lowering, left.then(node), relation)


def temporal_join(lowering: Lowering, relation: LogicalTemporalJoin) -> DataStream:
    """Return the stream of a join with the version that was valid at a time.

    Raises:
        DefinitionError: rows of the left side change, or there is no equal key.
    """
    lowering.no_updates(relation.left, "a join with versions")
    left, right = lowering.stream(relation.left), lowering.stream(relation.right)
    condition = _condition(lowering, relation)
    operator = lowering.job.operator_id("temporal-join", None)
    joined = left.then(temporal_join_node(relation, operator, [left.node, right.node], condition))
    step = CalcStep(tuple(f.column for f in relation.fields), tuple(f.ref for f in relation.fields))
    return lowering.calc(joined, CalcProgram((step,), lowering.context), relation.fields, kinds=False)


def _condition(lowering: Lowering, relation: LogicalJoin) -> PairCondition | None:
    if relation.condition is None:
        return None
    refuse_watermark([relation.condition], "the condition of a join")
    return PairCondition(relation.condition, lowering.context)


def _columns_of_join(
    lowering: Lowering, joined: DataStream, relation: LogicalJoin, holds_back_ms: int = 0
) -> DataStream:
    """Return a join with the columns of its relation alone: keys may have been computed for it."""
    names = tuple(f.column for f in relation.fields)
    step = CalcStep(names, tuple(f.ref for f in relation.fields))
    program = CalcProgram((step,), lowering.context)
    kinds = lowering.is_updating(relation)
    return lowering.calc(joined, program, relation.fields, kinds=kinds, holds_back_ms=holds_back_ms)


def _keys_of_sides(relation: LogicalJoin) -> list[list[str]]:
    return [keys_text([pair[side] for pair in relation.keys]) for side in (0, 1)]


@dataclass(frozen=True)
class PairCondition:
    """What has to be true of a pair of rows."""

    condition: Expression
    context: EvaluationContext

    def __call__(self, pairs: pa.RecordBatch) -> pa.Array:
        """Return it for each pair."""
        return evaluate(self.condition, pairs, self.context)
