"""The graph of a job's watermarks, made from its nodes; and what alignment has wait."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from poundlock import (
    DefinitionError,
    FileSink,
    FileSource,
    Job,
    KafkaSource,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.operators.stream_times import StreamTimes
from poundlock.operators.time_graph import Held, TimeGraph, TimeNode, held, held_of_source
from poundlock.operators.time_values import MAX, MIN, UNKNOWN, SourceInput, SplitTimes

STRATEGY = WatermarkStrategy.monotonous(timestamp="ts")
ALIGNED = WatermarkStrategy.bounded_out_of_orderness(timedelta(milliseconds=5)).with_watermark_alignment("g", "100 ms")
SCHEMA = "ts timestamp, user string"


class Marks:
    """Looks at each record."""

    def on_record(self, record: dict[str, Any], timestamp: int, output: Any) -> None:
        output.emit_watermark(timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        pass


def two_sources(job: Job) -> tuple[Any, Any]:
    files = job.from_source(FileSource("/in", format="json", schema=SCHEMA), name="files")
    topic = KafkaSource(bootstrap_servers="b:9092", topics="t", format="json", schema=SCHEMA)
    return files, job.from_source(topic, name="clicks")


def test_the_steps_of_a_job() -> None:
    job = Job("a", on_error="skip")
    files, clicks = two_sources(job)
    timed = files.union(clicks).where("user is not null").assign_timestamps_and_watermarks("ts", STRATEGY, name="time")
    counts = timed.key_by("user").window(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n", name="counts")
    again = counts.assign_timestamps_and_watermarks("event_time", STRATEGY, name="again")
    again.sink_to(FileSink("/out", format="json"), name="out")
    graph = pickle.loads(pickle.dumps(TimeGraph.of(job.sinks)))
    assert [each.id for each in graph.assigners] == ["time", "again"]
    by_id = {node.id: node for node in graph.nodes}
    assert (by_id["time"].sources, by_id["again"].sources) == (("files", "clicks"), (UNKNOWN,))
    assert {each.id for each in graph.nodes if each.is_source} == {"files", "clicks"}
    kept = {each.id for each in graph.nodes if each.kept}
    assert {"time", "counts", "again"} <= kept
    assert "out" not in kept


def test_a_generator_of_each_record_is_refused_where_partitions_are_mixed() -> None:
    strategy = WatermarkStrategy.for_generator(Marks, per_record=True)
    job = Job("a", on_error="skip")
    files, _ = two_sources(job)
    near = files.assign_timestamps_and_watermarks("ts", strategy, name="near")
    assert TimeGraph.of([near.node]).per_record_sources == {"files"}
    counts = near.key_by("user").window(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n", name="counts")
    far = counts.assign_timestamps_and_watermarks("event_time", strategy, name="far")
    with pytest.raises(DefinitionError, match=r"far: a watermark generator of each record behind a step that mixes"):
        TimeGraph.of([far.node])


# --- alignment --------------------------------------------------------------------------------------------------------------


def aligned(strategy: WatermarkStrategy = ALIGNED, **partitions: tuple[str, ...]) -> tuple[StreamTimes, Any]:
    nodes = [node for name in partitions for node in (TimeNode(name, ()), _assigner(name, strategy))]
    times = StreamTimes(TimeGraph(tuple(nodes)))
    inputs = {name: SourceInput(each or None) for name, each in partitions.items()}
    state = times.initial()

    def checkpoint(rows: dict[tuple[str, str], int], now: int = 0, ended: tuple[str, ...] = ()) -> Any:
        nonlocal state
        known = {name: SourceInput(each.partitions, name in ended) for name, each in inputs.items()}
        reports = [SplitTimes(f"{name}-time", name, p, 0, at, 1) for (name, p), at in rows.items()]
        state = times.advance(times.directive(state, now, known), reports).state
        return state

    return times, checkpoint


def _assigner(name: str, strategy: WatermarkStrategy) -> TimeNode:
    return TimeNode(f"{name}-time", (name,), strategy, (name,), kept=True)


def test_partitions_that_are_ahead_of_the_slowest_wait() -> None:
    times, checkpoint = aligned(kafka=("t-0", "t-1"), files=())
    state = checkpoint({("kafka", "t-0"): 1000, ("kafka", "t-1"): 250, ("files", "f"): 200})
    assert held(times.graph, state) == {("kafka-time", "kafka"): Held(False, frozenset({"t-0"}), 700)}
    assert held_of_source(times.graph, state) == {"kafka": Held(False, frozenset({"t-0"}), 700)}
    state = checkpoint({("kafka", "t-1"): 900})
    assert held_of_source(times.graph, state) == {"kafka": Held(True, frozenset({"t-0", "t-1"}), 700)}
    state = checkpoint({("files", "g"): 890})
    assert held_of_source(times.graph, state) == {"kafka": Held(False, frozenset({"t-0"}), 10)}
    state = checkpoint({("files", "h"): 5000})
    assert held_of_source(times.graph, state) == {"files": Held(True, frozenset(), 4000)}


def test_a_partition_of_one_source_waits_for_another_of_the_same() -> None:
    times, checkpoint = aligned(kafka=("t-0", "t-1"))
    state = checkpoint({("kafka", "t-0"): 1000, ("kafka", "t-1"): 200})
    assert held_of_source(times.graph, state) == {"kafka": Held(False, frozenset({"t-0"}), 700)}


def test_all_wait_for_the_first_rows_of_the_last_and_nobody_for_one_that_has_ended() -> None:
    times, checkpoint = aligned(a=("p",), b=("q",))
    state = checkpoint({("a", "p"): 1000})
    assert held_of_source(times.graph, state) == {"a": Held(True, frozenset({"p"}), MAX)}
    state = checkpoint({}, ended=("b",))
    assert state.sources["b-time"]["b"].watermark == MAX
    assert held_of_source(times.graph, state) == {}


def test_nobody_waits_for_a_source_that_fell_silent_and_who_waits_is_not_silent() -> None:
    times, checkpoint = aligned(ALIGNED.with_idleness("20 ms"), fast=("p", "r"), slow=("q",))
    state = checkpoint({("fast", "p"): 1000, ("fast", "r"): 1000, ("slow", "q"): 200})
    for now in (15, 30, 45):
        state = checkpoint({("slow", "q"): 300}, now)
    assert held_of_source(times.graph, state)["fast"].partitions == {"p", "r"}
    assert not state.sources["fast-time"]["fast"].idle, "it is not read, so it is not silent"
    for now in (60, 81):
        state = checkpoint({}, now)
    assert state.sources["slow-time"]["slow"].idle
    assert held_of_source(times.graph, state) == {}
    assert state.streams["slow-time"].watermark == 294 > MIN


def test_no_source_could_wait_where_nobody_knows_which_partition_a_row_is_of() -> None:
    job = Job("a", on_error="skip")
    files, _ = two_sources(job)
    near = files.assign_timestamps_and_watermarks("ts", ALIGNED, name="near")
    assert TimeGraph.of([near.node]).nodes
    far = files.apply(lambda df: df, name="any").assign_timestamps_and_watermarks("ts", ALIGNED, name="far")
    with pytest.raises(DefinitionError, match="far: watermark alignment behind a step that mixes partitions"):
        TimeGraph.of([far.node])


@pytest.mark.parametrize("kind", ["rebalance", "rescale", "partition_custom"])
def test_watermarks_of_partitions_are_refused_where_rows_have_been_placed(kind: str) -> None:
    files, clicks = two_sources(Job("a", on_error="skip"))
    placed = (
        files.partition_custom(lambda key, tasks: 0, "user") if kind == "partition_custom" else getattr(files, kind)()
    )
    for behind in (placed, placed.where("user = 'a'"), clicks.union(placed.map(dict, schema=SCHEMA))):
        with pytest.raises(DefinitionError, match=f"watermarks behind {kind}") as caught:
            behind.assign_timestamps_and_watermarks("ts", STRATEGY)
        assert f"before {kind}" in caught.value.next
    placed.assign_timestamps_and_watermarks(WatermarkStrategy.ingestion_time())
    placed.assign_timestamps_and_watermarks("ts", WatermarkStrategy.no_watermarks())
    before = files.assign_timestamps_and_watermarks("ts", STRATEGY).rebalance()
    counts = before.key_by("user").window(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n")
    counts.assign_timestamps_and_watermarks("window_end", STRATEGY)
