"""What all window operators share: what the user wrote, and what happens when a window fires.

A spec is a plain value: it travels to tasks, and one spec can make any number of operators. A window's contents become a result, or
are given to the user's function, whose contexts are one object each, moved from window to window. A subclass works on elements and
timers; it never sees a watermark or a clock go back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.accumulators import AggregateFold, Fold, ListFold, ReduceFold
from poundlock.operators.keyed.group import KeyGroup, Timers
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import (
    CHUNK_ROWS,
    Collector,
    GroupBatch,
    OutputChunk,
    check_rows,
    check_tag,
    detached,
)
from poundlock.operators.keyed.state import StateStore
from poundlock.operators.windows.aggregates import SqlAggregates
from poundlock.stream.functions.base import KeyedStateStore
from poundlock.stream.functions.process import AggregateWindow, ProcessWindowFunction, ReduceWindow, WindowFunction
from poundlock.stream.nodes import WindowJoinNode, WindowNode
from poundlock.stream.stream import Side
from poundlock.stream.windows.assigners import MergingWindowAssigner, WindowAssigner
from poundlock.stream.windows.evictors import Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.stream.windows.window import MAX_TIMESTAMP, CountWindow, GlobalWindow, TimeWindow, Window
from poundlock.values import span_ms

CONTENTS = "contents"
"""The state of windows; its kind says in what form."""


@dataclass(frozen=True, kw_only=True)
class WindowSpec:
    """What the user wrote of a window.

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


_GLOBAL = GlobalWindow()
_MUTABLE = (dict, list, set)


def as_window(namespace: Any) -> Window:
    """Return the window that state knows as (start, end), None or a number."""
    if namespace is None:
        return _GLOBAL
    return CountWindow(namespace) if type(namespace) is int else TimeWindow(*namespace)


def as_namespace(window: Any) -> Any:
    """Return what state knows a window as. Raises DefinitionError if a user's assigner gave something else than a window."""
    if isinstance(window, TimeWindow):
        start, end = window
        if type(start) is int and type(end) is int and -MAX_TIMESTAMP <= start <= end <= MAX_TIMESTAMP:
            return start, end
    if isinstance(window, GlobalWindow):
        return None
    if isinstance(window, CountWindow):
        return window.id
    raise DefinitionError(
        f"the window assigner gave {window!r}",
        next="return TimeWindow(start_ms, end_ms) with whole numbers, the end not before the start, GlobalWindow() or CountWindow(n)",
    )


class _Context:
    """A process function's context."""

    def __init__(self, firing: Firing) -> None:
        self._firing = firing

    def window(self) -> Window:
        return as_window(self._firing.namespace)

    def current_watermark(self) -> int:
        return self._firing.group.watermark

    def current_processing_time(self) -> int:
        return self._firing.group.processing_time

    def window_state(self) -> KeyedStateStore:
        if self._firing.merging:
            raise DefinitionError(
                "windows that merge have no per-window state", next="use global_state(), or keep it among the elements"
            )
        return self._firing.window_states

    def global_state(self) -> KeyedStateStore:
        return self._firing.key_states


class Firing:
    """Turns contents into output rows."""

    def __init__(self, spec: WindowSpec, out: Collector) -> None:
        self.out = out
        self.process: ProcessWindowFunction | None = spec.process
        self.group = KeyGroup(0)
        self.namespace: Any = None
        self.merging = isinstance(spec.assigner, MergingWindowAssigner)
        self.window_states = StateStore("window:", windowed=True)
        self.key_states = StateStore("state:")
        self._keeps_elements = spec.keeps_elements
        self._context = _Context(self)
        process = self.process
        self._tags = None if spec.tags is None else frozenset(spec.tags)
        self.clears = process is not None and type(process).clear is not ProcessWindowFunction.clear

    def open(self) -> None:
        if self.process is not None:
            self.process.open(self.key_states)

    def close(self) -> None:
        if self.process is not None:
            self.process.close()

    def use(self, group: KeyGroup) -> None:
        self.group = group
        self.window_states.use(group)
        self.key_states.use(group)

    def _move(self, key: Any, namespace: Any) -> None:
        self.namespace = namespace
        self.key_states.entry = key
        self.window_states.entry = key, namespace

    def fire(self, key: Any, namespace: Any, last: int, result: Any) -> None:
        """Emit a result, or what the user's function makes of it; rows carry the window's last timestamp."""
        process = self.process
        if process is None:
            # What was emitted stays as it was, although what a function reduced to may be its state and change.
            self.out.emit_window(detached(result) if type(result) in _MUTABLE else result, key, last, namespace)
            return
        elements: Sequence[Any] = result if self._keeps_elements else [result]
        self._move(key, namespace)
        rows = process.process(key, self._context, elements)
        for row in () if rows is None else check_rows(rows, type(process).__name__):
            if isinstance(row, Side):
                check_tag(row.tag, self._tags, type(process).__name__)
                self.out.emit(detached(row.record), key, last, row.tag)
            else:
                self.out.emit_window(detached(row), key, last, namespace)

    def clear(self, key: Any, namespace: Any) -> None:
        """Tell the user's function that a window goes away."""
        if self.clears and self.process is not None:
            self._move(key, namespace)
            self.process.clear(self._context)


class WindowOperatorBase(KeyedOperator):
    """A window operator without a way to keep its windows."""

    opens_tables_first: ClassVar[bool] = True

    def __init__(self, spec: WindowSpec, *, chunk_rows: int = CHUNK_ROWS) -> None:
        super().__init__(chunk_rows=chunk_rows)
        self.spec = spec
        self.firing = Firing(spec, self.out)
        self.fold = spec.fold()
        self.event_time = spec.assigner.is_event_time()

    def open(self) -> None:
        self.firing.open()

    def close(self) -> None:
        self.firing.close()

    def process(self, group: KeyGroup, batch: GroupBatch) -> Iterator[OutputChunk]:
        if self.spec.with_sides:
            batch = replace(batch, values=[[batch.side, value] for value in batch.values])
        return super().process(group, batch)

    def use(self, group: KeyGroup) -> None:
        super().use(group)
        self.firing.use(group)

    @property
    def timers(self) -> Timers:
        """The timers of the time by which windows end."""
        return self.group.event_timers if self.event_time else self.group.processing_timers
