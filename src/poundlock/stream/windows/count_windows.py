"""Windows without bounds in time: the global window and count windows.

Nothing is late in a window without bounds, and its results carry the greatest timestamp there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from poundlock.stream.functions.state import ValueStateDescriptor
from poundlock.stream.windows.assigners import AssignerContext, WindowAssigner
from poundlock.stream.windows.builtin_triggers import CountTrigger, EndOfStreamTrigger, NeverTrigger, PurgingTrigger
from poundlock.stream.windows.evictors import CountEvictor, Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.stream.windows.window import CountWindow, GlobalWindow, Window
from poundlock.values import positive_number

_GLOBAL = GlobalWindow()
_SEEN = ValueStateDescriptor("elements", 0)


class _Unbounded(WindowAssigner):
    """One window for each key, without an end."""

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[Window]:
        return (_GLOBAL,)

    def is_event_time(self) -> bool:
        return False


@dataclass(frozen=True)
class GlobalWindows(_Unbounded):
    """One window for each key. It fires when the given trigger says so; without one, never, not even at the end of the input.

    Args:
        at_end: whether it fires at the end of the input unless a trigger is given.
    """

    at_end: bool = False

    def default_trigger(self) -> Trigger:
        return EndOfStreamTrigger() if self.at_end else NeverTrigger()

    def describe(self) -> str:
        return "the global window"


@dataclass(frozen=True)
class CountTumblingWindows(_Unbounded):
    """Windows of `n` elements of a key. What is left when the input ends does not come out."""

    n: int

    def __post_init__(self) -> None:
        positive_number("count", self.n)

    def default_trigger(self) -> Trigger:
        return PurgingTrigger(CountTrigger(self.n))

    def describe(self) -> str:
        return f"windows of {self.n} elements"


@dataclass(frozen=True)
class CountSlidingWindows(_Unbounded):
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
            return super().assign_windows(value, timestamp, context)
        state = context.key_state().get_state(_SEEN)
        number = state.value()
        state.update(number + 1)
        first = max(0, -(-(number - self.n + 1) // self.slide))
        return [CountWindow(i) for i in range(first, number // self.slide + 1)]

    def default_trigger(self) -> Trigger:
        return PurgingTrigger(CountTrigger(self.n)) if self.full_only else CountTrigger(self.slide)

    def default_evictor(self) -> Evictor | None:
        return None if self.full_only else CountEvictor(self.n)

    def describe(self) -> str:
        full = ", full ones only" if self.full_only else ""
        return f"windows of {self.n} elements every {self.slide}{full}"
