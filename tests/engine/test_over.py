"""Steps over rows in an order in real jobs: aggregates of the rows around each, sorted rows, numbers that move, versions of a time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DataStream, FileSink, FileSource, Job, WatermarkStrategy
from poundlock.driver.driver import run
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.stream.nodes import SortColumn
from poundlock.stream.over_nodes import OverCall, OverNode, RowFrame, TemporalJoinNode
from support.changelog_scripts import Change, apply
from support.finished import visible
from support.jobs_in_threads import settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

FILES = [
    [("x", 3, 1), ("y", 1, 5), ("x", 1, 3)],
    [("y", 12, 7), ("x", 12, 2), ("x", 9, 4)],
    [("x", 30, 6), ("y", 28, 8), ("x", 2, 9)],
]
"""Key, second and number of rows; the last one is late."""
RATES = [("x", 0, 10), ("x", 9, 20), ("y", 28, 30)]
LONG = pa.int64()


def at(second: int) -> str:
    return f"2026-01-05T10:00:{second:02}Z"


def written(folder: Path, columns: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows of files, file by file in the order they were written."""
    lines = [line for path in sorted(visible(folder)) for line in path.read_text().splitlines()]
    return [tuple(json.loads(line).get(name) for name in columns) for line in lines]


def over(stream: DataStream, name: str, keys: list[str], order: str, by: Any, *calls: OverCall) -> DataStream:
    return stream.then(
        OverNode(name, [stream.node], [keys], [None], None, {}, order=[SortColumn(order)], by=by, calls=calls)
    )


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_rows_in_an_order(tmp_path: Path, mode: Any) -> None:
    for name in ("in", "rates"):
        (tmp_path / name).mkdir()
    for number, rows in enumerate(FILES):
        lines = (json.dumps({"k": key, "ts": at(second), "n": n}) for key, second, n in rows)
        (tmp_path / "in" / f"{number}.json").write_text("".join(f"{line}\n" for line in lines))
    rates = (json.dumps({"key": key, "since": at(second), "rate": rate}) for key, second, rate in RATES)
    (tmp_path / "rates" / "0.json").write_text("".join(f"{line}\n" for line in rates))
    job = Job("over", checkpoint_interval="0 s", on_error="fail", parallelism=2, max_parallelism=4, runtime_mode=mode)

    def read(name: str, schema: str, time: str) -> DataStream:
        source = FileSource(str(tmp_path / name), format="json", schema=schema, max_files_per_checkpoint=1)
        strategy = WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp=time, column=f"{time}_at")
        return job.from_source(source, name=name).assign_timestamps_and_watermarks(strategy)

    rows = read("in", "k string, ts timestamp, n bigint", "ts")
    versions = read("rates", "key string, since timestamp, rate bigint", "since")
    total = OverCall(function="sum", name="total", type=LONG, column="n", frame=RowFrame("rows", 1))
    before = OverCall(function="lag", name="before", type=LONG, column="n")
    number = OverCall(function="row_number", name="place", type=LONG)
    nodes = [rows.node, versions.node]
    joined = rows.then(
        TemporalJoinNode("joined", nodes, [["k"], ["key"]], [None, None], None, {}, times=("ts", "since"), kind="left")
    )
    totals = over(rows, "totals", ["k"], "ts", "event_time", total)
    made = {
        "totals": (totals, ["k", "n", "total"]),
        "shifted": (over(totals, "shifted", ["k"], "ts", "event_time", before), ["n", "total", "before"]),
        "sorted": (over(rows, "sorted", [], "ts", "event_time"), ["n"]),
        "numbered": (over(rows, "numbered", ["k"], "n", "any", number), ["k", "n", "place", ROW_KIND]),
        "rated": (joined, ["n", "rate"]),
    }
    for name, (stream, _) in made.items():
        stream.sink_to(FileSink(str(tmp_path / name), format="json"), name=f"{name}-out")
    assert "sum(n) over rows between 1 preceding and current row AS total, by ts, by columns" in job.explain()
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    out = {name: written(tmp_path / f"{name}", columns) for name, (_, columns) in made.items()}
    late = [] if mode == "batch" else [9]
    by_time = sorted((row for rows in FILES for row in rows if row[2] not in late), key=lambda row: row[1])
    assert sorted(n for (n,) in out["sorted"]) == sorted(n for _, _, n in by_time)
    sums, shifts, last, total_before = {}, {}, {}, {}
    for key, _, n in by_time:
        sums[n] = n + last.get(key, 0)
        shifts[n] = total_before.get(key)
        last[key], total_before[key] = n, n
    assert Counter(out["totals"]) == Counter((key, n, sums[n]) for key, _, n in by_time)
    assert Counter(out["shifted"]) == Counter((n, sums[n], shifts[n]) for _, _, n in by_time)
    table: Counter[tuple[Any, ...]] = Counter()
    changes: list[Change] = [(kind, (key, n, place)) for key, n, place, kind in out["numbered"]]
    apply(table, sorted(changes, key=lambda change: change[0] in ("-U", "-D")))
    every = [row for rows in FILES for row in rows]
    wanted = [(key, n, sum(k == key and m <= n for k, _, m in every)) for key, _, n in every]
    assert table == Counter(wanted)
    rated = dict(out["rated"])
    # A late row is joined all the same, with a version that may be another one than that of its time.
    assert {n: rate for n, rate in rated.items() if n != 9} == {
        1: 10,
        5: None,
        3: 10,
        7: None,
        2: 20,
        4: 20,
        6: 20,
        8: 30,
    }
    assert set(rated) == {n for _, _, n in every}
