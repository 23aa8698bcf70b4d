"""Event-time windows as a user names them; plain values that `plan/` lowers to Spark's own operators."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from poundlock.errors import DefinitionError
from poundlock.stream.watermarks import WatermarkStrategy
from poundlock.values import duration, format_duration

__all__ = [
    "EventTimeSessionWindows",
    "SlidingEventTimeWindows",
    "TumblingEventTimeWindows",
    "WatermarkStrategy",
    "WindowAssigner",
]


def _positive(what: str, value: str | timedelta) -> timedelta:
    span = duration(value)
    if span <= timedelta(0):
        raise DefinitionError(f"{what} is {format_duration(span)}", next=f'give a {what} above zero, such as "10 s"')
    return span


@dataclass(frozen=True)
class TumblingEventTimeWindows:
    """Windows of one size, one after the other: [k·size + offset, (k + 1)·size + offset), k counted from 1970 in UTC.

    Args:
        size: length of a window, such as "1 min".
        offset: how far the borders are moved, such as "-8 h" for days of a zone eight hours ahead of UTC.
    """

    size: str | timedelta
    offset: str | timedelta = timedelta(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _positive("size", self.size))
        object.__setattr__(self, "offset", _offset(self.offset))

    def describe(self) -> str:
        """Return one line for `explain`."""
        return f"tumbling windows of {format_duration(duration(self.size))}{_moved(self.offset)}"


@dataclass(frozen=True)
class SlidingEventTimeWindows:
    """Windows of one size that begin every `slide`; a row is in each window that covers it.

    Args:
        size: length of a window.
        slide: time between the beginnings of two windows; at most the size.
        offset: how far the borders are moved.
    """

    size: str | timedelta
    slide: str | timedelta
    offset: str | timedelta = timedelta(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _positive("size", self.size))
        object.__setattr__(self, "slide", _positive("slide", self.slide))
        object.__setattr__(self, "offset", _offset(self.offset))
        if duration(self.slide) > duration(self.size):
            raise DefinitionError(
                f"windows of {format_duration(duration(self.size))} every {format_duration(duration(self.slide))} leave gaps",
                next="give a slide that is at most the size",
            )

    def describe(self) -> str:
        """Return one line for `explain`."""
        size, slide = format_duration(duration(self.size)), format_duration(duration(self.slide))
        return f"sliding windows of {size} every {slide}{_moved(self.offset)}"


@dataclass(frozen=True)
class EventTimeSessionWindows:
    """Windows that end when for `gap` no row of the key has come; rows nearer than the gap are in one window.

    Args:
        gap: how long a key must be silent, such as "30 min".
    """

    gap: str | timedelta

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap", _positive("gap", self.gap))

    def describe(self) -> str:
        """Return one line for `explain`."""
        return f"session windows with a gap of {format_duration(duration(self.gap))}"


WindowAssigner = TumblingEventTimeWindows | SlidingEventTimeWindows | EventTimeSessionWindows


def _offset(value: str | timedelta) -> timedelta:
    if isinstance(value, str) and value.strip().startswith("-"):
        return -duration(value.strip()[1:])
    return duration(value)


def _moved(offset: str | timedelta) -> str:
    span = offset if isinstance(offset, timedelta) else duration(offset)
    if not span:
        return ""
    return f", moved by {'-' if span < timedelta(0) else ''}{format_duration(abs(span))}"
