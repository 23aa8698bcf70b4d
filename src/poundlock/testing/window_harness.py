"""Drives windows in a test, said as on a stream: assigner, trigger, evictor, lateness, function.

What runs is the operator that a task would run for the same windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from poundlock.operators.factory import window_operator
from poundlock.operators.keyed.output import CHUNK_ROWS, LATE
from poundlock.operators.windows.aggregates import SqlAggregate, SqlAggregates
from poundlock.operators.windows.base import WindowSpec
from poundlock.stream.functions.base import AggregateFunction
from poundlock.stream.functions.process import (
    AggregateWindow,
    ProcessWindow,
    ProcessWindowFunction,
    ReduceWindow,
    WindowFunction,
)
from poundlock.stream.windows.assigners import WindowAssigner
from poundlock.stream.windows.evictors import Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.testing.harness import KeyedOperatorHarness, KeySelector
from poundlock.values import duration, span_ms

Function = (
    WindowFunction | ProcessWindowFunction | AggregateFunction | Sequence[SqlAggregate] | Callable[[Any, Any], Any]
)


class WindowHarness(KeyedOperatorHarness):
    """Windows of a keyed stream.

    Args:
        assigner: which windows an element is in.
        function: a ProcessWindowFunction, an AggregateFunction, a function that reduces two elements to one, ReduceWindow or
            AggregateWindow for one of the latter with a process function, or a list of SqlAggregate.
        key: of an element: a function, the name of a column, several for a tuple, or None for one key for all.
        trigger: None for the assigner's own.
        evictor: None for the assigner's own.
        allowed_lateness: such as "1 min".
        late: whether late elements go to the side output `late`; otherwise they are counted in `late_dropped`.
        general: whether to run the general operator even where there is a quicker one for these windows.
        key_groups: how many groups keys are spread over.
        instances: how many instances share them.
        chunk_rows: about how many rows come out of the operator at a time.

    Raises:
        DefinitionError: the trigger cannot be used with windows that merge.
    """

    def __init__(
        self,
        assigner: WindowAssigner,
        function: Function,
        *,
        key: KeySelector = None,
        trigger: Trigger | None = None,
        evictor: Evictor | None = None,
        allowed_lateness: str | timedelta = timedelta(0),
        late: bool = True,
        general: bool = False,
        key_groups: int = 8,
        instances: int = 1,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        spec = WindowSpec(
            assigner=assigner,
            function=_function(function),
            trigger=trigger,
            evictor=evictor,
            allowed_lateness_ms=span_ms(duration(allowed_lateness)),
            late_tag=LATE if late else None,
        )
        super().__init__(
            lambda: window_operator(spec, chunk_rows=chunk_rows, general=general),
            key=key,
            key_groups=key_groups,
            instances=instances,
        )


def _function(function: Any) -> WindowFunction | SqlAggregates:
    if isinstance(function, (ReduceWindow, AggregateWindow, ProcessWindow)):
        return function
    if isinstance(function, ProcessWindowFunction):
        return ProcessWindow(function)
    if isinstance(function, AggregateFunction):
        return AggregateWindow(function)
    return SqlAggregates(function) if isinstance(function, Sequence) else ReduceWindow(function)
