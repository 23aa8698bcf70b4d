"""Event-time windows with SQL aggregates, against a model in a few lines of Python; the end of the input fires what is open."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poundlock import (
    ArrowAggregateFunction,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    FileSink,
    FileSource,
    Job,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.checkpoint.decision import Decision, EventTime
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.storage import LocalStorage
from poundlock.stream.windows.windowed import WindowedStream

pytestmark = pytest.mark.engine

SINKS = ("tumbling", "sliding", "growing", "sessions-out")
START = 1_545_184_220  # 2018-12-19T01:50:20Z, a multiple of 20 s
# Out of order by up to 3 s; then a row long after, three times, which lets the watermark pass all before it.
TIMES = [(i * 7) % 50 for i in range(200)]
ROWS = [
    {"ts": START + second + (i % 10) / 10, "user": f"u{i % 3}", "n": i}
    for i, second in enumerate(sorted(TIMES, key=lambda s: s // 4))
]
LAST = {"ts": START + 600, "user": "last", "n": -1}
BAD = b"not json"
# The watermark passes all of ROWS when the row before has come, and rows are judged by the watermark before their checkpoint.
LATE = [{"ts": START + second, "user": user, "n": 99} for second, user in ((1, "u0"), (1.1, "u0"), (5, "u1"))]


class Total(ArrowAggregateFunction):
    """sum(n)."""

    accumulator = "total bigint"
    columns = ("n",)

    def accumulate(self, rows: Any, groups: Any, count: int) -> Any:
        return self.merge(rows.rename_columns(["total"]), groups, count)

    def merge(self, accumulators: Any, groups: Any, count: int) -> Any:
        return {"total": np.bincount(groups, accumulators["total"].to_numpy(), count).astype(np.int64)}

    def result(self, accumulators: Any) -> Any:
        return accumulators


def model(size: int, slide: int, offset: int = 0) -> Counter[tuple[Any, ...]]:
    """Return (user, start, end) -> sum of n, for every window: those that are open at the end are fired by it."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in [*ROWS, LAST, LAST, LAST]:
        first = int((row["ts"] - offset) // slide) * slide + offset
        for start in range(first, first - size, -slide):
            found[row["user"], start, start + size] += row["n"]
    return found


def growing(step: int, size: int, offset: int) -> Counter[tuple[Any, ...]]:
    """Return the same of windows that begin every `size` and end one step after the other."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in [*ROWS, LAST, LAST, LAST]:
        start = int((row["ts"] - offset) // size) * size + offset
        for end in range(start + step, start + size + 1, step):
            if row["ts"] < end:
                found[row["user"], start, end] += row["n"]
    return found


def sessions(gap: float) -> list[tuple[float, float, int]]:
    found: list[list[Any]] = []
    for row in sorted([*ROWS, LAST, LAST, LAST], key=lambda r: r["ts"]):
        if found and row["ts"] < found[-1][1]:
            found[-1][1:] = [row["ts"] + gap, found[-1][2] + 1]
        else:
            found.append([row["ts"], row["ts"] + gap, 1])
    return [(round(a, 1), round(b, 1), n) for a, b, n in found]


def written(folder: Path) -> list[dict[str, Any]]:
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.startswith(".")]
    return [json.loads(line) for path in files for line in path.read_bytes().splitlines()]


def test_windows_give_what_they_should(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    # A file a checkpoint: state goes from one to the next; the last row comes in the second.
    for number, part in enumerate((ROWS[:120], [*ROWS[120:], LAST], [LAST], [*LATE, LAST])):
        lines = [json.dumps(row).encode() for row in part] + [BAD] * (number == 1)
        (tmp_path / f"in/{number}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    out, seconds = tmp_path / "out", "unix_millis({0}) / 1000 as {0}"
    job = Job(
        "windows",
        checkpoint_interval="0 s",
        dead_letters=str(tmp_path / "dead"),
        spark={"spark.sql.shuffle.partitions": "2"},
    )

    def windows(name: str, assigner: Any, *keys: str) -> WindowedStream:
        source = FileSource(
            str(tmp_path / "in"), format="json", schema="ts double, user string, n bigint", max_files_per_checkpoint=1
        )
        stream = job.from_source(source, name=name).assign_timestamps_and_watermarks(
            WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="timestamp_millis(bigint(round(ts * 1000)))")
        )
        return stream.key_by(*keys).window(assigner) if keys else stream.window_all(assigner)

    for name, windowed in {
        "tumbling": windows("a", TumblingEventTimeWindows("20 s", offset="-5 s"), "user"),
        "sliding": windows("b", SlidingEventTimeWindows("20 s", "10 s"), "upper(user) as user"),
        "growing": windows("e", CumulativeEventTimeWindows("5 s", "20 s", offset="-5 s"), "user"),
    }.items():
        rows = windowed.aggregate("sum(n) as total", "count(*) as rows", name=f"{name}-window")
        rows.select("user", seconds.format("window_start"), seconds.format("window_end"), "total").sink_to(
            FileSink(f"{out}/{name}", format="json"), name=name
        )
    gaps = windows("c", EventTimeSessionWindows("900 ms")).aggregate("count(*) as n", name="sessions")
    gaps.select(seconds.format("window_start"), seconds.format("window_end"), "n").sink_to(
        FileSink(f"{out}/sessions", format="json"), name="sessions-out"
    )
    own = windows("d", TumblingEventTimeWindows("20 s", offset="-5 s"), "user").aggregate(
        Total(), schema="total bigint", name="own-window"
    )
    own.select("user", seconds.format("window_start"), seconds.format("window_end"), "total").sink_to(
        FileSink(f"{out}/own", format="json"), name="own"
    )
    for described in ("tumbling windows of 20 s", "windows that grow by 5 s up to 20 s"):
        assert f"by user, {described}, moved by -5 s: sum(n) as total, count(*) as rows, by columns" in job.explain()

    options = [f"state_dir={tmp_path}/state", f"checkpoint_dir={tmp_path}/checkpoint", "master=local[2]"]
    progress = run(job, settings=load_settings(options))
    assert progress.state == "FINISHED"
    assert progress.dead_lettered == 5, "each branch reads the bad line"

    seen: dict[int, Decision] = {}
    for record in Ledger(LocalStorage(str(tmp_path / "checkpoint"))):
        seen.setdefault(record.checkpoint, record)
    assert {n: [record.sinks[s].counts.late for s in SINKS] for n, record in seen.items() if n < 4} == {
        -1: [0, 0, 0, 0],
        0: [0, 0, 0, 0],
        1: [0, 0, 0, 0],
        2: [0, 0, 0, 0],
        3: [3, 3, 3, 3],  # rows of which no window is open; to each sink those of its own source
    }
    assert all(part.counts.balanced() for record in seen.values() for part in record.sinks.values())
    last = 1000 * LAST["ts"]
    assert seen[0].event_time == EventTime(max_ms=round(1000 * max(r["ts"] for r in ROWS[:120])))
    assert seen[3].event_time == EventTime(max_ms=last, watermark_ms=last - 5001)

    def totals(name: str) -> Counter[tuple[Any, ...]]:
        found: Counter[tuple[Any, ...]] = Counter()
        for row in written(out / name):
            key = (row["user"].lower(), int(row["window_start"]), int(row["window_end"]))
            assert key not in found, "a window is written once"
            found[key] = row["total"]
        return found

    assert totals("tumbling") == totals("own") == model(20, 20, offset=-5)
    assert totals("sliding") == model(20, 10)
    assert totals("growing") == growing(5, 20, offset=-5)
    got = sorted((r["window_start"], r["window_end"], r["n"]) for r in written(out / "sessions"))
    assert got == sessions(0.9)


def test_late_rows_make_sessions_fire_again_and_sessions_go_by_the_clock(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    # A file a checkpoint. By event time the third row joins the first one's session, which has fired.
    for number, ts in enumerate((1, 100, 1.5, 200)):
        (tmp_path / f"in/{number}.jsonl").write_text(json.dumps({"ts": ts}) + "\n")
    job = Job("late-sessions", checkpoint_interval="1 s")
    source = FileSource(str(tmp_path / "in"), format="json", schema="ts double", max_files_per_checkpoint=1)
    rows = job.from_source(source).assign_timestamps_and_watermarks(
        WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="timestamp_millis(bigint(round(ts * 1000)))")
    )
    windows = {
        "late": rows.window_all(EventTimeSessionWindows("2 s")).allowed_lateness("1 h"),
        "clock": rows.window_all(ProcessingTimeSessionWindows("200 ms")),
    }
    seconds = "unix_millis({0}) / 1000 as {0}"
    for name, windowed in windows.items():
        counts = windowed.aggregate("count(*) as n", "last(ts) as ts", name=name)
        counts.select(seconds.format("window_start"), seconds.format("window_end"), "n", "ts").sink_to(
            FileSink(str(tmp_path / name), format="json"), name=f"{name}-out"
        )
    assert "record by record" not in job.explain()
    options = [f"state_dir={tmp_path}/state", f"checkpoint_dir={tmp_path}/checkpoint", "master=local[2]"]
    assert run(job, settings=load_settings(options)).state == "FINISHED"
    late = [tuple(row.values()) for row in written(tmp_path / "late")]
    assert sorted(late) == [(1, 3, 1, 1), (1, 3.5, 2, 1.5), (100, 102, 1, 100), (200, 202, 1, 200)]
    clock = written(tmp_path / "clock")
    assert [(row["n"], row["ts"]) for row in clock] == [(1, 1), (1, 100), (1, 1.5)], "what is open at the end is lost"
    assert {round(row["window_end"] - row["window_start"], 3) for row in clock} == {0.2}
