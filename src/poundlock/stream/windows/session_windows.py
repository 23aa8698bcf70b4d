"""Session windows by the clock, and those whose gap each element brings along.

A session grows with every element that comes within the gap; sessions of a key that overlap or touch become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.stream.windows.assigners import AssignerContext, MergingWindowAssigner, require_time
from poundlock.stream.windows.builtin_triggers import EventTimeTrigger, ProcessingTimeTrigger
from poundlock.stream.windows.triggers import Trigger
from poundlock.stream.windows.window import TimeWindow
from poundlock.values import duration, format_duration, positive, span_ms


@dataclass(frozen=True)
class ProcessingTimeSessionWindows(MergingWindowAssigner):
    """Windows that end when by the clock no element of the key has come for `gap`.

    Args:
        gap: how long a key must be silent, such as "30 min".
    """

    gap: str | timedelta

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap", positive("gap", self.gap))

    @cached_property
    def gap_ms(self) -> int:
        """The gap in ms."""
        return span_ms(self.gap)

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[TimeWindow]:
        now = context.get_current_processing_time()
        return [TimeWindow(now, now + self.gap_ms)]

    def is_event_time(self) -> bool:
        return False

    def default_trigger(self) -> Trigger:
        return ProcessingTimeTrigger()

    def describe(self) -> str:
        return f"session windows with a gap of {format_duration(duration(self.gap))} by the clock"


@dataclass(frozen=True)
class DynamicEventTimeSessionWindows(MergingWindowAssigner):
    """Session windows whose gap is the element's own.

    Args:
        gap: function of the element to its gap: ms as a whole number, a text such as "30 s", or a timedelta.
    """

    gap: Callable[[Any], int | str | timedelta]

    def __post_init__(self) -> None:
        _check_gap_function(self.gap)

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[TimeWindow]:
        time = require_time(timestamp, self)
        return [TimeWindow(time, time + _gap_of(self.gap, value))]

    def default_trigger(self) -> Trigger:
        return EventTimeTrigger()

    def describe(self) -> str:
        return "session windows with a gap of each element"


@dataclass(frozen=True)
class DynamicProcessingTimeSessionWindows(MergingWindowAssigner):
    """Session windows by the clock whose gap is the element's own; `gap` as for DynamicEventTimeSessionWindows."""

    gap: Callable[[Any], int | str | timedelta]

    def __post_init__(self) -> None:
        _check_gap_function(self.gap)

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[TimeWindow]:
        now = context.get_current_processing_time()
        return [TimeWindow(now, now + _gap_of(self.gap, value))]

    def is_event_time(self) -> bool:
        return False

    def default_trigger(self) -> Trigger:
        return ProcessingTimeTrigger()

    def describe(self) -> str:
        return "session windows with a gap of each element by the clock"


def _check_gap_function(gap: Any) -> None:
    if not callable(gap):
        raise DefinitionError(
            f"{gap!r} is no function", next='write a function of the element, such as lambda e: e["gap_ms"]'
        )


def _gap_of(function: Callable[[Any], int | str | timedelta], value: Any) -> int:
    gap = function(value)
    gap_ms = gap if isinstance(gap, int) else span_ms(gap)
    if gap_ms <= 0:
        raise DefinitionError(f"the gap of an element is {gap!r}", next="return a gap above zero for every element")
    return gap_ms
