"""Rows in an order: OVER and ORDER BY."""

from __future__ import annotations

from poundlock.sql.lowering.ordered import over_node, sort_node
from poundlock.sql.lowering.streams import Lowering
from poundlock.sql.relations.tree import LogicalOver, LogicalRelation, LogicalSort
from poundlock.stream.over_nodes import OverNode
from poundlock.stream.stream import DataStream


def over(lowering: Lowering, relation: LogicalOver) -> DataStream:
    """Return the stream of OVER aggregates.

    Raises:
        DefinitionError: rows change, or something of it is not there in streaming mode.
    """
    stream = lowering.stream(relation.input)
    node = over_node(relation, lowering.job.operator_id("over", None), stream.node, lowering.ttl_ms)
    return _ordered(lowering, stream, relation.input, node, "OVER")


def sort(lowering: Lowering, relation: LogicalSort) -> DataStream:
    """Return the stream of rows in an order.

    Raises:
        DefinitionError: the order is not there in streaming mode.
    """
    stream = lowering.stream(relation.input)
    node = sort_node(relation, lowering.job.operator_id("sort", None), stream.node)
    return _ordered(lowering, stream, relation.input, node, "ORDER BY")


def _ordered(
    lowering: Lowering, stream: DataStream, relation: LogicalRelation, node: OverNode, what: str
) -> DataStream:
    if lowering.job.runtime_mode != "batch":
        node.check_stream()
        if not node.gives_changes:
            lowering.no_updates(relation, what)
    return stream.then(node)
