"""Event-time windows and watermarks as a user names them.

They are plain values: `plan/` lowers them to Spark's own operators where it can, `operators/` says what they mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from poundlock.stream.watermarks import WatermarkStrategy
from poundlock.stream.windows.assigners import AssignerContext, MergingWindowAssigner, Sliding, Tumbling, require_time
from poundlock.stream.windows.builtin_triggers import EventTimeTrigger
from poundlock.stream.windows.triggers import Trigger
from poundlock.stream.windows.window import TimeWindow
from poundlock.values import duration, format_duration, positive, span_ms

__all__ = ["EventTimeSessionWindows", "SlidingEventTimeWindows", "TumblingEventTimeWindows", "WatermarkStrategy"]


@dataclass(frozen=True)
class TumblingEventTimeWindows(Tumbling):
    """Windows of one size, one after the other: [k·size + offset, (k + 1)·size + offset), k counted from 1970 in UTC.

    Args:
        size: length of a window, such as "1 min".
        offset: how far the borders are moved, such as "-8 h" for days of a zone eight hours ahead of UTC.
    """

    size: str | timedelta
    offset: str | timedelta = timedelta(0)

    def default_trigger(self) -> Trigger:
        return EventTimeTrigger()


@dataclass(frozen=True)
class SlidingEventTimeWindows(Sliding):
    """Windows of one size that begin every `slide`; a row is in each window that covers it.

    Args:
        size: length of a window.
        slide: time between the beginnings of two windows; if it is more than the size, rows in the gaps are in no window.
        offset: how far the borders are moved.
    """

    size: str | timedelta
    slide: str | timedelta
    offset: str | timedelta = timedelta(0)

    def default_trigger(self) -> Trigger:
        return EventTimeTrigger()


@dataclass(frozen=True)
class EventTimeSessionWindows(MergingWindowAssigner):
    """Windows that end when for `gap` no row of the key has come; rows nearer than the gap are in one window.

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
        time = require_time(timestamp, self)
        return [TimeWindow(time, time + self.gap_ms)]

    def default_trigger(self) -> Trigger:
        return EventTimeTrigger()

    def describe(self) -> str:
        """Return one line for `explain`."""
        return f"session windows with a gap of {format_duration(duration(self.gap))}"
