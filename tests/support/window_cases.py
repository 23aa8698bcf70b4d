"""Makes windows, triggers, evictors and functions from what conformance cases say, for whatever runs them.

An element is the record {"key", "value"}; a result is the record {"value"}, so that cases run the same in a harness and in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from poundlock.stream.functions.base import AggregateFunction
from poundlock.stream.functions.process import AggregateWindow, ProcessWindow, ProcessWindowFunction, ReduceWindow
from poundlock.stream.functions.state import ReducingStateDescriptor
from poundlock.stream.windows.assigners import AssignerContext, MergingWindowAssigner, WindowAssigner
from poundlock.stream.windows.builtin_assigners import (
    CountSlidingWindows,
    CountTumblingWindows,
    CumulativeEventTimeWindows,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from poundlock.stream.windows.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    ProcessingTimeoutTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from poundlock.stream.windows.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor
from poundlock.stream.windows.triggers import Trigger, TriggerContext, TriggerResult
from poundlock.stream.windows.window import TimeWindow, Window


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


# --- windows ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PointSessions(MergingWindowAssigner):
    """Sessions, but an element of one value has a window without length."""

    gap_ms: int
    point: int

    def assign_windows(self, value: Any, timestamp: int | None, context: AssignerContext) -> Iterable[Window]:
        assert timestamp is not None
        gap = 0 if value["value"] == self.point else self.gap_ms
        return [TimeWindow(timestamp, timestamp + gap)]

    def default_trigger(self) -> Trigger:
        return EventTimeTrigger()


@dataclass(frozen=True)
class GapByTable:
    """The gap of the first row that names the element's key and value, where it names them."""

    rows: tuple[Mapping[str, Any], ...]

    def __call__(self, element: Mapping[str, Any]) -> int:
        for row in self.rows:
            if all(row.get(name, element[name]) == element[name] for name in ("key", "value")):
                gap: int = row["gap_ms"]
                return gap
        raise AssertionError(f"no gap for {element}")


@dataclass(frozen=True)
class GapByValue:
    def __call__(self, element: Mapping[str, Any]) -> int:
        gap: int = element["value"]
        return gap


def assigner_of(window: Mapping[str, Any]) -> WindowAssigner:
    kind = window["type"]
    offset = ms(window.get("offset_ms", 0))
    if kind in ("tumbling_event_time", "tumbling_processing_time"):
        tumbling = TumblingEventTimeWindows if "event" in kind else TumblingProcessingTimeWindows
        return tumbling(ms(window["size_ms"]), offset)
    if kind in ("sliding_event_time", "sliding_processing_time"):
        sliding = SlidingEventTimeWindows if "event" in kind else SlidingProcessingTimeWindows
        return sliding(ms(window["size_ms"]), ms(window["slide_ms"]), offset)
    if kind == "session_event_time_dynamic":
        gap = window["gap"]
        return DynamicEventTimeSessionWindows(GapByTable(tuple(gap["rows"])) if gap["by"] == "table" else GapByValue())
    if kind in ("count_sliding", "count_sliding_full_only"):
        return CountSlidingWindows(window["n"], window["slide"], full_only=kind.endswith("full_only"))
    makers: dict[str, Callable[[], WindowAssigner]] = {
        "session_event_time": lambda: EventTimeSessionWindows(ms(window["gap_ms"])),
        "session_processing_time": lambda: ProcessingTimeSessionWindows(ms(window["gap_ms"])),
        "point_sessions": lambda: PointSessions(window["gap_ms"], window["point_value"]),
        "global": lambda: GlobalWindows(),
        "global_end_of_stream": lambda: GlobalWindows(at_end=True),
        "count_tumbling": lambda: CountTumblingWindows(window["n"]),
        "cumulate_event_time": lambda: CumulativeEventTimeWindows(ms(window["step_ms"]), ms(window["max_size_ms"])),
    }
    return makers[kind]()


# --- triggers --------------------------------------------------------------------------------------------------------


def _plus(a: int, b: int) -> int:
    return a + b


@dataclass(frozen=True)
class CountOrEnd(Trigger):
    """A user's: every n-th element fires; the end, and an element after it, fires and purges."""

    n: int

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE_AND_PURGE
        ctx.register_event_time_timer(window.max_timestamp())
        count = ctx.get_partitioned_state(ReducingStateDescriptor("seen", _plus))
        count.add(1)
        if count.get() < self.n:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        ctx.get_partitioned_state(ReducingStateDescriptor("seen", _plus)).clear()


@dataclass(frozen=True)
class PurgeOnNegative(Trigger):
    """A user's: a negative value purges, otherwise the window fires at its end."""

    inner: Trigger = field(default_factory=EventTimeTrigger)

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        result = self.inner.on_element(value, timestamp, window, ctx)
        return TriggerResult.PURGE if value["value"] < 0 else result

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self.inner.on_event_time(time, window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self.inner.clear(window, ctx)


@dataclass(frozen=True)
class Difference:
    """How far two elements are apart."""

    def __call__(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> float:
        difference: float = new["value"] - old["value"]
        return difference


def trigger_of(trigger: Mapping[str, Any] | None) -> Trigger | None:
    if trigger is None:
        return None
    kind = trigger["type"]
    if kind in ("purging", "timeout"):
        inner = trigger_of(trigger["inner"])
        assert inner is not None
        return (
            PurgingTrigger(inner) if kind == "purging" else ProcessingTimeoutTrigger(inner, ms(trigger["timeout_ms"]))
        )
    makers: dict[str, Callable[[], Trigger | None]] = {
        "event_time": lambda: EventTimeTrigger(),
        "processing_time": lambda: ProcessingTimeTrigger(),
        "count": lambda: CountTrigger(trigger["n"]),
        "continuous_event_time": lambda: ContinuousEventTimeTrigger(ms(trigger["interval_ms"])),
        "continuous_processing_time": lambda: ContinuousProcessingTimeTrigger(ms(trigger["interval_ms"])),
        "delta": lambda: DeltaTrigger(trigger["threshold"], Difference()),
        "custom_count_or_end": lambda: CountOrEnd(trigger["n"]),
        "custom_purge_on_negative": lambda: PurgeOnNegative(),
    }
    return makers[kind]()


def evictor_of(evictor: Mapping[str, Any] | None) -> Evictor | None:
    if evictor is None:
        return None
    after = evictor["when"] == "after"
    if evictor["type"] == "count":
        return CountEvictor(evictor["n"], after=after)
    if evictor["type"] == "time":
        return TimeEvictor(ms(evictor["window_ms"]), after=after)
    return DeltaEvictor(evictor["threshold"], Difference(), after=after)


# --- functions -------------------------------------------------------------------------------------------------------


def _odd_even(number: int) -> int:
    return -1 if number % 2 else 1


@dataclass(frozen=True)
class Folding(AggregateFunction):
    """A function as an accumulator: [name or None, number or list]."""

    name: str

    def create_accumulator(self) -> list[Any]:
        return [None, [] if self.name == "list" else 0]

    def add(self, value: Mapping[str, Any], accumulator: list[Any]) -> list[Any]:
        element = value["value"]
        named = self.name.split("_")[0] in ("first", "last")
        number = element[1] if named else element
        if named and (accumulator[0] is None or self.name.startswith("last")):
            accumulator[0] = element[0]
        if self.name == "list":
            accumulator[1].append(number)
        elif self.name == "count":
            accumulator[1] += 1
        elif self.name.endswith("evens_minus_odds"):
            accumulator[1] += _odd_even(number)
        else:
            accumulator[1] += number
        return accumulator

    def get_result(self, accumulator: list[Any]) -> dict[str, Any]:
        result = list(accumulator[1]) if self.name == "list" else accumulator[1]
        return {"value": result if accumulator[0] is None else [accumulator[0], result]}

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        name = (b if self.name.startswith("last") else a)[0]
        return [name, a[1] + b[1]]


@dataclass(frozen=True)
class Processing(ProcessWindowFunction):
    """A function over all elements of a window."""

    name: str

    def process(self, key: Any, context: Any, elements: Sequence[Any]) -> Iterable[Any]:
        folding = Folding(self.name)
        held = folding.create_accumulator()
        for element in elements:
            held = folding.add(element, held)
        yield folding.get_result(held)


@dataclass(frozen=True)
class PassOn(ProcessWindowFunction):
    """Gives what was aggregated as it is."""

    def process(self, key: Any, context: Any, elements: Sequence[Any]) -> Iterable[Any]:
        assert len(elements) == 1
        assert context.window() is not None
        yield elements[0]


@dataclass(frozen=True)
class Reducing:
    """A function as a reduce of two records to one."""

    name: str

    def __call__(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
        if self.name == "sum":
            return {**a, "value": a["value"] + b["value"]}
        return {**a, "value": [a["value"][0], a["value"][1] + b["value"][1]]}


REDUCED = ("sum", "first_name_and_sum")
WAYS = ("reduce", "aggregate", "aggregate and process", "process")


def function_of(name: str, way: str) -> Any:
    """Return a case's function done in one of several ways, None if it cannot be done so."""
    if way == "reduce":
        return ReduceWindow(Reducing(name)) if name in REDUCED else None
    if way == "aggregate":
        return AggregateWindow(Folding(name))
    if way == "aggregate and process":
        return AggregateWindow(Folding(name), PassOn())
    return ProcessWindow(Processing(name))
