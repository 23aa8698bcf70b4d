"""Two lanes, one meaning: windows on Spark's own operators and on ours give the same rows for the same input."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jobs_in_threads import settings

from poundlock import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    FileSink,
    FileSource,
    Job,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.checkpoint.ledger import Ledger
from poundlock.errors import TerminalError
from poundlock.runtime.driver import run
from poundlock.storage import LocalStorage

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
TIMELESS = ({"k": "a", "n": 1}, {"k": "a", "n": 1, "at": 1 << 60})


def put(folder: Path, made: random.Random) -> None:
    folder.mkdir()
    for number in range(6):
        rows = []
        for _ in range(60):
            at = BASE + 6_000 * number + made.randrange(6_000) - made.choice([0, 0, 0, 3_000, 25_000])
            row = {
                "at": at,
                "k": made.choice(["a", "b", "c", None]),
                "n": made.choice([None, 0, -5, 7, 1 << 40]),
                "price": made.choice([None, "0.10", "12345.67", "-3.33"]),
                "word": made.choice([None, "", "x", "größe"]),
            }
            rows.append(json.dumps({name: value for name, value in row.items() if value is not None}) + "\n")
        rows += [json.dumps(row) + "\n" for row in TIMELESS]
        (folder / f"{number}.jsonl").write_text("".join(rows))


def written(folder: Path) -> Counter[str]:
    files = (p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return Counter(line for p in files for line in p.read_text().splitlines())


def late(checkpoint: Path, sink: str) -> int:
    """Return how many rows of a sink were dropped as late, as the ledger has it."""
    records = Ledger(LocalStorage(str(checkpoint)))
    return sum(record.sinks[sink].counts.late for record in records if record.occasion == "checkpoint")


def test_both_lanes_give_the_same(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    put(tmp_path / "in", random.Random(seed))
    job = Job("lanes", checkpoint_interval="0 s", dead_letters=str(tmp_path / "dead"))
    schema = "at bigint, k string, n bigint, price decimal(12,2), word string"
    source = FileSource(str(tmp_path / "in"), format="json", schema=schema, max_files_per_checkpoint=1)
    rows = job.from_source(source, WatermarkStrategy.bounded_out_of_orderness("2 s", timestamp="at"), name="rows")
    for name, windows in WINDOWS.items():
        windowed = rows.key_by("k", "n % 2 as odd").window(windows)
        # That the trigger is named is enough for a lane of ours: it is the windows' own.
        for lane, stream in (("spark", windowed), ("ours", windowed.trigger(EventTimeTrigger()))):
            counts = stream.aggregate(*AGGREGATES, name=f"{name}-{lane}")
            counts.sink_to(FileSink(str(tmp_path / lane / name), format="json"), name=f"{name}-{lane}-out")
    said = job.explain()
    assert said.count("our own operator, by key group") == len(WINDOWS)
    progress = run(job, settings=settings(tmp_path))
    assert progress.state == "FINISHED"
    dead = [json.loads(line) for line in written(tmp_path / "dead").elements()]
    assert len(dead) == progress.dead_lettered == 6 * len(TIMELESS) * 2 * len(WINDOWS)
    assert {letter["reason"].split(" in at: ")[0] for letter in dead} == {
        "rows-time: a row without a usable event time"
    }
    for name in WINDOWS:
        spark, ours = (written(tmp_path / lane / name) for lane in ("spark", "ours"))
        assert spark, name
        assert not (spark - ours) + (ours - spark), f"seed {seed}, {name}"
    # Spark counts late rows behind its partial sums, we count every one.
    counted = sum(json.loads(line)["rows"] for line in written(tmp_path / "ours/tumbling").elements())
    assert 0 < late(tmp_path / "checkpoint", "tumbling-ours-out") == 6 * 60 - counted, f"seed {seed}"


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
    assert "a late row before it sees that a session takes it" in job.explain()
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    found = [json.loads(line) for line in written(tmp_path / "out").elements()]
    assert {(row["k"], row["first"] - BASE): row["n"] for row in found} == {("a", 92_000): 2, ("mark", 107_001): 3}
    assert late(tmp_path / "checkpoint", "out") == 1


def test_a_row_without_event_time_that_cannot_be_led_away_fails_the_job(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    times = pa.array([BASE, None], pa.int64())
    pq.write_table(pa.table({"at": times, "k": ["a", "b"]}), tmp_path / "in/0.parquet")
    job = Job("timeless", checkpoint_interval="0 s", on_error="fail")
    source = FileSource(str(tmp_path / "in"), format="parquet", schema="at bigint, k string")
    rows = job.from_source(source, WatermarkStrategy.monotonous(timestamp="at"), name="rows")
    counts = rows.key_by("k").window(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n")
    counts.sink_to(FileSink(str(tmp_path / "out"), format="json"), name="out")
    with pytest.raises(TerminalError, match="1 rows without a usable event time in at: it is null") as failed:
        run(job, settings=settings(tmp_path))
    assert failed.value.next is not None
    assert "coalesce" in failed.value.next
