"""The classes a user derives functions from, and what they are given: runtime context, open and close.

A function object is made once, travels to the tasks pickled, and is opened there before its first element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from poundlock.calls import check_methods
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from poundlock.metrics.user import MetricGroup
    from poundlock.stream.functions.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        ReducingState,
        ReducingStateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )


class KeyedStateStore(Protocol):
    """Where a function gets its state from. The same descriptor gives the same state; it follows the current key."""

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """Return the state of one value."""

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """Return the state of a list."""

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Return the state of a map."""

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        """Return the state of a reduced value."""

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """Return the state of an accumulator."""


class RuntimeContext(KeyedStateStore, Protocol):
    """What a function is opened with."""

    def get_metric_group(self) -> MetricGroup:
        """Return where the function's own metrics come from: counters, gauges, histograms."""


class Function:
    """Base of the functions that are classes: opened once in each task before anything else, closed when it is over."""

    def open(self, context: RuntimeContext) -> None:
        """Get state handles and anything the function needs. Called in the task, not where the job is written."""

    def close(self) -> None:
        """Give back what `open` took. Called too when the task fails; not when its process is killed."""


class AggregateFunction:
    """Adds elements to an accumulator, so that a window or a state holds one accumulator and no elements.

    The accumulator may be changed in place; the methods return it.
    """

    def create_accumulator(self) -> Any:
        """Return a new accumulator, of nothing."""
        raise NotImplementedError

    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with one more element."""
        raise NotImplementedError

    def get_result(self, accumulator: Any) -> Any:
        """Return the result; the accumulator goes on being used."""
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        """Return one accumulator of two. Needed for session windows."""
        raise NotImplementedError


@runtime_checkable
class RichFunction(Protocol):
    """A callable object for `map`, `flat_map`, `filter`, `async_map` or `map_batches` that has something to open and to close.

    Derive from it and give it a `__call__`, and `open` or `close` or both. An object that has both without being derived is one too.
    Every attempt of a task opens the object before its first record and closes it behind its last one, also where the
    task fails; a task without records opens none. A worker may keep the object, and then opens it again for its next task.
    """

    def open(self) -> None:
        """Make what the function needs, such as a connection. Called in the task, not where the job is written."""

    def close(self) -> None:
        """Give back what `open` made. An error here fails the task, unless it has failed already."""


def check_rich_function(function: Any, kind: str) -> None:
    """Raise DefinitionError for an object whose `open` or `close` nobody would call, or could not."""
    if isinstance(function, RichFunction):
        check_methods(function, RichFunction, kind)
        return
    for name, other in (("open", "close"), ("close", "open")):
        if callable(getattr(function, name, None)):
            raise DefinitionError(
                f"the function of {kind}, a {type(function).__name__}, has {name}() and no {other}(), so nobody calls it",
                next="derive its class from poundlock.RichFunction",
            )
