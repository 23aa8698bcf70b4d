"""The choice of an operator for a node: the one place where what the user said meets what it means.

Every call makes a new operator; the user's function in it is the node's own, so a task makes one operator of one copy of the node.
"""

from __future__ import annotations

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import CHUNK_ROWS
from poundlock.operators.process.interval_join import IntervalJoinOperator, IntervalJoinSpec
from poundlock.operators.process.process import ProcessOperator
from poundlock.operators.process.rolling import RollingOperator, rolling_fold
from poundlock.operators.process.window_join import WindowJoinOperator, WindowJoinSpec
from poundlock.stream.process_nodes import IntervalJoinNode, KeyedNode, ProcessNode, RollingNode, WindowJoinNode
from poundlock.values import span_ms


def process_operator(node: KeyedNode, *, bounded: bool = False, chunk_rows: int = CHUNK_ROWS) -> KeyedOperator:
    """Return the operator of a node.

    Args:
        node: of a process function, a rolling aggregate or a join.
        bounded: whether the job's input ends and only final results are wanted, which matters to rolling aggregates.
        chunk_rows: about how many rows come out at a time.
    """
    tags = tuple(tag for tag, schema in node.side_outputs.items() if schema is not None)
    if isinstance(node, ProcessNode):
        return ProcessOperator(node.function, tags=tags, broadcast=node.broadcast, chunk_rows=chunk_rows)
    if isinstance(node, RollingNode):
        fold = node.function or rolling_fold(node.kind, node.column, first=node.first)
        return RollingOperator(fold, bounded=bounded, chunk_rows=chunk_rows)
    if isinstance(node, IntervalJoinNode):
        spec = IntervalJoinSpec(lower_ms=node.lower_ms, upper_ms=node.upper_ms, late_tags=node.late_tags)
        return IntervalJoinOperator(spec, node.function, tags=tags, chunk_rows=chunk_rows)
    if isinstance(node, WindowJoinNode):
        joined = WindowJoinSpec(
            kind=node.kind,
            assigner=node.assigner,
            function=node.function,
            trigger=node.trigger,
            evictor=node.evictor,
            allowed_lateness_ms=span_ms(node.allowed_lateness),
            tags=tags,
        )
        return WindowJoinOperator(joined, chunk_rows=chunk_rows)
    raise DefinitionError(f"{node.id}: {type(node).__name__} has no operator", next="report this as a bug")
