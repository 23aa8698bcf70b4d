"""Triggers where the conformance cases do not reach: merging, timeouts, clocks past the end, the end of the input."""

from __future__ import annotations

from typing import Any

import pytest

from poundlock import DefinitionError
from poundlock.stream.functions.state import ListStateDescriptor, ReducingStateDescriptor, ValueStateDescriptor
from poundlock.stream.windows.builtin_assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from poundlock.stream.windows.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EndOfStreamTrigger,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    PurgingTrigger,
)
from poundlock.stream.windows.triggers import OnMergeContext, Trigger, TriggerContext, TriggerResult
from poundlock.stream.windows.window import Window
from poundlock.testing import WindowHarness
from support.window_scripts import All, ms

TEN = TumblingEventTimeWindows(ms(10))


def v(value: int) -> dict[str, Any]:
    return {"v": value}


def seen(rows: Any) -> list[tuple[int, ...]]:
    return [row.value[0] for row in rows]


def test_a_continuous_trigger_on_a_global_window_ends_with_the_input() -> None:
    with WindowHarness(GlobalWindows(), All(), trigger=ContinuousEventTimeTrigger(ms(10))) as h:
        h.process_element(v(1), 3)
        assert seen(h.process_watermark(25)) == [(1,), (1,)]
        h.process_element(v(2), 31)
        # The border that was next, and the end; not one of the borders of the 292 million years between them.
        assert seen(h.end_of_input()) == [(1, 2), (1, 2)]
        assert h.timers() == []


def test_a_continuous_trigger_of_windows_that_end_counts_every_border_at_the_end_of_the_input() -> None:
    with WindowHarness(TEN, All(), trigger=ContinuousEventTimeTrigger(ms(3))) as h:
        h.process_element(v(1), 1)
        assert len(h.end_of_input()) == 3  # 3, 6, and 9, which is the last timestamp too
        assert h.state() == {}


def test_borders_below_zero_lie_where_those_above_do() -> None:
    with WindowHarness(TumblingEventTimeWindows(ms(100)), All(), trigger=ContinuousEventTimeTrigger(ms(30))) as h:
        h.process_element(v(1), -95)
        assert h.process_watermark(-91) == []
        assert seen(h.process_watermark(-90)) == [(1,)]


def test_a_continuous_trigger_by_the_clock_goes_on_past_the_end_of_event_time() -> None:
    """The clock may be anywhere while a window of event time is open; Flink's trigger would fire without end here."""
    with WindowHarness(TEN, All(), trigger=ContinuousProcessingTimeTrigger(ms(100))) as h:
        h.set_processing_time(1007)
        h.process_element(v(1), 1)
        assert seen(h.set_processing_time(1099)) == []
        assert seen(h.set_processing_time(1250)) == [(1,), (1,)]
        assert seen(h.process_watermark(9)) == []
        assert h.timers() == []


def test_a_timeout_fires_on_the_end_of_the_window_too() -> None:
    with WindowHarness(TEN, All(), trigger=ProcessingTimeoutTrigger(CountTrigger(3), ms(50))) as h:
        h.process_element(v(1), 1)
        assert seen(h.process_watermark(9)) == [(1,)]
        assert h.timers() == []


def test_a_timeout_may_begin_anew_with_each_element() -> None:
    trigger = ProcessingTimeoutTrigger(CountTrigger(3), ms(50), reset_on_element=True, clear_on_timeout=False)
    with WindowHarness(GlobalWindows(), All(), trigger=trigger) as h:
        h.process_element(v(1), None)
        h.set_processing_time(40)
        h.process_element(v(2), None)
        assert seen(h.set_processing_time(89)) == []
        assert seen(h.set_processing_time(90)) == [(1, 2)]
        assert seen(h.process_element(v(3), None)) == [(1, 2, 3)]  # the count went on


def test_purging_keeps_what_the_inner_trigger_remembers() -> None:
    trigger = PurgingTrigger(ProcessingTimeoutTrigger(CountTrigger(2), ms(50), clear_on_timeout=False))
    with WindowHarness(GlobalWindows(), All(), trigger=trigger) as h:
        h.process_element(v(1), None)
        assert seen(h.set_processing_time(50)) == [(1,)]
        assert seen(h.process_element(v(2), None)) == [(2,)]


def test_never() -> None:
    with WindowHarness(EventTimeSessionWindows(ms(5)), All(), trigger=NeverTrigger()) as h:
        h.process_elements([(v(1), 0), (v(2), 8), (v(3), 4)])
        assert h.end_of_input() == []
        assert h.state() == {}


def test_the_end_of_the_stream_comes_after_windows_that_end_before_it() -> None:
    """An end-of-stream trigger is for windows without bounds: what ends earlier is cleaned up before it fires."""
    for assigner, found in ((GlobalWindows(), [(1, 2)]), (TEN, [])):
        with WindowHarness(assigner, All(), trigger=EndOfStreamTrigger()) as h:
            h.process_elements([(v(1), 0), (v(2), 4)])
            assert h.process_watermark(1000) == []
            assert seen(h.end_of_input()) == found


class Remembering(Trigger):
    """Fires when what a session's elements add up to, kept by the trigger, reaches 10; collects values on the way."""

    sum = ReducingStateDescriptor("sum", lambda a, b: a + b)
    values = ListStateDescriptor("values")

    def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        total = ctx.get_partitioned_state(self.sum)
        total.add(value["v"])
        ctx.get_partitioned_state(self.values).add(value["v"])
        ctx.register_event_time_timer(1000)
        ctx.delete_event_time_timer(1000)
        ctx.register_processing_time_timer(1000)
        ctx.delete_processing_time_timer(1000)
        return TriggerResult.FIRE if total.get() >= 10 else TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.sum)
        ctx.merge_partitioned_state(self.values)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(self.sum).clear()
        ctx.get_partitioned_state(self.values).clear()

    def can_merge(self) -> bool:
        return True


def test_a_trigger_of_ones_own_merges_its_state() -> None:
    with WindowHarness(EventTimeSessionWindows(ms(5)), All(), trigger=Remembering()) as h:
        h.process_elements([(v(4), 0), (v(5), 10)])
        assert h.output == []
        h.restore(h.snapshot())
        (out,) = h.process_element(v(1), 5)
        assert sorted(out.value[0]) == [1, 4, 5]
        assert h.state()["trigger:sum"] == {(None, (0, 15)): 10}
        assert {k: sorted(x) for k, x in h.state()["trigger:values"].items()} == {(None, (0, 15)): [1, 4, 5]}
        assert [(t.domain, t.time) for t in h.timers()] == [("event", 14)]  # the clean-up
        h.end_of_input()
        assert (h.state(), h.timers()) == ({}, [])


class MergesAValue(Remembering):
    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(ValueStateDescriptor("v"))


def test_a_value_cannot_be_merged() -> None:
    with WindowHarness(EventTimeSessionWindows(ms(5)), All(), trigger=MergesAValue()) as h:
        h.process_element(v(1), 0)
        with pytest.raises(DefinitionError, match="state 'v' of a trigger cannot be merged"):
            h.process_element(v(1), 3)


def test_a_timer_of_a_window_that_was_merged_away_does_nothing() -> None:
    stray = ValueStateDescriptor("stray")

    class Forgetful(Remembering):
        def on_element(self, value: Any, timestamp: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
            ctx.register_event_time_timer(window.max_timestamp() - 2)
            return TriggerResult.CONTINUE

        def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
            ctx.get_partitioned_state(stray).update(time)
            return TriggerResult.FIRE

    with WindowHarness(EventTimeSessionWindows(ms(5)), All(), trigger=Forgetful()) as h:
        h.process_elements([(v(1), 0), (v(2), 4)])
        # Timers at 2 (of the window that is gone), 6, and the clean-up at 8.
        assert seen(h.process_watermark(2)) == []
        assert "trigger:stray" not in h.state()
        assert seen(h.process_watermark(6)) == [(1, 2)]
        assert seen(h.process_watermark(8)) == [(1, 2)]


def test_merging_leaves_no_timers_of_the_windows_that_are_gone() -> None:
    with WindowHarness(EventTimeSessionWindows(ms(5)), All(), allowed_lateness="2 ms", general=True) as h:
        h.process_elements([(v(1), 0), (v(2), 4), (v(3), 20)])
        assert [(t.time, t.window) for t in h.timers()] == [(8, (0, 9)), (10, (0, 9)), (24, (20, 25)), (26, (20, 25))]


def test_the_clock_does_not_clean_up_windows_of_event_time() -> None:
    with WindowHarness(TEN, All(), trigger=ContinuousProcessingTimeTrigger(ms(100))) as h:
        h.process_element(v(1), 1)
        assert seen(h.set_processing_time(9)) == [
            (1,)
        ]  # the clock is at the window's last timestamp, the watermark is not
        h.process_element(v(2), 2)
        assert seen(h.set_processing_time(109)) == [(1, 2)]


def test_the_end_of_the_input_leaves_the_clock_where_it_is() -> None:
    with WindowHarness(TumblingProcessingTimeWindows(ms(10)), All()) as h:
        h.process_element(v(1), None)
        assert h.end_of_input() == []
        assert [(t.domain, t.time) for t in h.timers()] == [("processing", 9)]
        assert seen(h.set_processing_time(9)) == [(1,)]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CountTrigger(0), "count is 0"),
        (lambda: CountTrigger(True), "count is True"),
        (lambda: PurgingTrigger("count"), "'count' is no trigger"),  # type: ignore[arg-type]
        (lambda: ProcessingTimeoutTrigger(None, "1 s"), "None is no trigger"),  # type: ignore[arg-type]
        (lambda: ProcessingTimeoutTrigger(CountTrigger(1), "0 s"), "timeout is 0 ms"),
        (lambda: ContinuousEventTimeTrigger("0 s"), "interval is 0 ms"),
        (lambda: ContinuousProcessingTimeTrigger("0 s"), "interval is 0 ms"),
        (lambda: DeltaTrigger(1, 5), "5 is no function"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused(make: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        make()
