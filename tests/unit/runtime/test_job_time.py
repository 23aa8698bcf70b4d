"""Event time in one life of the query: what Spark is told, what a restart goes on from, and which batches are wanted."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from poundlock import WatermarkStrategy
from poundlock.checkpoint.decision import SourceRange
from poundlock.operators.watermarks import MAX, MIN
from poundlock.plan.event_time import SPLIT_SLOTS, TIME, UNKNOWN, TimeChannel, merged
from poundlock.runtime.job_time import END_MS, JobTime, from_spark, partitions_of, to_spark
from poundlock.runtime.offsets import SparkLog
from poundlock.storage import LocalStorage
from poundlock.values import ManualClock

STRATEGY = WatermarkStrategy.bounded_out_of_orderness(timedelta(milliseconds=5), timestamp="ts")
KAFKA = TimeChannel("time", STRATEGY, ["in"], [("t", 0), ("t", 1)], None)
FILES = TimeChannel("time", STRATEGY, ["in"], None, ["in"])
READ = {"in": SourceRange(None, {"t": {"0": 7, "1": 3}})}


class Spark:
    """Spark's log, and the watermark it plans its next batch with."""

    def __init__(self, folder: Any) -> None:
        self.storage = LocalStorage(str(folder))
        self.log = SparkLog(self.storage)
        self.watermark = 0
        self.batch = -1

    def plan(self) -> int:
        self.batch += 1
        header = json.dumps({"batchWatermarkMs": self.watermark, "conf": {}})
        self.storage.create_exclusive(f"offsets/{self.batch}", f"v2\n{header}\nin:{{}}".encode())
        return self.batch

    def commit(self) -> None:
        text = "v1\n" + json.dumps({"nextBatchWatermarkMs": self.watermark})
        self.storage.create_exclusive(f"commits/{self.batch}", text.encode())


@pytest.fixture
def spark(tmp_path: Any) -> Spark:
    return Spark(tmp_path)


def life(
    spark: Spark, channel: TimeChannel, state: Any = None, clock: Any = None, decided: int | None = None
) -> JobTime:
    def publish(spark_ms: int) -> None:
        spark.watermark = spark_ms

    made = JobTime([channel], {}, spark.log, publish, clock or ManualClock())
    made.begin(state, spark.batch if decided is None else decided)
    return made


def counted(**greatest: int) -> dict[str, str]:
    return {f"{TIME}time/0": json.dumps({f"m{slot[1:]}": value for slot, value in greatest.items()})}


def checkpoint(time: JobTime, spark: Spark, texts: Any, *, ended: bool = False, commit: bool = True) -> Any:
    batch = spark.plan()
    state = time.measure(batch, texts, READ, {"in": ["one", "two"]}, lambda use: ended)
    time.carried(batch, state)
    if commit:
        spark.commit()
    return json.loads(json.dumps(state))


def test_sparks_boundary_is_one_millisecond_later() -> None:
    assert [to_spark(w) for w in (MIN, -5, 0, 9_999, MAX)] == [0, 0, 1, 10_000, END_MS]
    assert [from_spark(ms) for ms in (0, 1, 10_000, END_MS)] == [MIN, 0, 9_999, MAX]
    assert END_MS * 1000 < 2**63


def test_a_slow_partition_holds_sparks_watermark_back(spark: Spark) -> None:
    time = life(spark, KAFKA)
    state = checkpoint(time, spark, counted(_0=1000))
    assert (spark.watermark, state["watermark"], state["held_by"]) == (0, None, {"source": "time", "partition": "t-1"})
    state = checkpoint(time, spark, counted(_1=100))
    assert (state["watermark"], state["in_force"], spark.watermark) == (94, None, 95)
    assert checkpoint(time, spark, {})["in_force"] == 94
    assert time.told(spark.batch) == {"watermark": 94, "watermark_before": MIN}


def test_a_batch_is_measured_once_and_a_restart_goes_on_from_the_decision(spark: Spark) -> None:
    time = life(spark, KAFKA)
    batch = spark.plan()
    first = time.measure(batch, counted(_0=1000, _1=100), READ, {}, lambda use: False)
    assert time.measure(batch, counted(_0=9000, _1=9000), READ, {}, lambda use: False) == first
    spark.commit()  # and the driver died before it told Spark
    again = life(spark, KAFKA, json.loads(json.dumps(first)))
    assert again.watermark == 94
    again.carried(batch, first)
    assert spark.watermark == 95
    assert checkpoint(again, spark, counted(_1=500))["watermark"] == 494


def test_a_checkpoint_without_watermarks_goes_on_from_sparks(spark: Spark) -> None:
    spark.watermark = 5000  # as Spark had measured it
    spark.plan()
    spark.commit()
    time = life(spark, KAFKA, None)
    assert time.watermark == 4999
    assert checkpoint(time, spark, counted(_0=100, _1=100))["watermark"] == 4999, "never back"
    assert checkpoint(time, spark, counted(_0=6000, _1=7000))["watermark"] == 5994


def test_a_batch_that_reads_nothing_is_wanted_as_long_as_time_moves_on(spark: Spark) -> None:
    time = life(spark, FILES)
    checkpoint(time, spark, counted(_0=1000))
    batch = spark.plan()
    assert time.wanted(batch), "windows close in it"
    time.carried(batch, time.measure(batch, {}, {}, {}, lambda use: False))
    spark.commit()
    waiting = spark.plan()
    assert not time.wanted(waiting)
    time.end()
    assert time.wanted(waiting), "so that Spark plans one with the last watermark"


def test_the_end_is_reached_when_a_batch_was_run_with_it(spark: Spark) -> None:
    time = life(spark, FILES)
    state = checkpoint(time, spark, counted(_0=1000), ended=True)
    assert (state["watermark"], state["before_end"], spark.watermark) == (MAX, 994, END_MS)
    assert (time.at_end, time.fired, time.pending) == (True, False, True)
    killed = life(spark, FILES, state)
    assert (killed.at_end, killed.fired) == (True, False), "the last windows are still to be fired"
    state = checkpoint(time, spark, {}, ended=True)
    assert (time.at_end, time.fired, time.pending) == (True, True, False)
    assert state["in_force"] == MAX


def test_a_job_that_goes_on_behind_its_end_goes_on_with_the_watermark_before(spark: Spark) -> None:
    time = life(spark, FILES)
    checkpoint(time, spark, counted(_0=1000))
    checkpoint(time, spark, {}, ended=True)
    state = checkpoint(time, spark, {}, ended=True)
    spark.plan()  # held back by the driver, so it was never run
    again = life(spark, FILES, state, decided=2)
    assert again.watermark == 994
    assert [spark.log.watermark(batch) for batch in range(4)] == [0, 995, 995, 995]
    assert json.loads(spark.storage.read("commits/2").split(b"\n")[1]) == {"nextBatchWatermarkMs": 995}


def test_splits_share_slots_in_the_order_of_their_names() -> None:
    names = [f"f{i:02}" for i in range(SPLIT_SLOTS + 2)]
    assert merged(names[:2]) == ["f00", "f01"]
    found = merged(names)
    assert (len(found), found[0], found[2]) == (SPLIT_SLOTS, "f00 and 1 more", "f02")
    seen = FILES.seen(counted(_0=5, _2=7) | {f"{TIME}other/0": '{"m0": 9}'}, {"in": found})
    assert {name: s.timestamp for name, s in seen.items()} == {"f00 and 1 more": 5, "f02": 7}
    unknown = TimeChannel("time", STRATEGY, ["in"], None, None)
    assert list(unknown.seen({f"{TIME}time/0": '{"m-1": 3}'}, {})) == [UNKNOWN]


def test_new_partitions_are_found_and_other_positions_have_none(spark: Spark) -> None:
    time = life(spark, KAFKA)
    assert not time.lacks(READ)
    assert time.lacks({"in": SourceRange(None, {"t": {"0": 1, "2": 1}})})
    assert partitions_of({"offset": 3}) == partitions_of(17) == []


def test_idleness_moves_on_what_spark_is_told(spark: Spark) -> None:
    clock = ManualClock()
    idle = STRATEGY.with_idleness("1 s")
    time = life(spark, TimeChannel("time", idle, ["in"], [("t", 0), ("t", 1)], None), clock=clock)
    checkpoint(time, spark, counted(_0=1000))
    clock.set(1000)
    time.tick()
    assert spark.watermark == 0
    clock.set(1001)
    time.tick()
    assert spark.watermark == 995
    assert time.pending


def test_sources_that_are_ahead_of_their_group_wait_and_all_do_behind_the_end(spark: Spark) -> None:
    aligned = STRATEGY.with_watermark_alignment("g", "100 ms")
    channels = [TimeChannel(n, aligned, [n], None, [n]) for n in ("a", "b")]
    time = JobTime(channels, {}, spark.log)
    time.begin(None, -1)
    batch = spark.plan()
    texts = {f"{TIME}a/0": '{"m0": 1000}', f"{TIME}b/0": '{"m0": 10}'}
    time.measure(batch, texts, {}, {"a": ["x"], "b": ["y"]}, lambda use: False)
    ranges = {"a": SourceRange(1, 2), "b": SourceRange(1, 2)}
    assert time.held(ranges) == {"a": SourceRange(1, 1), "b": SourceRange(1, 2)}
    time.end()
    assert time.held(ranges) == {"a": SourceRange(1, 1), "b": SourceRange(1, 1)}
