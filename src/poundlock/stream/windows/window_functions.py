"""What becomes of a window's elements: they are reduced or aggregated one by one, or kept and given to a process function.

Reducing and aggregating keep one value for each key and window; a process function alone keeps every element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from poundlock.errors import DefinitionError
from poundlock.stream.functions.base import AggregateFunction, Function, KeyedStateStore
from poundlock.stream.functions.process import CurrentTime
from poundlock.stream.windows.window import Window


class WindowContext(CurrentTime, Protocol):
    """What a process function gets with a window, and its state. Times are ms."""

    def window(self) -> Window:
        """Return the window: a TimeWindow with `start` and `end`, a GlobalWindow or a CountWindow."""

    def window_state(self) -> KeyedStateStore:
        """Return state of this key and window; forget it in `clear`. Windows that merge have none."""

    def global_state(self) -> KeyedStateStore:
        """Return state of this key, whatever the window."""


class ProcessWindowFunction(Function):
    """Called at each firing of a window with its elements. Derive from it."""

    def process(self, key: Any, context: WindowContext, elements: Sequence[Any]) -> Iterable[Any] | None:
        """Yield records for the main output, or Side(tag, record) for a side output.

        Args:
            key: the window's key; a tuple where key_by has several expressions.
            context: of the window.
            elements: what is in the window, in order of arrival; after reduce or aggregate the one result.
        """
        raise NotImplementedError

    def clear(self, context: WindowContext) -> None:
        """Forget per-window state. Called when the window goes away."""


@dataclass(frozen=True)
class ReduceWindow:
    """Elements are reduced two by two; the result, or what `process` makes of it, comes out.

    Args:
        reduce: function of two elements to one; it must not change them.
        process: None for the reduced element itself.
    """

    reduce: Callable[[Any, Any], Any]
    process: ProcessWindowFunction | None = None

    def __post_init__(self) -> None:
        if not callable(self.reduce):
            raise DefinitionError(f"{self.reduce!r} is no function", next="give a function of two elements to one")
        _check_process(self.process)


@dataclass(frozen=True)
class AggregateWindow:
    """Elements are added to an accumulator; its result, or what `process` makes of it, comes out."""

    aggregate: AggregateFunction
    process: ProcessWindowFunction | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.aggregate, AggregateFunction):
            raise DefinitionError(
                f"{self.aggregate!r} is no AggregateFunction",
                next="derive a class from AggregateFunction and give an object of it",
            )
        _check_process(self.process)


@dataclass(frozen=True)
class ProcessWindow:
    """Elements are kept until the window fires, and given to `process`."""

    process: ProcessWindowFunction

    def __post_init__(self) -> None:
        _check_process(self.process, needed=True)


WindowFunction = ReduceWindow | AggregateWindow | ProcessWindow


def _check_process(process: Any, *, needed: bool = False) -> None:
    if not isinstance(process, ProcessWindowFunction) and (needed or process is not None):
        raise DefinitionError(
            f"{process!r} is no ProcessWindowFunction",
            next="derive a class from ProcessWindowFunction and give an object of it",
        )
