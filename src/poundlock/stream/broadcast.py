"""Broadcast state: records that every task sees, such as rules, and the functions that apply them to another stream.

Only the broadcast side writes it, so that every task, which sees the same records, has the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from poundlock.stream.functions.base import Function
from poundlock.stream.functions.process import Context, CurrentTime, KeyedContext, OnTimerContext
from poundlock.stream.functions.state import MapState, MapStateDescriptor, ReadOnlyBroadcastState, StateDescriptor


class _Reads(Protocol):
    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState:
        """Return broadcast state, which can only be read here."""
        ...


class ReadOnlyContext(Context, _Reads, Protocol):
    """What `process_element` gets with a record of a stream without key."""


class KeyedReadOnlyContext(KeyedContext, _Reads, Protocol):
    """What `process_element` gets with a record of a keyed stream."""


class OnTimerReadOnlyContext(OnTimerContext, _Reads, Protocol):
    """What `on_timer` is told."""


class BroadcastContext(CurrentTime, Protocol):
    """What `process_broadcast_element` is told. There is no key, and there are no timers."""

    def timestamp(self) -> int | None:
        """Return the event time of the record in ms, None where it has none."""
        ...

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Return broadcast state, which may be changed here."""
        ...


class KeyedBroadcastContext(BroadcastContext, Protocol):
    """The same where the other stream is keyed."""

    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        """Call function(key, state) for every key that has something in a state of the keyed side."""
        ...


class BroadcastProcessFunction(Function):
    """Called for every record of a stream without key, and on every instance for every broadcast record. Derive from it."""

    def process_element(self, value: Any, ctx: ReadOnlyContext) -> Iterable[Any] | None:
        """Yield what comes of a record; broadcast state can only be read."""
        raise NotImplementedError

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterable[Any] | None:
        """Take a broadcast record into broadcast state. What is yielded comes out once for each task."""
        raise NotImplementedError


class KeyedBroadcastProcessFunction(Function):
    """Called for every record of a keyed stream, and for every broadcast record once in every task. Derive from it.

    Records of the keyed side have state and timers of their key; broadcast records have none.
    """

    def process_element(self, value: Any, ctx: KeyedReadOnlyContext) -> Iterable[Any] | None:
        """Yield what comes of a record; broadcast state can only be read."""
        raise NotImplementedError

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastContext) -> Iterable[Any] | None:
        """Take a broadcast record into broadcast state. What is yielded comes out once for each task."""
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: OnTimerReadOnlyContext) -> Iterable[Any] | None:
        """Yield what comes of a timer that fires; broadcast state can only be read."""
        return None
