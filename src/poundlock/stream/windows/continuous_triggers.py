"""The continuous triggers: early results of a window at every border of an interval, by event time or by the clock.

The next border is kept as state, so that it survives a restart and, as the smallest, the merging of windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.stream.functions.state import ReducingStateDescriptor
from poundlock.stream.windows.triggers import MergingTrigger, OnMergeContext, TriggerContext, TriggerResult
from poundlock.stream.windows.window import MAX_TIMESTAMP, Window
from poundlock.values import duration, format_duration, positive, span_ms

_NEXT = ReducingStateDescriptor("fire-time", min)


class _Continuous(MergingTrigger):
    """Waits for one border of an interval at a time. Needs `interval`."""

    interval: str | timedelta

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval", positive("interval", self.interval))

    def _timer(self, time: int, ctx: TriggerContext) -> None:
        """Register a timer of the trigger's kind of time."""
        raise NotImplementedError

    def _no_timer(self, time: int, ctx: TriggerContext) -> None:
        """Delete it."""
        raise NotImplementedError

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


@dataclass(frozen=True)
class ContinuousEventTimeTrigger(_Continuous):
    """Fires at every border of an interval that the watermark passes, and at the window's last timestamp.

    The first border is the one after the first element. Elements that come after the last timestamp fire at once.

    Args:
        interval: between two firings, such as "1 min"; borders are counted from 1970.
    """

    interval: str | timedelta

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

    def _timer(self, time: int, ctx: TriggerContext) -> None:
        ctx.register_event_time_timer(time)

    def _no_timer(self, time: int, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(time)

    def describe(self) -> str:
        return f"every {format_duration(duration(self.interval))} of event time"


@dataclass(frozen=True)
class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires at every border of an interval that the clock passes, and when it reaches the window's last timestamp.

    Args:
        interval: between two firings, such as "1 min"; borders are counted from 1970.
    """

    interval: str | timedelta

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

    def _timer(self, time: int, ctx: TriggerContext) -> None:
        ctx.register_processing_time_timer(time)

    def _no_timer(self, time: int, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(time)

    def describe(self) -> str:
        return f"every {format_duration(duration(self.interval))} by the clock"
