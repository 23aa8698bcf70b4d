"""One meaning, however a job runs: windows give the same rows for the same input in our tasks and in a Spark streaming query.

Sources of ours run in our tasks. A source that Spark reads runs in a streaming query, where windows are of Spark's own operators
or, if more is said of them, of ours with Spark keeping the state.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poundlock import (
    DataStream,
    EventTimeSessionWindows,
    FileSink,
    FileSource,
    Job,
    SlidingEventTimeWindows,
    SparkSource,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.driver.driver import run
from poundlock.errors import TerminalError
from poundlock.storage import LocalStorage
from support.jobs_in_threads import settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

BASE = 1_545_184_220_000
AGGREGATES = (
    "count(*) as rows",
    "count(n) as some",
    "sum(n) as n",
    "sum(price) as price",
    "min(price) as least",
    "max(word) as word",
    "avg(n) as mean",
    "avg(price) as fair",
    "sum(n * 2 + 1) as more",
)
WINDOWS: dict[str, Any] = {
    "tumbling": TumblingEventTimeWindows("7 s", "-2 s"),
    "sliding": SlidingEventTimeWindows("10 s", "3 s"),
}
SPARKS = {"tumbling": ("7 seconds", "7 seconds", "5 seconds"), "sliding": ("10 seconds", "3 seconds", "0 seconds")}
"""The same as Spark says it: size, slide, and where the first window begins."""
SCHEMA = "at bigint, k string, n bigint, price decimal(12,2), word string"
TIMELESS = ({"k": "a", "n": 1}, {"k": "a", "n": 1, "at": 1 << 60})


def put(folder: Path, made: random.Random) -> None:
    """Write six files of rows, and behind each a file of one row that moves no watermark.

    Spark judges whether a row is late by the watermark of the batch before the last, we by that of the last. Here they are the same.
    """
    folder.mkdir()
    newest = BASE
    for number in range(6):
        rows = []
        for _ in range(60):
            at = BASE + 6_000 * number + made.randrange(6_000) - made.choice([0, 0, 0, 3_000, 25_000])
            newest = max(newest, at)
            row = {
                "at": at,
                "k": made.choice(["a", "b", "c", None]),
                "n": made.choice([None, 0, -5, 7, 1 << 40]),
                "price": made.choice([None, "0.10", "12345.67", "-3.33"]),
                "word": made.choice([None, "", "x", "größe"]),
            }
            rows.append(json.dumps({name: value for name, value in row.items() if value is not None}) + "\n")
        rows += [json.dumps(row) + "\n" for row in TIMELESS]
        behind = json.dumps({"at": newest, "k": "a"}) + "\n"
        for place, (name, text) in enumerate(((f"{number}", "".join(rows)), (f"{number}-behind", behind))):
            path = folder / f"{name}.jsonl"
            path.write_text(text)
            second = BASE // 1000 + 2 * number + place  # the order in which Spark reads them
            os.utime(path, (second, second))


def written(folder: Path) -> Counter[str]:
    files = (p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return Counter(line for p in files for line in p.read_text().splitlines())


def late(checkpoint: Path, sink: str) -> int:
    """Return how many rows of a sink were dropped as late, as the ledger has it."""
    records = Ledger(LocalStorage(str(checkpoint)))
    return sum(record.sinks[sink].counts.late for record in records if record.occasion == "checkpoint")


def windows_of(rows: DataStream, folder: Path, way: str) -> None:
    for name, windows in WINDOWS.items():
        counts = rows.key_by("k", "n % 2 as odd").window(windows).aggregate(*AGGREGATES, name=f"{name}-{way}")
        counts.sink_to(FileSink(str(folder / way / name), format="json"), name=f"{name}-{way}-out")


class SparksOwn:
    """Spark's own windows over a stream, with the columns of ours.

    Args:
        windows: size, slide and start, as Spark says them.
    """

    def __init__(self, *windows: str) -> None:
        self._windows = windows

    def __call__(self, frame: Any) -> Any:
        from pyspark.sql import functions as F

        timed = frame.withColumn("event_time", F.expr("timestamp_millis(at)")).withWatermark("event_time", "2 seconds")
        windows = F.window("event_time", *self._windows)
        counts = timed.groupBy(windows, "k", F.expr("n % 2 as odd")).agg(*map(F.expr, AGGREGATES))
        names = [text.rpartition(" as ")[2] for text in AGGREGATES]
        return counts.selectExpr("k", "odd", "window.start as window_start", "window.end as window_end", *names)


def test_every_way_gives_the_same(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    put(tmp_path / "in", random.Random(seed))
    strategy = WatermarkStrategy.bounded_out_of_orderness("2 s", timestamp="at")

    ours = Job("ours", checkpoint_interval="0 s", dead_letters=str(tmp_path / "dead"))
    source = FileSource(str(tmp_path / "in"), format="json", schema=SCHEMA, max_files_per_checkpoint=1)
    windows_of(ours.from_source(source, strategy, name="rows"), tmp_path, "tasks")
    progress = run(ours, settings=settings(tmp_path, "tasks-checkpoint"))
    assert progress.state == "FINISHED"
    dead = [json.loads(line) for line in written(tmp_path / "dead").elements()]
    # A row is read once, whatever hangs on it, so it is one dead letter.
    assert len(dead) == progress.dead_lettered == 6 * len(TIMELESS)
    assert {letter["reason"].split(" in at: ")[0] for letter in dead} == {
        "rows-time: a row without a usable event time"
    }
    assert {Path(letter["file"]).name for letter in dead} == {f"{number}.jsonl" for number in range(6)}
    assert len({(letter["file"], letter["offset"]) for letter in dead}) == len(dead)

    staged = Job("staged", checkpoint_interval="0 s", dead_letters=str(tmp_path / "staged-dead"))
    read = SparkSource("json", {"maxFilesPerTrigger": 1}, path=str(tmp_path / "in"), schema=SCHEMA, bounded=True)
    windows_of(staged.from_source(read, strategy, name="rows"), tmp_path, "staged")
    assert run(staged, settings=settings(tmp_path, "staged-checkpoint")).state == "FINISHED"
    assert len(list(written(tmp_path / "staged-dead").elements())) == 6 * len(TIMELESS)

    query = Job("query", checkpoint_interval="0 s", on_error="fail")
    for name, said in SPARKS.items():
        rows = query.from_source(read, name=f"rows-{name}").where("at < 1L << 59")
        counts = rows.apply(SparksOwn(*said), name=name)
        counts.sink_to(FileSink(str(tmp_path / "spark" / name), format="json"), name=f"{name}-out")
    assert run(query, settings=settings(tmp_path, "query-checkpoint")).state == "FINISHED"

    for name in WINDOWS:
        found = written(tmp_path / "tasks" / name)
        assert found, name
        others = written(tmp_path / "staged" / name)
        assert not (found - others) + (others - found), f"seed {seed}, {name}"
        if name not in SPARKS:
            continue
        # Spark fires no window at the end of its input.
        sparks = written(tmp_path / "spark" / name)
        last = max(json.loads(line)["window_end"] for line in sparks)
        fired = Counter({line: n for line, n in found.items() if json.loads(line)["window_end"] <= last})
        assert sum(sparks.values()) > 20, name
        assert not (fired - sparks) + (sparks - fired), f"seed {seed}, {name}"
    counted = sum(json.loads(line)["rows"] for line in written(tmp_path / "tasks/tumbling").elements())
    for way in ("tasks", "staged"):
        assert 0 < late(tmp_path / f"{way}-checkpoint", f"tumbling-{way}-out") == 6 * 61 - counted, f"seed {seed}"


def test_a_late_row_next_to_a_session_that_is_open_belongs_to_it(tmp_path: Path) -> None:
    """A row is judged after merging, as in Flink. Spark's own sessions drop it before, so they are not used."""
    files = (
        [("a", 100_000), ("mark", 107_001)],  # the watermark behind this is 105 000: the session of "a" is open
        [("mark", 107_001)],
        [("mark", 107_001)],
        [("a", 92_000), ("b", 92_000)],  # by itself each ends at 101 999
    )
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(files):
        text = "".join(json.dumps({"k": k, "at": BASE + at}) + "\n" for k, at in rows)
        (tmp_path / f"in/{number}.jsonl").write_text(text)
    job = Job("sessions", checkpoint_interval="0 s", on_error="fail")
    source = FileSource(str(tmp_path / "in"), format="json", schema="k string, at bigint", max_files_per_checkpoint=1)
    rows = job.from_source(source, WatermarkStrategy.bounded_out_of_orderness("2 s", timestamp="at"), name="rows")
    counts = rows.key_by("k").window(EventTimeSessionWindows("10 s")).aggregate("count(*) as n", "min(at) as first")
    counts.sink_to(FileSink(str(tmp_path / "out"), format="json"), name="out")
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    found = [json.loads(line) for line in written(tmp_path / "out").elements()]
    assert {(row["k"], row["first"] - BASE): row["n"] for row in found} == {("a", 92_000): 2, ("mark", 107_001): 3}
    assert late(tmp_path / "checkpoint", "out") == 1


def timeless(folder: Path) -> None:
    (folder / "in").mkdir()
    times = pa.array([BASE, None], pa.int64())
    pq.write_table(pa.table({"at": times, "k": ["a", "b"]}), folder / "in/0.parquet")


def test_a_row_without_event_time_fails_the_job_where_the_user_wants_that(tmp_path: Path) -> None:
    timeless(tmp_path)
    job = Job("timeless", checkpoint_interval="0 s", on_error="fail")
    source = FileSource(str(tmp_path / "in"), format="parquet", schema="at bigint, k string")
    rows = job.from_source(source, WatermarkStrategy.monotonous(timestamp="at"), name="rows")
    counts = rows.key_by("k").window(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n")
    counts.sink_to(FileSink(str(tmp_path / "out"), format="json"), name="out")
    where = r"bad record at source rows-time, file .*/in/0\.parquet, offset 1: rows-time: "
    with pytest.raises(TerminalError, match=where + "a row without a usable event time in at: it is null") as failed:
        run(job, settings=settings(tmp_path))
    assert failed.value.next is not None
    assert 'on_error="dead_letter"' in failed.value.next
    assert not written(tmp_path / "out")


def test_a_row_of_sparks_without_event_time_is_a_bad_record_too(tmp_path: Path) -> None:
    timeless(tmp_path)
    job = Job("timeless", checkpoint_interval="0 s", on_error="fail")
    source = SparkSource("parquet", path=str(tmp_path / "in"), schema="at bigint, k string", bounded=True)
    rows = job.from_source(source, WatermarkStrategy.monotonous(timestamp="at"), name="rows")
    counts = rows.key_by("k").window(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n")
    counts.sink_to(FileSink(str(tmp_path / "out"), format="json"), name="out")
    with pytest.raises(TerminalError, match="a row without a usable event time in at: it is null"):
        run(job, settings=settings(tmp_path))
    assert not written(tmp_path / "out")
