"""Event time between the checkpoints of a job: what is shown of it."""

from __future__ import annotations

from datetime import timedelta

from poundlock import WatermarkStrategy
from poundlock.driver.job_time import JobTime
from poundlock.operators.stream_times import StreamTimes
from poundlock.operators.time_graph import TimeGraph, TimeNode
from poundlock.operators.time_values import MAX, MIN, UNKNOWN, SourceInput, SplitTimes
from poundlock.values import ManualClock

STRATEGY = WatermarkStrategy.bounded_out_of_orderness(timedelta(milliseconds=5), timestamp="at")


def made(clock: ManualClock, *sources: str, strategy: WatermarkStrategy = STRATEGY) -> tuple[JobTime, StreamTimes]:
    nodes = (TimeNode("clicks", ()), TimeNode("time", ("clicks",), strategy, sources, kept=True))
    times = StreamTimes(TimeGraph(nodes))
    return JobTime(times, clock, None, []), times


def said(time: JobTime) -> tuple[int, str | None]:
    """Return the watermark, and who holds it back."""
    return time.watermark, None if time.slowest is None else str(time.slowest.held_by)


def test_the_watermark_stays_known_while_nobody_holds_it_back() -> None:
    clock = ManualClock()
    time, times = made(clock, "clicks", strategy=STRATEGY.with_idleness("20 ms"))
    inputs = {"clicks": SourceInput(("p",), False)}
    assert said(time) == (MIN, None)
    time.checkpointed(times.advance(time.directive(inputs), [SplitTimes("time", "clicks", "p", 0, 100, 1)]))
    assert said(time) == (94, "p of clicks")
    for now in (15, 30, 45):
        clock.set(now)
        time.is_due(inputs, (None, None))
    assert said(time) == (94, None)
    time.checkpointed(times.advance(time.directive({"clicks": SourceInput(("p",), True)})))
    assert said(time) == (MAX, None)


def test_where_no_source_is_known_the_step_that_gives_rows_their_time_holds_the_watermark_back() -> None:
    time, times = made(ManualClock(), UNKNOWN)
    directive = time.directive({"clicks": SourceInput(("p",), False)})
    time.checkpointed(times.advance(directive, [SplitTimes("time", UNKNOWN, UNKNOWN, 0, 100, 1)]))
    assert said(time) == (94, "time")
