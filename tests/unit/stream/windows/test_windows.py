"""Windows and watermarks as the user writes them: what is refused, and how they are said."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from poundlock import (
    DefinitionError,
    EventTimeSessionWindows,
    FileSink,
    FileSource,
    Job,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.plan.explain import explain_json
from poundlock.plan.plan import make_plan
from poundlock.stream.nodes import WatermarkNode

BY_TS = WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="timestamp_seconds(ts)")


def test_they_say_what_they_are() -> None:
    assert TumblingEventTimeWindows("1 min").describe() == "tumbling windows of 1 min"
    assert TumblingEventTimeWindows("1 d", offset="-8 h").describe() == "tumbling windows of 1 d, moved by -8 h"
    assert SlidingEventTimeWindows("1 min", "10 s").describe() == "sliding windows of 1 min every 10 s"
    assert EventTimeSessionWindows(timedelta(minutes=30)).describe() == "session windows with a gap of 30 min"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TumblingEventTimeWindows("0 s"), "size is "),
        (
            lambda: SlidingEventTimeWindows("10 s", "5 s", "5 s"),
            "an offset of 5 s moves windows by more than their slide",
        ),
        (lambda: TumblingEventTimeWindows("10 s", "-10 s"), "an offset of -10 s moves windows by more than their size"),
        (lambda: EventTimeSessionWindows("0 s"), "gap is "),
        (lambda: WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp=" "), "needs to know the time of a row"),
        (lambda: Job("a").from_source(FileSource("/in")).key_by(), "key_by needs Spark SQL text"),
        (lambda: Job("a").from_source(FileSource("/in")).key_by("k").window("1 min"), "is no window assigner"),
        (
            lambda: Job("a").from_source(FileSource("/in")).window_all(TumblingEventTimeWindows("1 s")),
            "a window needs event time, and no watermark is assigned before it",
        ),
        (
            lambda: Job("a").from_source(FileSource("/in")).assign_timestamps_and_watermarks("ts"),  # type: ignore[arg-type]
            "'ts' is no watermark strategy",
        ),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(make: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        make()


def test_streams_with_unlike_event_time_columns_are_refused() -> None:
    job = Job("a")
    other = WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="ts", column="at")
    both = (
        job.from_source(FileSource("/a"))
        .assign_timestamps_and_watermarks(BY_TS)
        .union(job.from_source(FileSource("/b")).assign_timestamps_and_watermarks(other))
    )
    with pytest.raises(DefinitionError, match="in different columns: at, event_time"):
        both.window_all(TumblingEventTimeWindows("1 s"))


def test_windows_are_of_a_stage_by_key_and_what_follows_is_in_it() -> None:
    job = Job("a", on_error="skip")
    timed = job.from_source(
        FileSource("/in", format="json", schema="ts bigint, event string"), name="in"
    ).assign_timestamps_and_watermarks(BY_TS, name="time")
    counts = timed.key_by("event").window(TumblingEventTimeWindows("1 min")).aggregate("count(*) as n", name="counts")
    counts.map(lambda r: r, schema="event string, n bigint", name="plain").sink_to(FileSink("/out"), name="out")
    assert make_plan(job).keyed
    assert [(stage["kind"], len(stage["tasks"])) for stage in explain_json(job)["stages"]] == [
        ("source", 2),
        ("keyed", 3),
    ]
    text = job.explain()
    assert "time: event time timestamp_seconds(ts) as event_time, at most 5 s late <- in" in text
    assert "counts: by event, tumbling windows of 1 min: count(*) as n, by columns <- time" in text


def test_a_job_with_row_wise_steps_only_keeps_nothing() -> None:
    job = Job("a", on_error="skip")
    timed = job.from_source(FileSource("/in"), name="in").assign_timestamps_and_watermarks(BY_TS)
    timed.sink_to(FileSink("/out", format="json"), name="out")
    assert not make_plan(job).keyed


def test_the_time_of_a_row_is_said_with_the_strategy_or_beside_it() -> None:
    job = Job("a", on_error="skip")
    source = job.from_source(FileSource("/in"), name="in")
    beside = source.assign_timestamps_and_watermarks("ts", WatermarkStrategy.monotonous().with_idleness("1 min"))
    of_source = job.from_source(FileSource("/in"), BY_TS, name="other")
    for stream, said in (
        (beside, "event time ts as event_time, in order, idle after 1 min"),
        (of_source, "event time timestamp_seconds(ts) as event_time, at most 5 s late"),
    ):
        assert isinstance(stream.node, WatermarkNode)
        assert stream.node.strategy.describe() == said
    assert of_source.node.id == "other-time"
    with pytest.raises(DefinitionError, match="needs to know the time of a row"):
        source.assign_timestamps_and_watermarks(WatermarkStrategy.monotonous())
