"""Process functions: user classes that see every record with its time, keep state for its key, and set timers.

They yield records for the main output and `Side(tag, record)` for side outputs; times are ms since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Protocol

from poundlock.stream.functions.base import Function


class TimeDomain(Enum):
    """What a timer goes by: the watermark, or the clock."""

    EVENT_TIME = "event"
    PROCESSING_TIME = "processing"


class CurrentTime(Protocol):
    """What time it is."""

    def current_watermark(self) -> int:
        """Return the watermark; MIN (-2**63) before there is one. While event-time timers fire it is the new one already."""
        ...

    def current_processing_time(self) -> int:
        """Return the clock. It stands still within a batch."""
        ...


class TimerService(CurrentTime, Protocol):
    """The watermark, the clock, and the timers of the current key. There is one timer for a key and a time, however often it is set."""

    def register_event_time_timer(self, time: int) -> None:
        """Have `on_timer` called when the watermark reaches a time; one that is reached already: when the watermark next moves."""
        ...

    def register_processing_time_timer(self, time: int) -> None:
        """Have `on_timer` called when the clock reaches a time."""
        ...

    def delete_event_time_timer(self, time: int) -> None:
        """Take back a timer; nothing happens if there is none."""
        ...

    def delete_processing_time_timer(self, time: int) -> None:
        """Take back a timer."""
        ...


class Context(Protocol):
    """What a function gets with a record. It is one object, moved from record to record: do not keep it."""

    def timestamp(self) -> int | None:
        """Return the event time of the record, None where it has none."""
        ...

    def timer_service(self) -> TimerService:
        """Return the watermark and the clock; timers can be set only on a keyed stream."""
        ...


class KeyedContext(Context, Protocol):
    """The same on a keyed stream."""

    def get_current_key(self) -> Any:
        """Return the key; a tuple where key_by has several expressions."""
        ...


class OnTimerContext(KeyedContext, Protocol):
    """What `on_timer` is told; `timestamp()` is the time of the timer."""

    def time_domain(self) -> TimeDomain:
        """Return what the timer went by."""
        ...


class ProcessFunction(Function):
    """Called for every record of a stream without key; it has no state and no timers. Derive from it."""

    def process_element(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Yield what comes of a record."""
        raise NotImplementedError


class KeyedProcessFunction(Function):
    """Called for every record of a keyed stream, with state and timers of the record's key. Derive from it."""

    def process_element(self, value: Any, ctx: KeyedContext) -> Iterable[Any] | None:
        """Yield what comes of a record. What is yielded has the record's event time."""
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Yield what comes of a timer that fires. What is yielded has its time; none if it went by the clock."""
        return None


class CoProcessFunction(Function):
    """Called for every record of two streams without key. Derive from it."""

    def process_element1(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Yield what comes of a record of the first stream."""
        raise NotImplementedError

    def process_element2(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Yield what comes of a record of the second stream."""
        raise NotImplementedError


class KeyedCoProcessFunction(Function):
    """Called for every record of two keyed streams that share state and timers. The watermark is the lower one. Derive from it."""

    def process_element1(self, value: Any, ctx: KeyedContext) -> Iterable[Any] | None:
        """Yield what comes of a record of the first stream."""
        raise NotImplementedError

    def process_element2(self, value: Any, ctx: KeyedContext) -> Iterable[Any] | None:
        """Yield what comes of a record of the second stream."""
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Yield what comes of a timer that fires."""
        return None
