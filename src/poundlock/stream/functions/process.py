"""Functions that see every record or every window: user classes with time, state for a key, and timers; and those of joins.

They yield records for the main output and `Side(tag, record)` for side outputs; times are ms since 1970. Broadcast state, of
records that every task sees such as rules, is written by the broadcast side alone, so that every task has the same. A join
function sees each pair once; the order of pairs is not defined. Reducing and aggregating keep one value for each key and window;
a process function alone keeps every element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from poundlock.calls import check_function, check_methods
from poundlock.errors import DefinitionError
from poundlock.stream.functions.arrow import ArrowAggregateFunction
from poundlock.stream.functions.base import AggregateFunction, Function, KeyedStateStore
from poundlock.stream.functions.state import MapState, MapStateDescriptor, ReadOnlyBroadcastState, StateDescriptor
from poundlock.stream.windows.window import Window


class TimeDomain(Enum):
    """What a timer goes by: the watermark, or the clock."""

    EVENT_TIME = "event"
    PROCESSING_TIME = "processing"


class CurrentTime(Protocol):
    """What time it is."""

    def current_watermark(self) -> int:
        """Return the watermark; MIN (-2**63) before there is one. While event-time timers fire it is the new one already."""

    def current_processing_time(self) -> int:
        """Return the clock. It stands still within a batch."""


class TimerService(CurrentTime, Protocol):
    """The watermark, the clock, and the timers of the current key. There is one timer for a key and a time, however often it is set."""

    def register_event_time_timer(self, time: int) -> None:
        """Have `on_timer` called when the watermark reaches a time; one that is reached already: when the watermark next moves."""

    def register_processing_time_timer(self, time: int) -> None:
        """Have `on_timer` called when the clock reaches a time."""

    def delete_event_time_timer(self, time: int) -> None:
        """Take back a timer; nothing happens if there is none."""

    def delete_processing_time_timer(self, time: int) -> None:
        """Take back a timer."""


class Context(Protocol):
    """What a function gets with a record. It is one object, moved from record to record: do not keep it."""

    def timestamp(self) -> int | None:
        """Return the event time of the record, None where it has none."""

    def timer_service(self) -> TimerService:
        """Return the watermark and the clock; timers can be set only on a keyed stream."""


class KeyedContext(Context, Protocol):
    """The same on a keyed stream."""

    def get_current_key(self) -> Any:
        """Return the key; a tuple where key_by has several expressions."""


class OnTimerContext(KeyedContext, Protocol):
    """What `on_timer` is given; `timestamp()` is the time of the timer."""

    def time_domain(self) -> TimeDomain:
        """Return what the timer went by."""


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


class _Reads(Protocol):
    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState:
        """Return broadcast state, which can only be read here."""


class ReadOnlyContext(Context, _Reads, Protocol):
    """What `process_element` gets with a record of a stream without key."""


class KeyedReadOnlyContext(KeyedContext, _Reads, Protocol):
    """What `process_element` gets with a record of a keyed stream."""


class OnTimerReadOnlyContext(OnTimerContext, _Reads, Protocol):
    """What `on_timer` is given."""


class BroadcastContext(CurrentTime, Protocol):
    """What `process_broadcast_element` is given. There is no key, and there are no timers."""

    def timestamp(self) -> int | None:
        """Return the event time of the record in ms, None where it has none."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Return broadcast state, which may be changed here."""


class KeyedBroadcastContext(BroadcastContext, Protocol):
    """The same where the other stream is keyed."""

    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        """Call function(key, state) for every key that has something in a state of the keyed side."""


class BroadcastProcessFunction(Function):
    """Called for every record of a stream without key, and on every instance for every broadcast record. Derive from it."""

    def process_element(self, value: Any, ctx: ReadOnlyContext) -> Iterable[Any] | None:
        """Yield what comes of a record; broadcast state can only be read."""
        raise NotImplementedError

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterable[Any] | None:
        """Take a broadcast record into broadcast state. What is yielded comes out once for each task."""
        raise NotImplementedError


class KeyedBroadcastProcessFunction(Function):
    """Called for every record of a keyed stream, and for every broadcast record once in every task. Derive from it.

    Records of the keyed side have state and timers of their key; broadcast records have none.
    """

    def process_element(self, value: Any, ctx: KeyedReadOnlyContext) -> Iterable[Any] | None:
        """Yield what comes of a record; broadcast state can only be read."""
        raise NotImplementedError

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastContext) -> Iterable[Any] | None:
        """Take a broadcast record into broadcast state. What is yielded comes out once for each task."""
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: OnTimerReadOnlyContext) -> Iterable[Any] | None:
        """Yield what comes of a timer that fires; broadcast state can only be read."""
        return None


def element_calls(function: Any) -> list[Callable[..., Any]]:
    """Return the methods of a process function that take a record, by the input that it comes from."""
    if isinstance(function, (CoProcessFunction, KeyedCoProcessFunction)):
        return [function.process_element1, function.process_element2]
    if isinstance(function, (BroadcastProcessFunction, KeyedBroadcastProcessFunction)):
        return [function.process_element, function.process_broadcast_element]
    return [function.process_element]


class JoinContext(Protocol):
    """What the function of an interval join gets with a pair. Times are ms."""

    def left_timestamp(self) -> int:
        """Return the event time of the left record."""

    def right_timestamp(self) -> int:
        """Return the event time of the right record."""

    def timestamp(self) -> int:
        """Return the event time of what comes out: the later of the two."""


class ProcessJoinFunction(Function):
    """Called for each pair of an interval join. Derive from it."""

    def process_element(self, left: Any, right: Any, ctx: JoinContext) -> Iterable[Any] | None:
        """Yield what comes of a pair; `Side(tag, record)` for a side output."""
        raise NotImplementedError


class JoinFunction(Function):
    """Called for each pair of records of a key in one window. Derive from it."""

    def join(self, left: Any, right: Any) -> Iterable[Any] | None:
        """Yield what comes of a pair."""
        raise NotImplementedError


class CoGroupFunction(Function):
    """Called for each key and window with the records of both streams. Derive from it."""

    def co_group(self, left: Sequence[Any], right: Sequence[Any]) -> Iterable[Any] | None:
        """Yield what comes of the records of one key in one window; one of the two may be empty."""
        raise NotImplementedError


class WindowContext(CurrentTime, Protocol):
    """What a process function gets with a window, and its state. Times are ms."""

    def window(self) -> Window:
        """Return the window: a TimeWindow with `start` and `end`, a GlobalWindow or a CountWindow."""

    def window_state(self) -> KeyedStateStore:
        """Return state of this key and window; forget it in `clear`. Windows that merge have none."""

    def global_state(self) -> KeyedStateStore:
        """Return state of this key, whatever the window."""


class ProcessWindowFunction(Function):
    """Called at each firing of a window with its elements. Derive from it."""

    def process(self, key: Any, context: WindowContext, elements: Sequence[Any]) -> Iterable[Any] | None:
        """Yield records for the main output, or Side(tag, record) for a side output.

        Args:
            key: the window's key; a tuple where key_by has several expressions.
            context: of the window.
            elements: what is in the window, in order of arrival; after reduce or aggregate the one result.
        """
        raise NotImplementedError

    def clear(self, context: WindowContext) -> None:
        """Forget per-window state. Called when the window goes away."""


@dataclass(frozen=True)
class ReduceWindow:
    """Elements are reduced two by two; the result, or what `process` makes of it, comes out.

    Args:
        reduce: function of two elements to one; it must not change them.
        process: None for the reduced element itself.
    """

    reduce: Callable[[Any, Any], Any]
    process: ProcessWindowFunction | None = None

    def __post_init__(self) -> None:
        check_function(self.reduce, "reduce", "a", "b")
        _check_process(self.process)


@dataclass(frozen=True)
class AggregateWindow:
    """Elements are added to an accumulator; its result, or what `process` makes of it, comes out."""

    aggregate: AggregateFunction
    process: ProcessWindowFunction | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.aggregate, AggregateFunction):
            raise DefinitionError(
                f"{self.aggregate!r} is no AggregateFunction",
                next="derive a class from AggregateFunction and give an object of it",
            )
        check_methods(self.aggregate, AggregateFunction, "aggregate")
        _check_process(self.process)


@dataclass(frozen=True)
class ProcessWindow:
    """Elements are kept until the window fires, and given to `process`."""

    process: ProcessWindowFunction

    def __post_init__(self) -> None:
        _check_process(self.process, needed=True)


@dataclass(frozen=True)
class ArrowAggregateWindow:
    """Rows are added up by columns; each result comes out with its key and window."""

    aggregate: ArrowAggregateFunction

    def __post_init__(self) -> None:
        function = self.aggregate
        own, base, name = type(function), ArrowAggregateFunction, type(function).__name__
        written = {
            "accumulate": own.accumulate is not base.accumulate,
            "merge": own.merge is not base.merge,
            "result": own.result is not base.result,
            "accumulator": bool(function.accumulator),
        }
        if missing := [part for part, there in written.items() if not there]:
            raise DefinitionError(
                f"{name} has no {missing[0]}",
                next="write accumulate, merge and result, and accumulator = the DDL of the columns that the first two return",
            )
        check_methods(function, base, "aggregate")
        if isinstance(function.columns, str) or not all(isinstance(each, str) for each in function.columns):
            raise DefinitionError(
                f"{name}.columns is {function.columns!r}", next='list the names of columns, such as ["price", "amount"]'
            )

    @property
    def process(self) -> ProcessWindowFunction | None:
        """None: results come out as they are."""
        return None


WindowFunction = ReduceWindow | AggregateWindow | ProcessWindow | ArrowAggregateWindow


def _check_process(process: Any, *, needed: bool = False) -> None:
    if not isinstance(process, ProcessWindowFunction) and (needed or process is not None):
        raise DefinitionError(
            f"{process!r} is no ProcessWindowFunction",
            next="derive a class from ProcessWindowFunction and give an object of it",
        )
    if process is not None:
        check_methods(process, ProcessWindowFunction, "process")
