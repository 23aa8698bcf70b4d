"""Windows that lie and end by the clock of the machine instead of by event time.

Nothing is late in them. What is open when the input ends is lost, as in Flink: the clock does not run to its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from poundlock.stream.windows.assigners import Sliding, Tumbling
from poundlock.stream.windows.builtin_triggers import ProcessingTimeTrigger
from poundlock.stream.windows.triggers import Trigger


@dataclass(frozen=True)
class TumblingProcessingTimeWindows(Tumbling):
    """Windows of one size, one after the other, by the clock.

    Args:
        size: length of a window, such as "1 min".
        offset: how far the borders are moved.
    """

    size: str | timedelta
    offset: str | timedelta = timedelta(0)

    def is_event_time(self) -> bool:
        return False

    def default_trigger(self) -> Trigger:
        return ProcessingTimeTrigger()


@dataclass(frozen=True)
class SlidingProcessingTimeWindows(Sliding):
    """Windows of one size that begin every `slide`, by the clock.

    Args:
        size: length of a window.
        slide: time between the beginnings of two windows.
        offset: how far the borders are moved.
    """

    size: str | timedelta
    slide: str | timedelta
    offset: str | timedelta = timedelta(0)

    def is_event_time(self) -> bool:
        return False

    def default_trigger(self) -> Trigger:
        return ProcessingTimeTrigger()
