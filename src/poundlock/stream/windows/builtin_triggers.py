"""The built-in triggers: time, count, purging, difference, timeout, never, end of stream, and early results every so often.

Each does exactly what Flink's trigger of the same name does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from operator import add
from typing import Any, ClassVar

from poundlock.arguments import check_object
from poundlock.calls import check_function
from poundlock.errors import DefinitionError
from poundlock.stream.functions.state import ReducingStateDescriptor, ValueStateDescriptor
from poundlock.stream.windows.triggers import MergingTrigger, OnMergeContext, Trigger, TriggerContext, TriggerResult
from poundlock.stream.windows.window import MAX_TIMESTAMP, Window
from poundlock.values import duration, format_duration, positive, positive_number, span_ms

_COUNT = ReducingStateDescriptor("count", add)
_REFERENCE = ValueStateDescriptor("last-fired")
_TIMEOUT = ValueStateDescriptor("timeout")


@dataclass(frozen=True)
class EventTimeTrigger(MergingTrigger):
    """Fires when the watermark reaches the window's last timestamp, and at once for an element that comes after that."""

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        last = window.max_timestamp()
        if last <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(last)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())

    def describe(self) -> str:
        return "at the end of the window"


@dataclass(frozen=True)
class ProcessingTimeTrigger(MergingTrigger):
    """Fires when the clock reaches the window's last timestamp."""

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())

    def describe(self) -> str:
        return "when the clock reaches the end of the window"


@dataclass(frozen=True)
class CountTrigger(MergingTrigger):
    """Fires at every `n`-th element of the window, and not at its end; the counts of merged windows add up."""

    n: int

    def __post_init__(self) -> None:
        positive_number("count", self.n)

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        count = ctx.get_partitioned_state(_COUNT)
        count.add(1)
        if count.get() < self.n:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(_COUNT)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(_COUNT).clear()

    def describe(self) -> str:
        return f"every {self.n} elements"


@dataclass(frozen=True)
class PurgingTrigger(Trigger):
    """Does as another trigger does, and drops the contents whenever that fires. What the other remembers stays."""

    inner: Trigger

    def __post_init__(self) -> None:
        _check_inner(self.inner)

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purged(self.inner.on_element(value, timestamp, window, ctx))

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purged(self.inner.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purged(self.inner.on_processing_time(time, window, ctx))

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        self.inner.on_merge(window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self.inner.clear(window, ctx)

    def can_merge(self) -> bool:
        return self.inner.can_merge()

    def describe(self) -> str:
        return f"{self.inner.describe()}, purging"


def _check_inner(trigger: Any) -> None:
    check_object(trigger, "trigger", (Trigger,), "write such as PurgingTrigger(CountTrigger(100))")


def _purged(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire else result


@dataclass(frozen=True)
class DeltaTrigger(Trigger):
    """Fires when an element differs by more than a threshold from the one that fired last, at first from the first element.

    Args:
        threshold: a difference equal to it does not fire.
        delta: function of (reference element, new element) to a number.
    """

    threshold: float
    delta: Callable[[Any, Any], float]

    def __post_init__(self) -> None:
        if not callable(self.delta):
            raise DefinitionError(
                f"{self.delta!r} is no function", next='write DeltaTrigger(5, lambda old, new: new["v"] - old["v"])'
            )
        check_function(self.delta, "DeltaTrigger", "old", "new")

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        reference = ctx.get_partitioned_state(_REFERENCE)
        held = reference.value()
        if held is None:
            reference.update(value)
        elif self.delta(held, value) > self.threshold:
            reference.update(value)
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(_REFERENCE).clear()

    def describe(self) -> str:
        return f"at a difference of more than {self.threshold}"


@dataclass(frozen=True)
class ProcessingTimeoutTrigger(Trigger):
    """Fires when another trigger does, or when a time by the clock has passed since the first element after the last firing.

    As in Flink, it also fires at any timer of the other trigger and of the window itself, such as the window's end.

    Args:
        inner: the other trigger.
        timeout: such as "10 s".
        reset_on_element: whether each element starts the time again.
        clear_on_timeout: whether the other trigger forgets what it counted when the time is over.
    """

    inner: Trigger
    timeout: str | timedelta
    reset_on_element: bool = False
    clear_on_timeout: bool = True

    def __post_init__(self) -> None:
        _check_inner(self.inner)
        object.__setattr__(self, "timeout", positive("timeout", self.timeout))

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        result = self.inner.on_element(value, timestamp, window, ctx)
        if result.is_fire:
            self.clear(window, ctx)
            return result
        state = ctx.get_partitioned_state(_TIMEOUT)
        time = state.value()
        if time is not None and self.reset_on_element:
            ctx.delete_processing_time_timer(time)
            time = None
        if time is None:
            time = ctx.get_current_processing_time() + span_ms(self.timeout)
            state.update(time)
            ctx.register_processing_time_timer(time)
        return result

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._timed(self.inner.on_processing_time(time, window, ctx), window, ctx)

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._timed(self.inner.on_event_time(time, window, ctx), window, ctx)

    def _timed(self, result: TriggerResult, window: Window, ctx: TriggerContext) -> TriggerResult:
        if self.clear_on_timeout:
            self.clear(window, ctx)
        return TriggerResult.FIRE_AND_PURGE if result.is_purge else TriggerResult.FIRE

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        state = ctx.get_partitioned_state(_TIMEOUT)
        if state.value() is not None:
            ctx.delete_processing_time_timer(state.value())
            state.clear()
        self.inner.clear(window, ctx)

    def describe(self) -> str:
        return f"{self.inner.describe()}, or {format_duration(duration(self.timeout))} by the clock"


@dataclass(frozen=True)
class NeverTrigger(MergingTrigger):
    """Never fires: the default of global windows."""

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        pass

    def describe(self) -> str:
        return "never"


@dataclass(frozen=True)
class EndOfStreamTrigger(MergingTrigger):
    """Fires when the input has ended."""

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.register_event_time_timer(MAX_TIMESTAMP)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == MAX_TIMESTAMP else TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.register_event_time_timer(MAX_TIMESTAMP)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(MAX_TIMESTAMP)

    def describe(self) -> str:
        return "at the end of the input"


_NEXT = ReducingStateDescriptor("fire-time", min)


@dataclass(frozen=True)
class _Continuous(MergingTrigger):
    """Waits for one border of an interval at a time: by event time, or by the clock.

    The next border is kept as state, so that it survives a restart and, as the smallest, the merging of windows.
    """

    interval: str | timedelta
    by_clock: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval", positive("interval", self.interval))

    def _timer(self, time: int, ctx: TriggerContext) -> None:
        register = ctx.register_processing_time_timer if self.by_clock else ctx.register_event_time_timer
        register(time)

    def _no_timer(self, time: int, ctx: TriggerContext) -> None:
        delete = ctx.delete_processing_time_timer if self.by_clock else ctx.delete_event_time_timer
        delete(time)

    def describe(self) -> str:
        return (
            f"every {format_duration(duration(self.interval))} {'by the clock' if self.by_clock else 'of event time'}"
        )

    def _wait_for(self, time: int, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(_NEXT).add(time)
        self._timer(time, ctx)

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(_NEXT)
        time = ctx.get_partitioned_state(_NEXT).get()
        if time is not None:
            self._timer(time, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        state = ctx.get_partitioned_state(_NEXT)
        if state.get() is not None:
            self._no_timer(state.get(), ctx)
            state.clear()


class ContinuousEventTimeTrigger(_Continuous):
    """Fires at every border of an interval that the watermark passes, and at the window's last timestamp.

    The first border is the one after the first element. Elements that come after the last timestamp fire at once.

    Args:
        interval: between two firings, such as "1 min"; borders are counted from 1970.
    """

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        if timestamp is None:
            raise DefinitionError(
                "an element without event time came to ContinuousEventTimeTrigger",
                next="call assign_timestamps_and_watermarks before the windows",
            )
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        state, interval = ctx.get_partitioned_state(_NEXT), span_ms(self.interval)
        if state.get() is None:
            self._register(timestamp - timestamp % interval + interval, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        state = ctx.get_partitioned_state(_NEXT)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        # The end of the input passes every border there will ever be of a window without an end: one firing stands for them.
        if not window.max_timestamp() == ctx.get_current_watermark() == MAX_TIMESTAMP:
            self._register(time + span_ms(self.interval), window, ctx)
        return TriggerResult.FIRE

    def _register(self, time: int, window: Window, ctx: TriggerContext) -> None:
        self._wait_for(min(time, window.max_timestamp()), ctx)


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires at every border of an interval that the clock passes, and when it reaches the window's last timestamp.

    Args:
        interval: between two firings, such as "1 min"; borders are counted from 1970.
    """

    by_clock: ClassVar[bool] = True

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        if ctx.get_partitioned_state(_NEXT).get() is None:
            now = ctx.get_current_processing_time()
            self._register(now, now - now % span_ms(self.interval), window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        state = ctx.get_partitioned_state(_NEXT)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        self._register(time, time, window, ctx)
        return TriggerResult.FIRE

    def _register(self, now: int, border: int, window: Window, ctx: TriggerContext) -> None:
        time, last = border + span_ms(self.interval), window.max_timestamp()
        # The clock may be past the end of a window of event time, where the last border would come for ever again.
        self._wait_for(min(time, last) if last > now else time, ctx)
