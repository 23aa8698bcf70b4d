"""What a trigger is: it says when a window's function is called and when its contents go. The base of the built-in ones and a user's own.

A trigger object holds settings only; what it must remember of a window it keeps in partitioned state, so one object serves all.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol

from poundlock.stream.functions.state import StateDescriptor
from poundlock.stream.windows.evictors import EvictorContext
from poundlock.stream.windows.window import Window


class TriggerResult(Enum):
    """What is to happen to a window: the function called (FIRE), the contents dropped (PURGE), both, or nothing."""

    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    @property
    def is_fire(self) -> bool:
        """Whether the function is called."""
        fire: bool = self.value[0]
        return fire

    @property
    def is_purge(self) -> bool:
        """Whether the contents are dropped."""
        purge: bool = self.value[1]
        return purge


class TriggerContext(EvictorContext, Protocol):
    """What a trigger can ask for; it belongs to one key and one window while a method runs. Times are ms."""

    def register_event_time_timer(self, time: int) -> None:
        """Have `on_event_time` called when the watermark reaches a time; once, however often this is asked for."""

    def register_processing_time_timer(self, time: int) -> None:
        """Have `on_processing_time` called when the clock reaches a time."""

    def delete_event_time_timer(self, time: int) -> None:
        """Take back a timer."""

    def delete_processing_time_timer(self, time: int) -> None:
        """Take back a timer."""

    def get_partitioned_state(self, descriptor: StateDescriptor) -> Any:
        """Return state of this key and window: a ValueState, ListState, … by the kind of the descriptor."""


class OnMergeContext(TriggerContext, Protocol):
    """What a trigger can ask for while windows merge; it belongs to the new window."""

    def merge_partitioned_state(self, descriptor: StateDescriptor) -> None:
        """Merge list, reducing or aggregating state of the old windows into that of the new one."""


class Trigger:
    """Base of triggers. Derive from it for one of your own; a frozen dataclass does well.

    Timers fire in order of time, each once for a key, window and time.
    """

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Say what is to happen now that an element was added; `timestamp` is its event time in ms, None where it has none."""
        raise NotImplementedError

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Say what is to happen now that the watermark has reached a timer's time."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Say what is to happen now that the clock has reached a timer's time."""
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        """Bring state and timers of merged windows to the new one. Called only if `can_merge` says so."""
        raise NotImplementedError

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Forget state and timers of a window that goes away."""

    def can_merge(self) -> bool:
        """Return whether it can be used with session windows and others that merge."""
        return False

    def describe(self) -> str:
        """Return a few words for `explain`."""
        return type(self).__name__


class MergingTrigger(Trigger):
    """A trigger for windows that merge, too; it has an `on_merge`."""

    def can_merge(self) -> bool:
        return True
