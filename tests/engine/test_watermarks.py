"""Watermarks with a real Spark: the boundary to the millisecond, splits of one checkpoint, the end of the input, a drain, a restart."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from poundlock import FileSink, FileSource, Job, TumblingEventTimeWindows, WatermarkStrategy
from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.driver.driver import run
from poundlock.driver.savepoints.restore import Beginning
from poundlock.operators.time_values import MAX
from poundlock.storage import LocalStorage
from support.jobs_in_threads import Running, settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

BASE = 1_545_184_220_000  # a multiple of the window


def put(folder: Path, name: str, *rows: tuple[str, int]) -> None:
    """Write a file of rows (key, time in ms after BASE)."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"k": key, "at": BASE + at}) for key, at in rows]
    hidden = folder / f".{name}"
    hidden.write_text("".join(f"{line}\n" for line in lines))
    hidden.rename(folder / name)


def written(folder: Path) -> dict[tuple[str, int], int]:
    """Return (key, start of the window, s after BASE) -> count; a window is written once."""
    found: dict[tuple[str, int], int] = {}
    for path in sorted(p for p in folder.rglob("part-*") if p.is_file()):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            key = row["k"], row["start"] - BASE // 1000
            assert key not in found, key
            found[key] = row["n"]
    return found


def checkpoints(folder: Path, name: str = "checkpoint") -> list[Decision]:
    records = Ledger(LocalStorage(str(folder / name)))
    return [record for record in records if record.occasion == "checkpoint"]


def counting(folder: Path, strategy: WatermarkStrategy, *, out: str = "out", size: str = "10 s", **source: Any) -> Job:
    job = Job("counting", checkpoint_interval="0 s", on_error="fail")
    read = FileSource(str(folder / "in"), format="json", schema="k string, at bigint", **source)
    rows = job.from_source(read, name="rows").assign_timestamps_and_watermarks(strategy, name="time")
    counts = rows.key_by("k").window(TumblingEventTimeWindows(size)).aggregate("count(*) as n", name="counts")
    shown = counts.select("k", "unix_seconds(window_start) as start", "n")
    shown.sink_to(FileSink(str(folder / out), format="json"), name="out")
    return job


def test_windows_close_and_rows_are_late_at_the_very_millisecond_and_the_end_fires_the_rest(tmp_path: Path) -> None:
    """A checkpoint reads a file; its watermark closes windows in it, and makes rows late in the next one."""
    folder = tmp_path / "in"
    files: list[tuple[str, int]] = [
        ("a", 5_000),
        ("mark", 9_999),  # watermark 9 998: a window that ends at 10 000 has its last millisecond yet to come
        ("mark", 9_999),
        ("b", 1),
        ("mark", 10_000),  # 9 999 is the last millisecond of that window
        ("mark", 10_000),
        ("late", 9_999),
        ("mark", 10_000),
    ]
    for number, row in enumerate(files):
        put(folder, f"{number}.jsonl", row)
    strategy = WatermarkStrategy.monotonous(timestamp="at")
    job = counting(tmp_path, strategy, max_files_per_checkpoint=1)
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"

    first = {("a", 0): 1, ("b", 0): 1, ("mark", 0): 2}
    assert written(tmp_path / "out") == {**first, ("mark", 10): 3}
    records = checkpoints(tmp_path)
    assert [r.sinks["out"].counts.late for r in records] == [1 if n == 6 else 0 for n in range(len(records))]
    assert [r.sinks["out"].counts.written for r in records[:6]] == [0, 0, 0, 0, 3, 0]
    behind = [4_999, 9_998, 9_998, 9_998, 9_999, 9_999, 9_999, MAX - BASE]
    assert [r.watermarks and r.watermarks.watermark - BASE for r in records] == behind
    assert records[4].watermarks is not None
    assert records[4].watermarks.held_by is not None
    assert records[4].watermarks.held_by.source == "rows"
    assert [r.event_time and r.event_time.watermark_ms for r in records[1:]] == [BASE + w for w in behind[:-1]]
    last = records[-1].watermarks
    assert last is not None
    assert last.state.streams["time"].before_end == BASE + 9_999


def test_the_slower_of_two_files_holds_back_a_drain_fires_all_and_a_restore_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    put(folder, "fast.jsonl", ("a", 1_000), ("a", 95_000))
    put(folder, "slow.jsonl", ("a", 2_000), ("a", 32_000))

    def at(record: dict[str, Any]) -> int:
        return int(record["at"])

    strategy = WatermarkStrategy.bounded_out_of_orderness("2 s").with_timestamp_assigner(at)
    running = Running(counting(tmp_path, strategy, watch=True, split_size="1 KB"), settings(tmp_path))
    running.until(lambda: running.progress.watermark is not None)
    assert running.progress.watermark == BASE + 32_000 - 2_000 - 1
    assert running.progress.held_by is not None
    assert "slow.jsonl" in running.progress.held_by
    saving = running.requests.trigger("savepoint", directory=str(tmp_path / "saved"), then="stop", drain=True)
    running.end()
    assert saving.location is not None, saving.failure
    assert written(tmp_path / "out") == {("a", 0): 2, ("a", 30): 1, ("a", 90): 1}

    put(folder, "later.jsonl", ("late", 29_000), ("b", 31_000), ("a", 33_000), ("b", 200_000), ("b", 200_001))
    go_on = counting(tmp_path, strategy, out="restored", watch=True, split_size="1 KB")
    beginning = Beginning(str(saving.location))
    restored = Running(go_on, settings(tmp_path, "second"), beginning=beginning)
    restored.until(lambda: restored.progress.watermark == BASE + 198_000)
    restored.until(lambda: bool(list((tmp_path / "restored").rglob(".part-*"))))
    restored.stop.stop()
    restored.end()
    # The watermark before the drain, 29 999, is in use again; a window that the drain fired has nothing of its rows.
    assert written(tmp_path / "restored") == {("a", 30): 1, ("b", 30): 1}
    assert sum(record.sinks["out"].counts.late for record in checkpoints(tmp_path, "second")) == 1


def test_windows_of_ingestion_time_close_by_the_clock_and_then_nothing_more_happens(tmp_path: Path) -> None:
    put(tmp_path / "in", "one.jsonl", ("a", 1), ("a", 2), ("b", 3))
    job = counting(tmp_path, WatermarkStrategy.ingestion_time(), size="1 s", watch=True)
    running = Running(job, settings(tmp_path))
    running.until(lambda: any(record.sinks["out"].counts.written for record in checkpoints(tmp_path)))
    running.until(lambda: running.progress.state_bytes is not None)
    time.sleep(2)  # with windows open the clock closes them; without, it has no checkpoint taken
    before = checkpoints(tmp_path)
    time.sleep(2)
    assert len(checkpoints(tmp_path)) == len(before)
    running.stop.stop()
    running.end()
    assert sorted((key, n) for (key, _), n in written(tmp_path / "out").items()) == [("a", 2), ("b", 1)]
    assert sum(record.sinks["out"].counts.late for record in before) == 0


def test_a_source_that_is_ahead_of_its_group_waits_and_the_least_of_both_is_the_jobs(tmp_path: Path) -> None:
    """Both sources have a file a checkpoint; one goes on by a minute with each, the other by ten seconds."""
    step = {"fast": 60_000, "slow": 10_000}
    for name, files in (("fast", 5), ("slow", 9)):
        for number in range(files):
            put(tmp_path / name, f"{number}.jsonl", (name, step[name] * number))
    aligned = WatermarkStrategy.monotonous(timestamp="at").with_watermark_alignment("g", "30 s")
    job = Job("aligned", checkpoint_interval="0 s", on_error="fail")
    fast, slow = (
        job.from_source(
            FileSource(str(tmp_path / name), format="json", schema="k string, at bigint", max_files_per_checkpoint=1),
            aligned,
            name=name,
        )
        for name in step
    )
    counts = fast.union(slow).key_by("k").window(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n", name="n")
    shown = counts.select("k", "unix_seconds(window_start) as start", "n")
    shown.sink_to(FileSink(str(tmp_path / "out"), format="json"), name="out")
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"

    read, waited = {"fast": 0, "slow": 0}, 0
    for record in checkpoints(tmp_path):
        now = {name for name in step if record.sources[name].start != record.sources[name].end}
        if min(read.values()) and read["slow"] < 9:
            ahead = step["fast"] * (read["fast"] - 1) - step["slow"] * (read["slow"] - 1)
            assert ("fast" in now) == (ahead <= 30_000 and read["fast"] < 5), (read, now)
            waited += "fast" not in now
        for name in now:
            read[name] += 1
        if read["slow"] < 9:
            least = min(step[name] * (read[name] - 1) for name in step)
            assert record.watermarks is not None
            assert record.watermarks.watermark == BASE + least - 1
    assert read == {"fast": 5, "slow": 9}
    assert waited > 3
    expected = {("fast", 60 * n): 1 for n in range(5)} | {("slow", 10 * n): 1 for n in range(9)}
    assert written(tmp_path / "out") == expected


class Behind:
    """A user's generator: a millisecond behind for every row of the checkpoint."""

    def on_event(self, timestamp: int, count: int, output: Any) -> None:
        output.emit_watermark(timestamp - count)

    def on_periodic_emit(self, output: Any) -> None:
        pass


def test_a_users_generator_is_told_what_spark_counted(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    put(folder, "0.jsonl", ("a", 5_000))
    put(folder, "1.jsonl", ("a", 13_000), ("b", 12_000), ("b", 11_000))
    put(folder, "2.jsonl", ("a", 14_000))
    job = counting(tmp_path, WatermarkStrategy.for_generator(Behind, timestamp="at"), max_files_per_checkpoint=1)
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    marks = [record.watermarks and record.watermarks.watermark - BASE for record in checkpoints(tmp_path)]
    assert marks[:2] == [4_999, 12_997]
    assert written(tmp_path / "out") == {("a", 0): 1, ("a", 10): 2, ("b", 10): 2}


def test_the_end_of_the_input_is_no_end_of_processing_time(tmp_path: Path) -> None:
    put(tmp_path / "in", "0.jsonl", ("a", 1))
    assert run(counting(tmp_path, WatermarkStrategy.processing_time(), size="50000 h"), settings=settings(tmp_path))
    assert written(tmp_path / "out") == {}
    (tmp_path / "checkpoint").rename(tmp_path / "first")
    assert run(counting(tmp_path, WatermarkStrategy.ingestion_time(), size="50000 h"), settings=settings(tmp_path))
    assert [key for key, _ in written(tmp_path / "out")] == ["a"], "it is one of ingestion time"
