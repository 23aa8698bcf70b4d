"""What a micro-batch reads: Spark's share from Spark's log, the driver's share from positions in the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DatagenSource
from poundlock.checkpoint.decision import SourceRange
from poundlock.errors import TerminalError, TransientError
from poundlock.plan.lowered import Lowered
from poundlock.plan.splits import task_splits
from poundlock.runtime.delivery import Delivery
from poundlock.runtime.offsets import SparkLog
from poundlock.runtime.planner import SplitPlanner
from poundlock.runtime.results import Gathered
from poundlock.storage import LocalStorage


def log(folder: Path, *batches: dict[str, Any]) -> SparkLog:
    storage = LocalStorage(str(folder / "spark"))
    for number, ends in enumerate(batches):
        lines = [f"{name}:{json.dumps(end)}" for name, end in ends.items()]
        storage.create_exclusive(f"offsets/{number}", "\n".join(["v2", "{}", *lines]).encode())
    return SparkLog(storage)


def planner(folder: Path, decided: dict[str, SourceRange], **settings: Any) -> SplitPlanner:
    source = DatagenSource("n bigint", **{"count": 10, "rows_per_checkpoint": 4, "rows_per_split": 2, **settings})
    return SplitPlanner({"made": source}, lambda: decided, lambda name: LocalStorage(str(folder / name)))


SOURCES = {"made": DatagenSource("n bigint", count=10), "topic": object()}


def ticks(end: int) -> dict[str, Any]:
    return {"offset": end, "timestamp": 0}


def test_the_position_goes_on_from_the_ledger_whatever_spark_counts(tmp_path: Path) -> None:
    decided: dict[str, SourceRange] = {}
    plan = planner(tmp_path, decided)
    spark = log(tmp_path, {"made": ticks(2), "topic": {"t": {"0": 5}}}, {"made": ticks(4), "topic": {"t": {"0": 5}}})

    first = Delivery.read(0, spark, SOURCES, plan.ranges())
    again = Delivery.read(1, spark, SOURCES, plan.ranges())
    assert first.split["made"] == again.split["made"], "batch 0 was not decided, so batch 1 has its work"
    assert first.ticks == {"made": (0, 2)}
    assert again.ticks == {"made": (2, 4)}
    assert again.spark == {"topic": SourceRange({"t": {"0": 5}}, {"t": {"0": 5}})}

    span = first.split["made"]
    assert span is not None
    decided["made"] = span
    later = Delivery.read(1, spark, SOURCES, plan.ranges())
    assert later.split["made"] is not None
    assert later.split["made"].start == span.end


def test_rows_are_read_once_over_checkpoints_and_it_ends(tmp_path: Path) -> None:
    decided: dict[str, SourceRange] = {}
    plan = planner(tmp_path, decided)
    spark = log(tmp_path, *({"made": ticks(2 * n)} for n in range(1, 5)))
    read: list[tuple[int, int]] = []
    for batch in range(4):
        delivery = Delivery.read(batch, spark, SOURCES, plan.ranges())
        assert delivery.idle == (batch == 3)
        directive = {"decided": False, "splits": delivery.splits(plan)}
        first, last = delivery.ticks["made"]
        for row in range(first, last):
            work = task_splits(_rows(row), "made", directive)
            read += [(split.payload["start"], split.payload["stop"]) for split in work]
        span = delivery.split["made"]
        assert span is not None
        decided["made"] = span
    assert sorted(read) == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]
    assert plan.finished("made")


def test_of_a_decided_checkpoint_the_ledger_says_what_it_read(tmp_path: Path) -> None:
    said = {"made": SourceRange({"row": 0}, {"row": 3}), "gone": SourceRange(0, 1), "topic": SourceRange(0, 9)}
    spark = log(tmp_path, {"made": ticks(2), "topic": {"t": {"0": 5}}})
    delivery = Delivery.read(0, spark, SOURCES, said)
    assert delivery.split == {"made": said["made"]}
    assert delivery.spark["topic"].end == {"t": {"0": 5}}
    work = delivery.splits(planner(tmp_path, {}))
    assert delivery.given == {"made": 2}
    assert [s.payload for n in (0, 1) for s in task_splits(_rows(n), "made", {"splits": work})] == [
        {"start": 0, "stop": 2},
        {"start": 2, "stop": 3},
    ]


def test_rows_are_not_numbered_from_another_batch(tmp_path: Path) -> None:
    """With the end of batch 0 for its begin, the rows of batch 2 would stand for splits that nobody has."""
    spark = log(tmp_path, *({"made": ticks(2 * n)} for n in range(1, 4)))
    (tmp_path / "spark/offsets/1").unlink()
    with pytest.raises(TerminalError, match="batch 2, but batch 1 is missing"):
        Delivery.read(2, spark, SOURCES, planner(tmp_path, {}).ranges())


def test_splits_that_no_task_read_fail_the_checkpoint() -> None:
    found = Gathered()
    found.add([json.dumps({"t": "splits", "head": "made", "count": 2})])
    found.check_splits({"made": 2})
    with pytest.raises(TransientError, match="3 splits of 'made' were planned and 2 were read"):
        found.check_splits({"made": 3})
    with pytest.raises(TransientError, match="1 splits of 'other'"):
        found.check_splits({"other": 1})


@pytest.mark.parametrize(("row_wise", "filtered", "produced", "late"), [(True, 3, 0, 0), (False, 0, -1, 2)])
def test_rows_that_vanish_in_spark_are_counted(row_wise: bool, filtered: int, produced: int, late: int) -> None:
    found = Gathered()
    counts = {"read": 7, "produced": 0, "written": 7, "filtered": 0, "dead_lettered": 0, "skipped": 0}
    found.add([json.dumps({"t": "counts", "head": "h", "read": 7, "sinks": {"s": counts}})])
    found.count_before_stage(Lowered(None, {"h": ["h/in"]}, {"h": row_wise}, None), {"h/in": 10}, {"h": late})  # type: ignore[arg-type]
    got = found.results().counts["s"]
    assert (got.read, got.filtered, got.produced, got.late) == (10, filtered, produced, late)
    assert got.balanced()


def _rows(*numbers: int) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], ["value"])])
