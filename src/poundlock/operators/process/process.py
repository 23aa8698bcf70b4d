"""The operator of process functions: with one input or two, keyed or not, with or without broadcast state.

Every row a function yields is kept as it was when it was yielded, and belongs to the key and time it was yielded for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk, RowCollector
from poundlock.operators.keyed.state import StateStore
from poundlock.operators.process.contexts import (
    NO_KEY,
    BroadcastStates,
    FiredTimer,
    KeyedElement,
    KeyedTimers,
    NoState,
    PlainElement,
    PlainTimers,
    Writing,
)
from poundlock.stream.functions.process import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    TimeDomain,
    element_calls,
)
from poundlock.stream.functions.state import MapStateDescriptor

_KEYED = (KeyedProcessFunction, KeyedCoProcessFunction, KeyedBroadcastProcessFunction)
_BROADCAST = (BroadcastProcessFunction, KeyedBroadcastProcessFunction)
_PLAIN = (ProcessFunction, CoProcessFunction, BroadcastProcessFunction)


def is_keyed(function: Any) -> bool:
    """Return whether a process function needs keys. Raises DefinitionError if it is no process function."""
    if isinstance(function, _KEYED):
        return True
    if isinstance(function, _PLAIN):
        return False
    raise DefinitionError(
        f"{function!r} is no process function",
        next="derive a class from KeyedProcessFunction or one of its kind, and give an object of it",
    )


class _Input(NamedTuple):
    call: Callable[[Any, Any], Any]
    context: Any
    keyed: bool


class ProcessOperator(KeyedOperator):
    """Runs a process function.

    Args:
        function: an object of a class derived from one of the six kinds. It is this operator's own.
        tags: of its side outputs; None = any.
        broadcast: descriptors of the broadcast state, for the two kinds that have it.

    A group of an operator without keys stands for one instance of it.
    """

    def __init__(
        self,
        function: Any,
        *,
        tags: Sequence[str] | None = None,
        broadcast: Sequence[MapStateDescriptor] = (),
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        super().__init__(chunk_rows=chunk_rows)
        self.function = function
        self.keyed = is_keyed(function)
        self._rows = RowCollector(self.out, type(function).__name__, tags)
        self._store = StateStore("state:")
        self._timers = KeyedTimers(self._store) if self.keyed else PlainTimers()
        self._states = BroadcastStates(broadcast) if isinstance(function, _BROADCAST) else None
        self._context: Any = (
            KeyedElement(self._store, self._timers, self._states)
            if self.keyed
            else PlainElement(self._timers, self._states)
        )
        self._fired = FiredTimer(self._store, self._timers, self._states)
        self._inputs = self._make_inputs()

    def _make_inputs(self) -> list[_Input]:
        function, context, keyed = self.function, self._context, self.keyed
        calls = element_calls(function)
        inputs = [_Input(call, context, keyed) for call in calls]
        if self._states is not None:
            writing = Writing(self._timers, self._states, self._store if keyed else None)
            inputs[1] = _Input(calls[1], writing, False)
        return inputs

    def open(self) -> None:
        self._store.entry = NO_KEY
        self.function.open(self._store if self.keyed else NoState())

    def close(self) -> None:
        self.function.close()

    def use(self, group: KeyGroup) -> None:
        super().use(group)
        self._store.use(group)
        self._timers.use(group)
        if self._states is not None:
            self._states.use(group)

    def has_keys(self, side: int) -> bool:
        return self._inputs[side].keyed

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        call, context, keyed = self._inputs[batch.side]
        store, out, collect = self._store, self.out, self._rows.collect
        store.entry = NO_KEY
        times = repeat(None, len(batch)) if batch.timestamps is None else batch.timestamps
        for key, value, time in zip(batch.keys, batch.values, times, strict=True):
            if keyed:
                store.entry = key
            context.time = time
            rows = call(value, context)
            if rows is not None:
                collect(rows, key, time)
                if out.size >= out.look_at and out.full:
                    yield from out.drain()
        store.entry = NO_KEY

    def on_timer(self, time: int, entry: Any, *, event: bool) -> None:
        context = self._fired
        context.domain = TimeDomain.EVENT_TIME if event else TimeDomain.PROCESSING_TIME
        context.time = time
        self._store.entry = entry
        rows = self.function.on_timer(time, context)
        if rows is not None:
            # As in Flink: what a timer of the clock emits has no event time.
            self._rows.collect(rows, entry, time if event else None)
        self._store.entry = NO_KEY
