"""Everything a window operator is made of, as the user said it.

A spec is a plain value: it travels to tasks, and one spec can make any number of operators.
"""

from __future__ import annotations

from dataclasses import dataclass

from poundlock.operators.keyed.accumulators import AggregateFold, Fold, ListFold, ReduceFold
from poundlock.operators.windows.aggregates import SqlAggregates
from poundlock.stream.nodes import WindowJoinNode, WindowNode
from poundlock.stream.windows.assigners import WindowAssigner
from poundlock.stream.windows.evictors import Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.stream.windows.window import MAX_TIMESTAMP
from poundlock.stream.windows.window_functions import (
    AggregateWindow,
    ProcessWindowFunction,
    ReduceWindow,
    WindowFunction,
)
from poundlock.values import span_ms


@dataclass(frozen=True, kw_only=True)
class WindowSpec:
    """What the user said of a window.

    Args:
        trigger: None for the assigner's own.
        evictor: None for the assigner's own, mostly none.
        allowed_lateness_ms: how long after its end an event-time window still takes elements.
        late_tag: side output of late elements; None to drop and count them.
        tags: of the function's side outputs; None = any.
        with_sides: whether an element is [0 for left or 1 for right, record], as in joins; trigger and evictor see that, too.
    """

    assigner: WindowAssigner
    function: WindowFunction | SqlAggregates
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    allowed_lateness_ms: int = 0
    late_tag: str | None = None
    tags: tuple[str, ...] | None = None
    with_sides: bool = False

    @classmethod
    def of(
        cls, node: WindowNode | WindowJoinNode, function: WindowFunction | SqlAggregates | None = None
    ) -> WindowSpec:
        """Return what a node says; `function` is what its SQL texts mean, or what joins, where the node has no function itself."""
        own = node if isinstance(node, WindowNode) else None
        if own is not None and own.function is not None:
            function = own.function
        if function is None:
            raise TypeError(f"{node.id} has SQL aggregates: say what they mean")
        return cls(
            assigner=node.assigner,
            function=function,
            trigger=node.trigger,
            evictor=node.evictor,
            allowed_lateness_ms=span_ms(node.allowed_lateness),
            late_tag=None if own is None else own.late_tag,
            tags=None if own is None else tuple(own.side_outputs),
            with_sides=own is None,
        )

    def fold(self) -> Fold:
        """Return how elements become contents."""
        if isinstance(self.function, SqlAggregates):
            return self.function
        if isinstance(self.function, ReduceWindow):
            return ReduceFold(self.function.reduce)
        if isinstance(self.function, AggregateWindow):
            return AggregateFold(self.function.aggregate)
        return ListFold()

    @property
    def process(self) -> ProcessWindowFunction | None:
        """The user's function that is called at a firing."""
        return None if isinstance(self.function, SqlAggregates) else self.function.process

    @property
    def keeps_elements(self) -> bool:
        """Whether the function is given the elements themselves."""
        return isinstance(self.fold(), ListFold)

    def cleanup_time(self, last: int) -> int:
        """Return when a window whose last timestamp is `last` goes away."""
        return min(last + self.allowed_lateness_ms, MAX_TIMESTAMP) if self.assigner.is_event_time() else last
