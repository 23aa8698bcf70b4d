"""Windows as values: a span of time, the one window over everything, or a numbered count window.

A window's last timestamp is the event time its results carry and its timers go by; for windows without bounds it is MAX_TIMESTAMP.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

MAX_TIMESTAMP = (1 << 63) - 1


class TimeWindow(NamedTuple):
    """The times from `start` to `end` in ms since 1970; `end` is not part of it."""

    start: int
    end: int

    def max_timestamp(self) -> int:
        """Return the last millisecond of the window."""
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Return whether the two overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that holds both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))


@dataclass(frozen=True)
class GlobalWindow:
    """The one window of all elements of a key."""

    def max_timestamp(self) -> int:
        """Return MAX_TIMESTAMP."""
        return MAX_TIMESTAMP


@dataclass(frozen=True)
class CountWindow:
    """A window by number of elements.

    Args:
        id: its number for the key, from 0.
    """

    id: int

    def max_timestamp(self) -> int:
        """Return MAX_TIMESTAMP."""
        return MAX_TIMESTAMP


Window = TimeWindow | GlobalWindow | CountWindow


def window_start(timestamp: int, offset: int, size: int) -> int:
    """Return the start of the tumbling window of a size that a time is in; all in ms."""
    return timestamp - (timestamp - offset) % size


def merge_time_windows(windows: Iterable[TimeWindow]) -> list[tuple[TimeWindow, list[TimeWindow]]]:
    """Return what windows that overlap or touch become, each with the windows it is made of, by start."""
    merged: list[tuple[TimeWindow, list[TimeWindow]]] = []
    for window in sorted(windows):
        if merged and merged[-1][0].intersects(window):
            cover, parts = merged[-1]
            merged[-1] = cover.cover(window), [*parts, window]
        else:
            merged.append((window, [window]))
    return merged
