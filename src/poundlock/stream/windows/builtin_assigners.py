"""The built-in windows: tumbling, sliding, cumulative and session windows of time; and those without bounds, global and by count.

Windows of time end by event time or by the clock of the machine. Nothing is late in windows of the clock, and what is open in
them when the input ends is lost, as in Flink: the clock does not run to its end. Nothing is late in a window without bounds, and
its results carry the greatest timestamp there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from poundlock.calls import check_function
from poundlock.errors import DefinitionError
from poundlock.stream.functions.state import ValueStateDescriptor
from poundlock.stream.windows.assigners import (
    AlignedWindows,
    AssignerContext,
    MergingWindowAssigner,
    WindowAssigner,
    require_time,
)
from poundlock.stream.windows.builtin_triggers import (
    CountTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from poundlock.stream.windows.evictors import CountEvictor, Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.stream.windows.window import CountWindow, GlobalWindow, TimeWindow, Window, window_start
from poundlock.values import duration, format_duration, positive, positive_number, signed_duration, span_ms


class _OfTime(WindowAssigner):
    """Windows that have an end: that of the watermark, unless `_ByClock` comes first."""

    def default_trigger(self) -> Trigger:
        return EventTimeTrigger() if self.is_event_time() else ProcessingTimeTrigger()

    @property
    def _clock(self) -> str:
        return "" if self.is_event_time() else " by the clock"


class _ByClock(WindowAssigner):
    def is_event_time(self) -> bool:
        return False


# --- windows that lie the same for all keys ----------------------------------------------------------------------------


class _Sized(_OfTime, AlignedWindows):
    """Windows of a size whose borders an offset moves; both are fields of the subclasses."""

    size: str | timedelta
    offset: str | timedelta

    def _check(self, *lengths: str, border: str) -> None:
        """Make the settings durations; the offset must be smaller than the distance of borders, which `border` names.

        Raises:
            DefinitionError: it is not, or a length is not above zero.
        """
        for name in lengths:
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        below, offset = getattr(self, border), signed_duration(self.offset)
        if abs(offset) >= below:
            raise DefinitionError(
                f"an offset of {_signed(offset)} moves windows by more than their {border} of {format_duration(below)}",
                next=f"give an offset between -{format_duration(below)} and {format_duration(below)}",
            )
        object.__setattr__(self, "offset", offset)

    @property
    def _moved(self) -> str:
        offset = signed_duration(self.offset)
        return self._clock + (f", moved by {_signed(offset)}" if offset else "")

    @cached_property
    def size_ms(self) -> int:
        """The size in ms."""
        return span_ms(self.size)

    @cached_property
    def offset_ms(self) -> int:
        """The offset in ms."""
        return span_ms(self.offset)


def _signed(span: timedelta) -> str:
    return f"{'-' if span < timedelta(0) else ''}{format_duration(abs(span))}"


@dataclass(frozen=True)
class Tumbling(_Sized):
    """Windows of one size, one after the other."""

    size: str | timedelta
    offset: str | timedelta = timedelta(0)

    def __post_init__(self) -> None:
        self._check("size", border="size")

    def describe(self) -> str:
        return f"tumbling windows of {format_duration(duration(self.size))}{self._moved}"

    def windows_at(self, time: int) -> list[TimeWindow]:
        start = window_start(time, self.offset_ms, self.size_ms)
        return [TimeWindow(start, start + self.size_ms)]


class TumblingEventTimeWindows(Tumbling):
    """Windows of one size, one after the other: [k·size + offset, (k + 1)·size + offset), k counted from 1970 in UTC.

    Args:
        size: length of a window, such as "1 min".
        offset: how far the borders are moved, such as "-8 h" for days of a zone eight hours ahead of UTC.
    """


class TumblingProcessingTimeWindows(_ByClock, Tumbling):
    """Windows of one size, one after the other, by the clock.

    Args:
        size: length of a window, such as "1 min".
        offset: how far the borders are moved.
    """


@dataclass(frozen=True)
class Sliding(_Sized):
    """Windows of one size that begin every `slide`."""

    size: str | timedelta
    slide: str | timedelta
    offset: str | timedelta = timedelta(0)

    def __post_init__(self) -> None:
        self._check("size", "slide", border="slide")

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


class SlidingEventTimeWindows(Sliding):
    """Windows of one size that begin every `slide`; a row is in each window that covers it.

    Args:
        size: length of a window.
        slide: time between the beginnings of two windows; if it is more than the size, rows in the gaps are in no window.
        offset: how far the borders are moved.
    """


class SlidingProcessingTimeWindows(_ByClock, Sliding):
    """Windows of one size that begin every `slide`, by the clock.

    Args:
        size: length of a window.
        slide: time between the beginnings of two windows.
        offset: how far the borders are moved.
    """


@dataclass(frozen=True)
class Cumulative(_Sized):
    """Windows that begin together every `size` and end one `step` after the other."""

    step: str | timedelta
    size: str | timedelta
    offset: str | timedelta = timedelta(0)

    def __post_init__(self) -> None:
        self._check("step", "size", border="size")
        step, size = duration(self.step), duration(self.size)
        if size % step:
            raise DefinitionError(
                f"a size of {format_duration(size)} is no multiple of a step of {format_duration(step)}",
                next="give a size that is a multiple of the step",
            )

    @cached_property
    def step_ms(self) -> int:
        """The step in ms."""
        return span_ms(self.step)

    def windows_at(self, time: int) -> list[TimeWindow]:
        start = window_start(time, self.offset_ms, self.size_ms)
        first = (time - start) // self.step_ms + 1
        return [TimeWindow(start, start + i * self.step_ms) for i in range(first, self.size_ms // self.step_ms + 1)]

    def describe(self) -> str:
        step, size = format_duration(duration(self.step)), format_duration(duration(self.size))
        return f"windows that grow by {step} up to {size}{self._moved}"


class CumulativeEventTimeWindows(Cumulative):
    """Windows that begin together every `size` and end one `step` after the other: each holds what the one before it does.

    Args:
        step: by how much each window is longer than the one before it.
        size: length of the longest; a multiple of the step.
        offset: how far the borders are moved.
    """


class CumulativeProcessingTimeWindows(_ByClock, Cumulative):
    """Windows that begin together every `size` and end one `step` after the other, by the clock.

    Args:
        step: by how much each window is longer than the one before it.
        size: length of the longest; a multiple of the step.
        offset: how far the borders are moved.
    """


# --- sessions ----------------------------------------------------------------------------------------------------------


class _Sessions(_OfTime, MergingWindowAssigner):
    """A session grows with every element that comes within the gap; sessions of a key that overlap or touch become one."""

    def _gap_ms(self, value: Any) -> int:
        """Return how long after an element its session ends."""
        raise NotImplementedError

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[TimeWindow]:
        time = require_time(timestamp, self) if self.is_event_time() else context.get_current_processing_time()
        return [TimeWindow(time, time + self._gap_ms(value))]


@dataclass(frozen=True)
class FixedSessions(_Sessions):
    """Sessions of one gap."""

    gap: str | timedelta

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap", positive("gap", self.gap))

    @cached_property
    def gap_ms(self) -> int:
        """The gap in ms."""
        return span_ms(self.gap)

    def _gap_ms(self, value: Any) -> int:
        return self.gap_ms

    def describe(self) -> str:
        return f"session windows with a gap of {format_duration(duration(self.gap))}{self._clock}"


class EventTimeSessionWindows(FixedSessions):
    """Windows that end when for `gap` no row of the key has come; rows nearer than the gap are in one window.

    Args:
        gap: how long a key must be silent, such as "30 min".
    """


class ProcessingTimeSessionWindows(_ByClock, FixedSessions):
    """Windows that end when by the clock no element of the key has come for `gap`.

    Args:
        gap: how long a key must be silent, such as "30 min".
    """


@dataclass(frozen=True)
class _DynamicSessions(_Sessions):
    gap: Callable[[Any], int | str | timedelta]

    def __post_init__(self) -> None:
        if not callable(self.gap):
            raise DefinitionError(
                f"{self.gap!r} is no function", next='write a function of the element, such as lambda e: e["gap_ms"]'
            )
        check_function(self.gap, "the gap of sessions", "element")

    def _gap_ms(self, value: Any) -> int:
        gap = self.gap(value)
        gap_ms = gap if isinstance(gap, int) else span_ms(gap)
        if gap_ms <= 0:
            raise DefinitionError(f"the gap of an element is {gap!r}", next="return a gap above zero for every element")
        return gap_ms

    def describe(self) -> str:
        return f"session windows with a gap of each element{self._clock}"


class DynamicEventTimeSessionWindows(_DynamicSessions):
    """Session windows whose gap is the element's own.

    Args:
        gap: function of the element to its gap: ms as a whole number, a text such as "30 s", or a timedelta.
    """


class DynamicProcessingTimeSessionWindows(_ByClock, _DynamicSessions):
    """Session windows by the clock whose gap is the element's own; `gap` as for DynamicEventTimeSessionWindows."""


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
