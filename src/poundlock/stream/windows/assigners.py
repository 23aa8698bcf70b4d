"""What a window assigner is: it says which windows an element is in. The base of the built-in ones and a user's own.

An assigner object holds settings only; the same element and context always give the same windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Protocol

from poundlock.errors import DefinitionError
from poundlock.stream.functions.base import KeyedStateStore
from poundlock.stream.windows.evictors import Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.stream.windows.window import TimeWindow, Window, merge_time_windows, window_start
from poundlock.values import duration, format_duration, positive, signed_duration, span_ms


class AssignerContext(Protocol):
    """What an assigner can ask for; it belongs to one key while `assign_windows` runs."""

    def get_current_processing_time(self) -> int:
        """Return the clock in ms."""
        ...

    def key_state(self) -> KeyedStateStore:
        """Return where state of the key, such as a count of its elements, is kept."""
        ...


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


class Tumbling(AlignedWindows):
    """Windows of one size, one after the other. Needs `size` and `offset`."""

    size: str | timedelta
    offset: str | timedelta

    def __post_init__(self) -> None:
        size = positive("size", self.size)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "offset", check_offset(signed_duration(self.offset), size, "size"))

    def describe(self) -> str:
        return f"tumbling windows of {format_duration(duration(self.size))}{self._moved}"

    @property
    def _moved(self) -> str:
        return ("" if self.is_event_time() else " by the clock") + moved(self.offset)

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
        return [TimeWindow(start, start + self.size_ms)]


class Sliding(Tumbling):
    """Windows of one size that begin every `slide`. Needs `size`, `slide` and `offset`."""

    slide: str | timedelta

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", positive("size", self.size))
        slide = positive("slide", self.slide)
        object.__setattr__(self, "slide", slide)
        object.__setattr__(self, "offset", check_offset(signed_duration(self.offset), slide, "slide"))

    def describe(self) -> str:
        size, slide = format_duration(duration(self.size)), format_duration(duration(self.slide))
        return f"sliding windows of {size} every {slide}{self._moved}"

    @cached_property
    def slide_ms(self) -> int:
        """The slide in ms."""
        return span_ms(self.slide)

    def windows_at(self, time: int) -> list[TimeWindow]:
        size, slide = self.size_ms, self.slide_ms
        last = window_start(time, self.offset_ms, slide)
        return [TimeWindow(start, start + size) for start in range(last, time - size, -slide)]


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


def check_offset(offset: timedelta, below: timedelta, what: str) -> timedelta:
    """Return an offset.

    Raises:
        DefinitionError: it is not smaller than the size, or the slide.
    """
    if abs(offset) >= below:
        raise DefinitionError(
            f"an offset of {_signed(offset)} moves windows by more than their {what} of {format_duration(below)}",
            next=f"give an offset between -{format_duration(below)} and {format_duration(below)}",
        )
    return offset


def _signed(span: timedelta) -> str:
    return f"{'-' if span < timedelta(0) else ''}{format_duration(abs(span))}"


def moved(offset: str | timedelta) -> str:
    """Return what `describe` says of an offset."""
    span = offset if isinstance(offset, timedelta) else duration(offset)
    return f", moved by {_signed(span)}" if span else ""
