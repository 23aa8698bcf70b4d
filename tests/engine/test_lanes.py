"""Two lanes, one meaning: windows on Spark's own operators and on ours give the same rows for the same input."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

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
    "sessions": EventTimeSessionWindows("1500 ms"),
}


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
    job = Job("lanes", checkpoint_interval="0 s", on_error="fail")
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
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    for name in WINDOWS:
        spark, ours = (written(tmp_path / lane / name) for lane in ("spark", "ours"))
        assert spark, name
        assert not (spark - ours) + (ours - spark), f"seed {seed}, {name}"
    # Spark counts late rows behind its partial sums, we count every one.
    counted = sum(json.loads(line)["rows"] for line in written(tmp_path / "ours/tumbling").elements())
    assert 0 < late(tmp_path / "checkpoint", "tumbling-ours-out") == 6 * 60 - counted, f"seed {seed}"


def test_where_the_lanes_differ_a_late_row_next_to_a_session_that_is_open(tmp_path: Path) -> None:
    """Ours judges a row after merging, as Flink does: it belongs to a session that it touches. Spark drops it before."""
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
    windowed = rows.key_by("k").window(EventTimeSessionWindows("10 s"))
    for name, stream in (("default", windowed), ("named", windowed.trigger(EventTimeTrigger()))):
        counts = stream.aggregate("count(*) as n", "min(at) as first", name=name)
        counts.sink_to(FileSink(str(tmp_path / "out" / name), format="json"), name=f"{name}-out")
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    expected = {"default": (("a", 100_000), 1, 2), "named": (("a", 92_000), 2, 1)}
    for name, (session, rows_of_session, late_rows) in expected.items():
        found = [json.loads(line) for line in written(tmp_path / "out" / name).elements()]
        assert {(row["k"], row["first"] - BASE): row["n"] for row in found} == {
            session: rows_of_session,
            ("mark", 107_001): 3,
        }, name
        assert late(tmp_path / "checkpoint", f"{name}-out") == late_rows, name
