"""Window joins and co-groups: the windows of two streams put together, as in Flink.

Both streams' records go into one window operator as [side, record]; the function sees them apart again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from poundlock.arguments import function_name
from poundlock.operators.keyed.defensive_copy import detached
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk
from poundlock.operators.process.rows import check_rows, check_tag
from poundlock.operators.windows.factory import window_operator
from poundlock.operators.windows.spec import WindowSpec
from poundlock.stream.functions.base import Function, RuntimeContext
from poundlock.stream.functions.join import CoGroupFunction, JoinFunction
from poundlock.stream.stream import Side
from poundlock.stream.windows.assigners import WindowAssigner
from poundlock.stream.windows.evictors import Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.stream.windows.window_functions import ProcessWindow, ProcessWindowFunction, WindowContext


@dataclass(frozen=True, kw_only=True)
class WindowJoinSpec:
    """What is joined in which windows. Trigger and evictor see elements as [0 for left or 1 for right, record].

    Args:
        kind: "join" calls the function with each pair of a key and window, "co_group" with all of both sides.
        assigner: of windows.
        function: a JoinFunction or CoGroupFunction, or a plain function of left and right.
        trigger: None for the assigner's own.
        evictor: None for the assigner's own.
        allowed_lateness_ms: how long after its end an event-time window still takes elements.
        tags: of the function's side outputs; None = any.
    """

    kind: Literal["join", "co_group"]
    assigner: WindowAssigner
    function: JoinFunction | CoGroupFunction | Callable[[Any, Any], Any]
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    allowed_lateness_ms: int = 0
    tags: tuple[str, ...] | None = None


class _Apart(ProcessWindowFunction):
    """Gives the elements of a window to the user's function, by side."""

    def __init__(self, spec: WindowJoinSpec) -> None:
        function = spec.function
        self._pairs = spec.kind == "join"
        self._tags = None if spec.tags is None else frozenset(spec.tags)
        self._opened = function if isinstance(function, Function) else None
        self._who = function_name(function)
        self._call: Callable[[Any, Any], Any]
        if isinstance(function, JoinFunction):
            self._call = function.join
        elif isinstance(function, CoGroupFunction):
            self._call = function.co_group
        else:
            self._call = function

    def open(self, context: RuntimeContext) -> None:
        if self._opened is not None:
            self._opened.open(context)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def process(self, key: Any, context: WindowContext, elements: Sequence[Any]) -> Iterable[Any]:
        left = [value for side, value in elements if side == 0]
        right = [value for side, value in elements if side == 1]
        if not self._pairs:
            yield from self._rows(self._call(left, right))
            return
        for one in left:
            for other in right:
                yield from self._rows(self._call(one, other))

    def _rows(self, given: Any) -> Iterator[Any]:
        """Yield what a function gave: nothing, one record, or several."""
        if given is None:
            return
        for row in [given] if isinstance(given, dict) else check_rows(given, self._who):
            if isinstance(row, Side):
                check_tag(row.tag, self._tags, self._who)
                yield Side(row.tag, detached(row.record))
            else:
                yield detached(row)


class WindowJoinOperator:
    """Joins side 0, left, with side 1, right. Records that are late are counted and dropped.

    Args:
        spec: what is joined.
        chunk_rows: about how many rows come out at a time.
    """

    def __init__(self, spec: WindowJoinSpec, *, chunk_rows: int = CHUNK_ROWS) -> None:
        windows = WindowSpec(
            assigner=spec.assigner,
            function=ProcessWindow(_Apart(spec)),
            trigger=spec.trigger,
            evictor=spec.evictor,
            allowed_lateness_ms=spec.allowed_lateness_ms,
        )
        self._windows = window_operator(windows, chunk_rows=chunk_rows)

    @property
    def late_dropped(self) -> int:
        """How many elements were late."""
        return self._windows.late_dropped

    def open(self) -> None:
        self._windows.open()

    def close(self) -> None:
        self._windows.close()

    def process(self, group: KeyGroup, batch: GroupBatch) -> Iterator[OutputChunk]:
        values = [[batch.side, value] for value in batch.values]
        return self._windows.process(group, GroupBatch(batch.keys, values, batch.timestamps, batch.rows, batch.side))

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[OutputChunk]:
        return self._windows.advance_watermark(group, watermark)

    def advance_processing_time(self, group: KeyGroup, now: int) -> Iterator[OutputChunk]:
        return self._windows.advance_processing_time(group, now)
