"""The rows of work by key as lines of JSON, and the proof of its results: each way to be wrong is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pytest

from benchmarks.data import WrongOutput
from benchmarks.keyed_kafka import blocks, prove

pytestmark = pytest.mark.slow

ROWS, KEYS = 200_000, 100


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    return [line for block in blocks(ROWS, KEYS) for line in block]


@pytest.fixture(scope="module")
def results(lines: list[bytes]) -> list[dict[str, Any]]:
    """What windows of ten seconds come to."""
    rows = pj.read_json(pa.BufferReader(b"\n".join(lines)))
    span = pa.compute.floor(pa.compute.divide(rows["timestamp"], 10))
    aggregates = [("value", name) for name in ("count", "sum", "min", "max")]
    grouped = rows.append_column("window", span).group_by(["key", "window"]).aggregate(aggregates)
    found = grouped.rename_columns(["key", "window_start", "n", "total", "low", "high"]).to_pylist()
    assert len(found) >= KEYS
    return found


def write(folder: Path, results: list[dict[str, Any]]) -> Path:
    (folder / "_tmp").mkdir(parents=True)
    (folder / "_tmp" / "part-0-0").write_text("no row of anyone")
    (folder / "part-0-1").write_text("")
    for number, some in enumerate((results[::2], results[1::2])):
        (folder / f"part-{number}-0").write_text("".join(json.dumps(each) + "\n" for each in some))
    return folder


def test_lines_are_in_the_order_of_time_but_for_four_seconds(lines: list[bytes]) -> None:
    assert lines[0] == b'{"timestamp":1545184224.000,"key":"user-00000000","value":0.0}'
    rows = [json.loads(line) for line in lines]
    assert len(rows) == ROWS
    assert len({row["key"] for row in rows}) == KEYS
    latest = 0.0
    for row in rows:
        latest = max(latest, row["timestamp"])
        assert latest - row["timestamp"] < 4.002
    assert latest == pytest.approx(1545184226, abs=0.1)  # 100,000 rows a second


@pytest.mark.parametrize("work", ["window", "sessions", "process"])
def test_right_results_pass(results: list[dict[str, Any]], tmp_path: Path, work: str) -> None:
    given = results if work == "window" else [{"key": each["key"], "n": each["n"]} for each in results]
    assert prove(write(tmp_path, given), ROWS, work) == len(results)


def test_sliding_windows_have_each_row_six_times(results: list[dict[str, Any]], tmp_path: Path) -> None:
    assert prove(write(tmp_path / "six", results * 6), ROWS, "sliding") == 6 * len(results)
    with pytest.raises(WrongOutput):
        prove(write(tmp_path / "one", results), ROWS, "sliding")


@pytest.mark.parametrize("fault", ["lost", "twice", "n", "total", "low", "high", "nothing"])
def test_every_fault_is_found(results: list[dict[str, Any]], tmp_path: Path, fault: str) -> None:
    first, *others = results
    changed: list[dict[str, Any]] = {
        "lost": [],
        "twice": [first, first],
        "n": [{**first, "n": first["n"] + 1}],
        "total": [{**first, "total": first["total"] + 0.25}],
        "low": [{**first, "low": -0.25}],
        "high": [{**first, "high": 1e9}],
        "nothing": [],
    }[fault]
    with pytest.raises(WrongOutput):
        prove(write(tmp_path, [] if fault == "nothing" else [*changed, *others]), ROWS, "window")
