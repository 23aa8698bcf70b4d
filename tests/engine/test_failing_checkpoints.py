"""Checkpoints that fail: what our operators keep goes on, what Spark keeps too, and a DataFrame function starts over.

The failpoints reach the tasks through the environment of a JVM, so each test starts its own.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from poundlock import (
    DatagenSource,
    FileSink,
    FixedDelayRestart,
    Job,
    SparkSource,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.driver.failure_record import read_failures
from poundlock.failpoints import Failpoint
from poundlock.metrics.timeline import PHASES
from poundlock.storage import open_storage
from support.finished import assert_ledger_adds_up, rows
from support.lives import failpoint_setting

pytestmark = pytest.mark.engine


def settings(tmp_path: Path) -> Any:
    return load_settings(
        [f"state_dir={tmp_path}/state", f"checkpoint_dir={tmp_path}/checkpoint", "master=local[2]",
         "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"]
    )  # fmt: skip


def ten_seconds(frame: Any) -> Any:
    from pyspark.sql import functions as F

    windows = frame.groupBy(F.window("ts", "10 seconds"))
    return windows.count().selectExpr("unix_timestamp(window.start) as start", "count as n")


def ten_seconds_of_a_stream(frame: Any) -> Any:
    return ten_seconds(frame.withWatermark("ts", "0 seconds"))


def failing_four_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Have a job fail once at each of four points of a checkpoint; returns their names."""
    points = [
        Failpoint.SINK_PREPARED,
        Failpoint.PREPARE_VERIFIED,
        Failpoint.DECISION_RECORDED,
        Failpoint.CHECKPOINT_DONE,
    ]
    monkeypatch.setenv("POUNDLOCK_FAILPOINTS", failpoint_setting("raise", tmp_path / "hit", times=4, points=points))
    return {point.value for point in points}


def windows_job() -> Job:
    return Job(
        "windows",
        checkpoint_interval="0 s",
        on_error="skip",
        restart=FixedDelayRestart(attempts=9, delay="100 ms"),
        spark={"spark.sql.shuffle.partitions": "1"},
    )


def test_windows_survive_a_checkpoint_that_fails_and_a_function_has_the_rows_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows of 400 rows over checkpoints of 300: ours go on from one to the next, a DataFrame function starts over."""
    points = failing_four_times(tmp_path, monkeypatch)
    job = windows_job()
    made = job.from_source(DatagenSource("ts timestamp", count=1800, rows_per_checkpoint=300), name="made")
    moved = made.with_column("ts", "timestamp_millis(1545184220000 + 25 * (unix_millis(ts) - 1545184226432))")
    timed = moved.assign_timestamps_and_watermarks(WatermarkStrategy.monotonous(timestamp="ts"), name="time")
    windows = timed.window_all(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n", name="windows")
    windows.select("unix_seconds(window_start) as start", "n").sink_to(
        FileSink(f"{tmp_path}/kept", format="json"), name="kept"
    )
    moved.apply(ten_seconds, name="parts").sink_to(FileSink(f"{tmp_path}/parts", format="json"), name="parts-out")
    progress = run(job, settings=settings(tmp_path))
    assert (progress.state, progress.restarts) == ("FINISHED", 4)
    assert {path.name for path in (tmp_path / "hit").iterdir()} == points
    failed = progress.newest_failed
    assert {each.phase for each in failed} >= {"run", "verify"}, "the others have failed beside a commit, or in it"
    assert 2 <= progress.failed_checkpoints == len(failed) <= 4 == progress.all_restarts
    job_id = json.loads((tmp_path / "checkpoint" / "job.json").read_text())["job_id"]
    kept_record = read_failures(open_storage(f"{tmp_path}/checkpoint"), job_id)
    assert (kept_record.checkpoints, kept_record.restarts) == (len(failed), 4)
    operators, tasks = progress.load.operators, progress.load.tasks
    assert (operators["made"].rows_out, operators["kept"].rows_out) == (1800, 5)
    assert operators["windows"].bytes_in
    assert all(each.busy_ms > 0 for each in operators.values())
    assert sum(task.rows_in for task in tasks if task.stage == 0) == 1800
    assert all(task.took_ms > 0 for task in tasks)
    assert progress.load.phases_ms.keys() == set(PHASES)
    assert progress.load.sinks["parts-out"].committables > 0, "at the end, too"
    assert progress.load.worker_memory_bytes is not None
    start = 1545184220
    kept = sorted((row["start"], row["n"]) for row in rows(tmp_path / "kept"))
    assert kept == [(start + 10 * n, 400) for n in range(4)] + [(start + 40, 200)], "the end fires the fifth"
    parts = Counter((start + 10 * (i // 400), i // 300) for i in range(1800))
    assert Counter((row["start"], row["n"]) for row in rows(tmp_path / "parts")) == Counter(
        (window, n) for (window, _), n in parts.items()
    )
    assert_ledger_adds_up(tmp_path, {"kept": 5, "parts-out": len(parts)})


def test_what_spark_keeps_survives_a_checkpoint_that_is_delivered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a source that Spark reads a function is given the stream, so it may keep windows from one checkpoint to the next."""
    points = failing_four_times(tmp_path, monkeypatch)
    (tmp_path / "in").mkdir()
    for number in range(15):
        path = tmp_path / "in" / f"{number:02}.txt"
        path.write_text("".join(f"{1545184220000 + 10 * i}\n" for i in range(300 * number, 300 * (number + 1))))
        os.utime(path, (1545184220 + number, 1545184220 + number))  # the order in which Spark reads them
    job = windows_job()
    source = SparkSource("text", {"maxFilesPerTrigger": 1}, path=f"{tmp_path}/in", schema="value string", bounded=True)
    timed = job.from_source(source, name="text").select("timestamp_millis(CAST(value AS BIGINT)) as ts")
    timed.apply(ten_seconds_of_a_stream, name="windows").sink_to(FileSink(f"{tmp_path}/out", format="json"), name="out")
    progress = run(job, settings=settings(tmp_path))
    assert (progress.state, progress.restarts) == ("FINISHED", 4)
    assert {path.name for path in (tmp_path / "hit").iterdir()} == points
    found = rows(tmp_path / "out")
    assert [row["n"] for row in sorted(found, key=lambda row: row["start"])] == [1000] * 4, (
        "the fifth window stays open"
    )
