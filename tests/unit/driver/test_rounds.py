"""Checkpoints of several rounds: what they add up to, when they end, and which jobs cannot have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from poundlock import (
    Autoscaler,
    DatagenSource,
    FileSink,
    Job,
    KafkaSink,
    KafkaSource,
    PrintSink,
    SparkSource,
    WatermarkStrategy,
)
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import Counts, Prepared
from poundlock.config import load_settings
from poundlock.driver.planner import CheckpointPlan
from poundlock.driver.rounds import Rounds, joined_plans, joined_results
from poundlock.errors import DefinitionError
from poundlock.plan.guarantees import check_required, guarantees
from poundlock.plan.plan import make_plan


def test_rounds_end_with_the_interval_or_when_somebody_waits() -> None:
    now, awaited, slept = [100.0], [False], list[float]()
    rounds = Rounds(10, lambda: awaited[0], now=lambda: now[0], sleep=slept.append)
    assert rounds.goes_on(100)
    rounds.wait()
    assert slept == [0.01]
    now[0] = 109.9
    assert rounds.goes_on(100)
    awaited[0] = True
    assert not rounds.goes_on(100)
    awaited[0] = False
    now[0] = 110.0
    assert not rounds.goes_on(100)


def plan(*spans: tuple[Any, Any], splits: int) -> CheckpointPlan:
    ranges = {f"s{i}": SourceRange(start, end, {"id": i}) for i, (start, end) in enumerate(spans)}
    return CheckpointPlan(7, ranges, [], dict.fromkeys(ranges, splits))


def test_the_ranges_of_rounds_are_one_range() -> None:
    joined = joined_plans(plan((0, 5), (None, 1), splits=2), plan((5, 9), (1, 1), splits=3))
    assert joined.ranges == {"s0": SourceRange(0, 9, {"id": 0}), "s1": SourceRange(None, 1, {"id": 1})}
    assert joined.splits == {"s0": 5, "s1": 5}


def test_what_rounds_wrote_adds_up_and_what_one_did_not_count_is_not_known() -> None:
    first = TaskResults(
        prepared=[Prepared("out", 0, {"rows": 2})],
        counts={"out": Counts(read=3, filtered=1, written=2)},
        rows_read={"a": 3, "b": 0},
        bytes_read={"a": 30},
        tasks=2,
    )
    second = TaskResults(
        prepared=[Prepared("out", 0, {"rows": 1})],
        counts={"out": Counts(read=1, written=1), "letters": Counts()},
        rows_read={"a": 1, "b": 4},
        bytes_read={"a": 10, "b": 40},
    )
    joined = joined_results(first, second)
    assert [item.payload["rows"] for item in joined.prepared] == [2, 1]
    assert joined.counts == {"out": Counts(read=4, filtered=1, written=3), "letters": Counts()}
    assert (joined.rows_read, joined.bytes_read, joined.tasks) == ({"a": 4, "b": 4}, {"a": 40, "b": 40}, 2)
    assert first.counts["out"] == Counts(read=3, filtered=1, written=2), "what is joined stays as it was"
    third = TaskResults(prepared=[], rows_read={"a": 1})
    assert joined_results(joined, third).bytes_read == {"b": 40}


def alarms(**options: Any) -> Job:
    job = Job("alarms", checkpointing_mode="at-least-once", **options)
    events = job.from_source(KafkaSource(bootstrap_servers="k:9092", topics="events", start="latest"), name="events")
    events.where("value IS NOT NULL").sink_to(KafkaSink("k:9092", "alarms", guarantee="at-least-once"), name="out")
    return job


def test_the_job_says_what_it_promises() -> None:
    job = alarms(checkpoint_interval="5 s", require="at-least-once", on_error="fail")
    check_required(make_plan(job))
    (path,) = guarantees(make_plan(job))
    assert path.guarantee == "at-least-once"
    assert path.reason.endswith("so a crash repeats what was written within 5 s before it")
    assert "checkpoint every 5 s, of as many rounds as fit (AT_LEAST_ONCE)" in job.explain()
    with pytest.raises(DefinitionError, match="at-least-once, and the job requires exactly-once"):
        check_required(make_plan(alarms(require="exactly-once", on_error="fail")))
    settings = load_settings(["execution.checkpointing.mode=AT_LEAST_ONCE"])
    assert settings.checkpointing_mode == "AT_LEAST_ONCE"
    with pytest.raises(DefinitionError, match="use EXACTLY_ONCE or AT_LEAST_ONCE"):
        Job("x", checkpointing_mode="AT_MOST_ONCE")


def with_sink(sink: Any) -> Callable[[], Job]:
    def made() -> Job:
        job = alarms(on_error="fail")
        job.from_source(KafkaSource(bootstrap_servers="k:9092", topics="more"), name="more").sink_to(
            sink, name="more-out"
        )
        return job

    return made


def windowed() -> Job:
    job = Job("w", checkpointing_mode="AT_LEAST_ONCE", on_error="fail")
    events = job.from_source(KafkaSource(bootstrap_servers="k:9092", topics="events"), name="events")
    counted = events.key_by("value").sum("offset", name="counted")
    counted.sink_to(KafkaSink("k:9092", "o", guarantee="at-least-once", format="json"), name="out")
    return job


def late() -> Job:
    job = Job("t", checkpointing_mode="AT_LEAST_ONCE", on_error="fail")
    strategy = WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="timestamp")
    events = job.from_source(KafkaSource(bootstrap_servers="k:9092", topics="events"), name="events")
    timed = events.assign_timestamps_and_watermarks(strategy, name="timed")
    timed.sink_to(KafkaSink("k:9092", "o", guarantee="at-least-once"), name="out")
    return job


def staged() -> Job:
    job = Job("s", checkpointing_mode="AT_LEAST_ONCE", on_error="fail")
    job.from_source(SparkSource("rate"), name="made").sink_to(
        KafkaSink("k:9092", "o", guarantee="at-least-once"), name="out"
    )
    return job


def bounded() -> Job:
    job = Job("b", checkpointing_mode="AT_LEAST_ONCE", on_error="fail")
    made = job.from_source(DatagenSource(count=5), name="made")
    made.sink_to(KafkaSink("k:9092", "o", guarantee="at-least-once"), name="out")
    return job


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (with_sink(KafkaSink("k:9092", "o")), "sink 'more-out' (transactional) shows nothing before the decision"),
        (with_sink(FileSink("out")), "sink 'more-out' (transactional) shows nothing"),
        (with_sink(PrintSink()), "sink 'more-out' (append) shows nothing before the decision"),
        (windowed, "counted keeps state"),
        (late, "the job has watermarks"),
        (staged, "what Spark reads is staged"),
        (bounded, "every source ends"),
        (lambda: alarms(autoscaler=Autoscaler(max_parallelism=4), on_error="fail"), "an autoscaler changes"),
        (lambda: alarms(checkpoint_interval="0 s", on_error="fail"), 'checkpoint_interval is "0 s"'),
        (lambda: alarms(checkpoint_timeout="10 s", on_error="fail"), "checkpoint_timeout is not longer"),
    ],
)
def test_jobs_that_would_gain_nothing_are_refused(made: Callable[[], Job], what: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        check_required(make_plan(made()))
    assert what in refused.value.what
    assert refused.value.next.endswith('leave checkpointing_mode="AT_LEAST_ONCE" out')
    with pytest.raises(DefinitionError):
        made().explain()
