"""Event time between the checkpoints of a job: what is shown of it."""

from __future__ import annotations

from datetime import timedelta

from poundlock import WatermarkStrategy
from poundlock.checkpoint.capabilities import SinkTime
from poundlock.driver.job_time import JobTime
from poundlock.operators.stream_times import StreamTimes
from poundlock.operators.time_graph import TimeGraph, TimeNode
from poundlock.operators.time_values import MAX, MIN, UNKNOWN, SourceInput, SplitTimes, shown
from poundlock.values import ManualClock

STRATEGY = WatermarkStrategy.bounded_out_of_orderness(timedelta(milliseconds=5), timestamp="at")


def made(clock: ManualClock, *sources: str, strategy: WatermarkStrategy = STRATEGY) -> tuple[JobTime, StreamTimes]:
    nodes = (TimeNode("clicks", ()), TimeNode("time", ("clicks",), strategy, sources, kept=True))
    times = StreamTimes(TimeGraph(nodes))
    return JobTime(times, clock, None, []), times


def said(time: JobTime) -> tuple[int, str | None]:
    """Return the watermark, and who holds it back."""
    return time.slowest.after, None if time.slowest.held_by is None else str(time.slowest.held_by)


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


def test_a_checkpoint_is_taken_for_a_sink_whose_watermark_has_come() -> None:
    clock = ManualClock()
    nodes = (
        TimeNode("clicks", ()),
        TimeNode("time", ("clicks",), STRATEGY.with_idleness("20 ms"), ("clicks",), kept=True),
        TimeNode("out", ("time",)),
    )
    times = StreamTimes(TimeGraph(nodes))
    time, inputs = JobTime(times, clock, None, []), {"clicks": SourceInput(("p",), False)}
    advanced = times.advance(time.directive(inputs), [SplitTimes("time", "clicks", "p", 0, 100, 1)])
    assert time.of_sinks(advanced, ["out", "dead-letter"]) == {"out": SinkTime(94)}
    time.checkpointed(advanced)
    assert [time.is_due(inputs, (None, None), {"out": at}) for at in (95, 94)] == [False, True]
    ended = {"clicks": SourceInput(("p",), True)}
    assert time.is_due(ended, (None, None), {"out": MAX})
    assert time.of_sinks(times.advance(time.directive(ended)), ["out"]) == {"out": SinkTime(MAX, ended=True)}


def test_where_no_source_is_known_the_step_that_gives_rows_their_time_holds_the_watermark_back() -> None:
    time, times = made(ManualClock(), UNKNOWN)
    directive = time.directive({"clicks": SourceInput(("p",), False)})
    time.checkpointed(times.advance(directive, [SplitTimes("time", UNKNOWN, UNKNOWN, 0, 100, 1)]))
    assert said(time) == (94, "time")


def test_what_is_shown_of_a_union_is_what_its_rows_are_judged_by_and_never_goes_back() -> None:
    """A source that woke up far behind was shown, though the rows of the union were late by the watermark before."""
    clock = ManualClock()
    idle = STRATEGY.with_idleness("20 ms")
    nodes = [TimeNode(name, ()) for name in ("a", "b", "untimed")]
    nodes += [TimeNode(f"{name}-time", (name,), idle, (name,), kept=True) for name in ("a", "b")]
    nodes += [
        TimeNode("both", ("a-time", "b-time"), kept=True),
        TimeNode("out", ("both",)),
        TimeNode("raw", ("untimed",)),
    ]
    times = StreamTimes(TimeGraph(tuple(nodes)))
    time = JobTime(times, clock, None, [])
    inputs = {name: SourceInput(("p",), False) for name in ("a", "b", "untimed")}

    def checkpoint(source: str, at: int) -> tuple[int | None, tuple[int, str | None]]:
        directive = time.directive(inputs)
        reports = [SplitTimes(f"{source}-time", source, "p", 0, at, 1)]
        advanced = times.advance(directive, reports)
        seen, decided = time.seen(advanced, []), time.decided(directive, advanced)
        time.checkpointed(advanced)
        assert seen is not None
        assert decided is not None
        assert (decided.watermark, decided.held_by) == (shown(time.slowest.after), time.slowest.held_by)
        return seen.watermark_ms, said(time)

    assert checkpoint("a", 1000) == (None, (MIN, "p of b"))
    for now in (15, 30, 45):
        clock.set(now)
        time.is_due(inputs, (None, None))
    assert checkpoint("a", 9000) == (994, (8994, "p of a"))
    assert checkpoint("b", 100) == (8994, (8994, "p of b"))
