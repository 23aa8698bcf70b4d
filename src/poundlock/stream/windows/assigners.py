"""What a window assigner is: it says which windows an element is in. The base of the built-in ones and a user's own.

An assigner object holds settings only; the same element and context always give the same windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from poundlock.errors import DefinitionError
from poundlock.stream.functions.base import KeyedStateStore
from poundlock.stream.windows.evictors import Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.stream.windows.window import TimeWindow, Window, merge_time_windows


class AssignerContext(Protocol):
    """What an assigner can ask for; it belongs to one key while `assign_windows` runs."""

    def get_current_processing_time(self) -> int:
        """Return the clock in ms."""

    def key_state(self) -> KeyedStateStore:
        """Return where state of the key, such as a count of its elements, is kept."""


class WindowAssigner:
    """Base of window assigners. Derive from it for one of your own; a frozen dataclass does well."""

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[Window]:
        """Return the windows an element is in; `timestamp` is its event time in ms, None where it has none."""
        raise NotImplementedError

    def default_trigger(self) -> Trigger:
        """Return the trigger that is used unless another is given."""
        raise NotImplementedError

    def default_evictor(self) -> Evictor | None:
        """Return the evictor that is used unless another is given."""
        return None

    def is_event_time(self) -> bool:
        """Return whether windows end by the watermark; if not, they end by the clock, or not at all."""
        return True

    def describe(self) -> str:
        """Return a few words for `explain`."""
        return type(self).__name__


class MergingWindowAssigner(WindowAssigner):
    """Base of assigners whose windows of a key merge, such as sessions. Its windows are TimeWindows."""

    def merge_windows(self, windows: Sequence[TimeWindow]) -> Iterable[tuple[TimeWindow, Sequence[TimeWindow]]]:
        """Return what the windows of a key become: each result with the windows it is made of, every window in one of them."""
        return merge_time_windows(windows)


class AlignedWindows(WindowAssigner):
    """Base of windows that lie the same for all keys: tumbling, sliding and cumulative ones."""

    def windows_at(self, time: int) -> list[TimeWindow]:
        """Return the windows a time in ms is in."""
        raise NotImplementedError

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[Window]:
        if self.is_event_time():
            return self.windows_at(require_time(timestamp, self))
        return self.windows_at(context.get_current_processing_time())


def require_time(timestamp: int | None, assigner: WindowAssigner) -> int:
    """Return the event time of an element.

    Raises:
        DefinitionError: it has none.
    """
    if timestamp is None:
        raise DefinitionError(
            f"an element without event time came to {assigner.describe()}",
            next="call assign_timestamps_and_watermarks(WatermarkStrategy…) before the windows",
        )
    return timestamp
