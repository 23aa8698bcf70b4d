"""Windows without bounds in time: the global window and count windows; and cumulative windows, which SQL knows.

Nothing is late in a window without bounds, and its results carry the greatest timestamp there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.stream.functions.state import ValueStateDescriptor
from poundlock.stream.windows.assigners import AlignedWindows, AssignerContext, WindowAssigner, check_offset, moved
from poundlock.stream.windows.builtin_triggers import (
    CountTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    PurgingTrigger,
)
from poundlock.stream.windows.evictors import CountEvictor, Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.stream.windows.window import CountWindow, GlobalWindow, TimeWindow, Window, window_start
from poundlock.values import duration, format_duration, positive, positive_number, signed_duration, span_ms

_GLOBAL = GlobalWindow()
_SEEN = ValueStateDescriptor("elements", 0)


@dataclass(frozen=True)
class GlobalWindows(WindowAssigner):
    """One window for each key. It fires when the given trigger says so; without one, never, not even at the end of the input.

    Args:
        at_end: whether it fires at the end of the input unless a trigger is given.
    """

    at_end: bool = False

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[Window]:
        return (_GLOBAL,)

    def default_trigger(self) -> Trigger:
        return EndOfStreamTrigger() if self.at_end else NeverTrigger()

    def is_event_time(self) -> bool:
        return False

    def describe(self) -> str:
        return "the global window"


@dataclass(frozen=True)
class CountTumblingWindows(WindowAssigner):
    """Windows of `n` elements of a key. What is left when the input ends does not come out."""

    n: int

    def __post_init__(self) -> None:
        positive_number("count", self.n)

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[Window]:
        return (_GLOBAL,)

    def default_trigger(self) -> Trigger:
        return PurgingTrigger(CountTrigger(self.n))

    def is_event_time(self) -> bool:
        return False

    def describe(self) -> str:
        return f"windows of {self.n} elements"


@dataclass(frozen=True)
class CountSlidingWindows(WindowAssigner):
    """The last `n` elements of a key, at every `slide`-th one.

    Args:
        n: size of a window.
        slide: how many elements lie between the beginnings of two windows.
        full_only: whether only full windows come out, numbered by their first element as in PyFlink. Otherwise, as in Flink's
            Java API, a window comes out at every `slide`-th element, also while there are fewer than `n`.
    """

    n: int
    slide: int
    full_only: bool = False

    def __post_init__(self) -> None:
        positive_number("count", self.n)
        positive_number("slide", self.slide)

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[Window]:
        if not self.full_only:
            return (_GLOBAL,)
        state = context.key_state().get_state(_SEEN)
        number = state.value()
        state.update(number + 1)
        first = max(0, -(-(number - self.n + 1) // self.slide))
        return [CountWindow(i) for i in range(first, number // self.slide + 1)]

    def default_trigger(self) -> Trigger:
        return PurgingTrigger(CountTrigger(self.n)) if self.full_only else CountTrigger(self.slide)

    def default_evictor(self) -> Evictor | None:
        return None if self.full_only else CountEvictor(self.n)

    def is_event_time(self) -> bool:
        return False

    def describe(self) -> str:
        full = ", full ones only" if self.full_only else ""
        return f"windows of {self.n} elements every {self.slide}{full}"


@dataclass(frozen=True)
class CumulativeEventTimeWindows(AlignedWindows):
    """Windows that begin together every `size` and end one `step` after the other: each holds what the one before it does.

    Args:
        step: by how much each window is longer than the one before it.
        size: length of the longest; a multiple of the step.
        offset: how far the borders are moved.
    """

    step: str | timedelta
    size: str | timedelta
    offset: str | timedelta = timedelta(0)

    def __post_init__(self) -> None:
        step, size = positive("step", self.step), positive("size", self.size)
        if size % step:
            raise DefinitionError(
                f"a size of {format_duration(size)} is no multiple of a step of {format_duration(step)}",
                next="give a size that is a multiple of the step",
            )
        object.__setattr__(self, "step", step)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "offset", check_offset(signed_duration(self.offset), size, "size"))

    @cached_property
    def step_ms(self) -> int:
        """The step in ms."""
        return span_ms(self.step)

    @cached_property
    def size_ms(self) -> int:
        """The size in ms."""
        return span_ms(self.size)

    @cached_property
    def offset_ms(self) -> int:
        """The offset in ms."""
        return span_ms(self.offset)

    def windows_at(self, time: int) -> list[TimeWindow]:
        start = window_start(time, self.offset_ms, self.size_ms)
        first = (time - start) // self.step_ms + 1
        return [TimeWindow(start, start + i * self.step_ms) for i in range(first, self.size_ms // self.step_ms + 1)]

    def default_trigger(self) -> Trigger:
        return EventTimeTrigger()

    def describe(self) -> str:
        step, size = format_duration(duration(self.step)), format_duration(duration(self.size))
        return f"windows that grow by {step} up to {size}{moved(self.offset)}"
