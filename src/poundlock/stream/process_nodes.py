"""The nodes of process functions, rolling aggregates and joins: what a host needs to run them by key group.

Where a node has two inputs, everything that is said of inputs is said of each, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from poundlock.arguments import function_name
from poundlock.stream.nodes import Node
from poundlock.values import format_duration

if TYPE_CHECKING:
    from poundlock.stream.functions.base import Function
    from poundlock.stream.functions.join import CoGroupFunction, JoinFunction, ProcessJoinFunction
    from poundlock.stream.functions.state import MapStateDescriptor
    from poundlock.stream.windows.assigners import WindowAssigner
    from poundlock.stream.windows.evictors import Evictor
    from poundlock.stream.windows.triggers import Trigger


@dataclass(frozen=True, eq=False)
class KeyedNode(Node):
    """A step with state, timers or several outputs, run by `operators/`.

    Args:
        keys: for each input its Spark SQL expressions, as many for both; none where the input is not keyed or is broadcast.
        columns: for each input the column of its event time; None where no watermark is assigned before.
        schema: DDL of the main output; None for the columns of the (first) input.
        side_outputs: tags to their DDL; None for the columns of the input the rows came from, as late rows.
    """

    keys: Sequence[Sequence[str]]
    columns: Sequence[str | None]
    schema: str | None
    side_outputs: Mapping[str, str | None]

    def describe(self) -> str:
        """Return what was said, for `explain`."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ProcessNode(KeyedNode):
    """A process function over one input or two.

    Args:
        function: an object of one of the six kinds of process functions.
        broadcast: descriptors of the broadcast state that the second input writes; none unless that is broadcast.
    """

    function: Function
    broadcast: Sequence[MapStateDescriptor] = ()

    def describe(self) -> str:
        rules = f", broadcast state {', '.join(d.name for d in self.broadcast)}" if self.broadcast else ""
        return f"process {type(self.function).__name__}{rules}"


@dataclass(frozen=True, eq=False)
class RollingNode(KeyedNode):
    """The records of a key so far as one record; in a bounded job only the last of each key comes out.

    Args:
        kind: what makes two records one.
        column: that is added up or compared; None for reduce.
        function: of reduce.
        first: whether of equal records the first stays, for min_by and max_by.
    """

    kind: Literal["sum", "min", "max", "min_by", "max_by", "reduce"]
    column: str | None = None
    function: Callable[[Any, Any], Any] | None = None
    first: bool = True

    def describe(self) -> str:
        what = function_name(self.function) if self.column is None else self.column
        return f"rolling {self.kind} of {what}"


@dataclass(frozen=True, eq=False)
class IntervalJoinNode(KeyedNode):
    """Pairs whose times are between two bounds: left time + lower <= right time <= left time + upper.

    Args:
        lower_ms: the lower bound; it is part of the interval.
        upper_ms: the upper bound; it is part of the interval.
        function: called with each pair; None where `select` says what comes out.
        select: Spark SQL expressions over the structs `left` and `right`; none where there is a function.
        late_tags: side outputs of left and right rows behind the watermark; None to drop and count them.
    """

    lower_ms: int
    upper_ms: int
    function: ProcessJoinFunction | None = None
    select: Sequence[str] = ()
    late_tags: tuple[str | None, str | None] = (None, None)

    def describe(self) -> str:
        lower, upper = (
            f"{'-' if ms < 0 else ''}{format_duration(timedelta(milliseconds=abs(ms)))}"
            for ms in (self.lower_ms, self.upper_ms)
        )
        what = ", ".join(self.select) or type(self.function).__name__
        return f"interval join from {lower} to {upper}: {what}"


@dataclass(frozen=True, eq=False)
class WindowJoinNode(KeyedNode):
    """Records of two streams that have the same key and window.

    Args:
        kind: "join" calls the function with each pair, "co_group" with all records of both sides.
        assigner: which windows a record is in.
        function: a JoinFunction or CoGroupFunction, or a plain function of left and right.
        trigger: None for the assigner's own.
        evictor: None for the assigner's own.
        allowed_lateness: how long after its end a window takes rows.
    """

    kind: Literal["join", "co_group"]
    assigner: WindowAssigner
    function: JoinFunction | CoGroupFunction | Callable[[Any, Any], Any]
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    allowed_lateness: timedelta = field(default=timedelta(0))

    def describe(self) -> str:
        parts = [f"{self.kind.replace('_', '-')} in {self.assigner.describe()}"]
        parts += [f"fired {self.trigger.describe()}"] if self.trigger is not None else []
        parts += [f"keeping {self.evictor.describe()}"] if self.evictor is not None else []
        parts += [f"late by up to {format_duration(self.allowed_lateness)}"] if self.allowed_lateness else []
        return ", ".join(parts)
