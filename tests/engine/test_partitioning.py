"""rebalance, rescale and partition_custom in a job: every row once, in the task it was placed in, with what comes before and behind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from poundlock import (
    FileSink,
    FileSource,
    Job,
    KeyedProcessFunction,
    NoRestart,
    RollingPolicy,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.driver.driver import run
from support.jobs_in_threads import settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

FILES, ROWS, SCHEMA = 3, 40, "k string, n bigint, at bigint"
BASE = 1_545_184_220_000


class Passing(KeyedProcessFunction):
    """Sends on what comes."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield {"k": value["k"], "n": value["n"], "at": value["at"]}


def where(row: Any) -> Any:
    """Say in which task a row is, by the number that Spark has for it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return {"n": row["n"], "task": context.partitionId()}


def tenth(key: str, tasks: int) -> int:
    """Place key k3 in task 3."""
    return int(key[1:]) % tasks


def spoilt(row: Any) -> Any:
    """Fail for some rows."""
    if row["n"] % 9 == 0:
        raise ValueError("nine times something")
    return {"n": row["n"]}


def read(folder: Path) -> list[Any]:
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_rows_are_placed_and_go_on(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        rows = [{"k": f"k{n % 4}", "n": n, "at": BASE + 1000 * n} for n in range(ROWS * number, ROWS * (number + 1))]
        (tmp_path / "in" / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dead = str(tmp_path / "dead")
    job = Job("placed", checkpoint_interval="0 s", parallelism=2, dead_letters=dead, restart=NoRestart())
    source = FileSource(str(tmp_path / "in"), format="json", schema=SCHEMA, max_files_per_checkpoint=1)
    times = WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="at")
    timed = job.from_source(source, name="rows").assign_timestamps_and_watermarks(times, name="times")

    def to(stream: Any, name: str) -> None:
        stream.sink_to(
            FileSink(str(tmp_path / name), format="json", rolling=RollingPolicy(on_checkpoint=True)), name=f"to-{name}"
        )

    even = timed.rebalance(name="even")
    to(even.map(where, schema="n bigint, task int", name="at-even"), "even")
    to(timed.rescale().map(where, schema="n bigint, task int", name="at-rescaled"), "rescaled")
    custom = timed.partition_custom(tenth, "lower(k)", name="custom")
    to(custom.map(where, schema="n bigint, task int", name="at-custom"), "custom")
    to(custom, "columns")
    to(even.map(spoilt, schema="n bigint", on_error="bad_record", name="spoilt"), "spoilt")
    windows = even.key_by("k").window(TumblingEventTimeWindows("10 s"))
    to(windows.aggregate("count(*) as n", name="counts"), "counts")
    keyed = timed.key_by("k").process(Passing(), schema=SCHEMA, name="passing")
    to(keyed.rebalance().union(even.select("k", "n", "at")), "both")
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"

    every = Counter(range(FILES * ROWS))
    for name in ("even", "rescaled", "custom", "columns"):
        assert Counter(row["n"] for row in read(tmp_path / name)) == every, name
    halves = Counter(row["task"] for row in read(tmp_path / "even"))
    assert sorted(halves.values()) == [FILES * ROWS // 2] * 2
    placed = {(row["task"], row["n"] % 2) for row in read(tmp_path / "custom")}
    assert len(placed) == 2
    assert len({task for task, _ in placed}) == 2
    assert {tuple(row) for row in read(tmp_path / "columns")} == {("k", "n", "at", "event_time")}
    assert sum(row["n"] for row in read(tmp_path / "counts")) == FILES * ROWS
    assert not any("late" in str(path) for path in tmp_path.iterdir())
    assert Counter(row["n"] for row in read(tmp_path / "both")) == every + every
    letters = read(tmp_path / "dead")
    assert len(letters) == sum(n % 9 == 0 for n in every)
    assert {letter["source"] for letter in letters} == {"rows"}
    assert len(read(tmp_path / "spoilt")) == sum(n % 9 != 0 for n in every)


def test_explain_shows_the_stage_and_what_is_no_partitioner_is_refused() -> None:
    from poundlock import DefinitionError
    from poundlock.plan.explain import explain

    job = Job("placed")
    strategy = WatermarkStrategy.for_monotonous_timestamps(timestamp="at")
    rows = job.from_source(FileSource("/in", format="json", schema=SCHEMA), strategy, name="in").rescale(name="spread")
    rows.sink_to(FileSink("/out", format="json"))
    assert "stage 2: partitioned" in explain(job)
    with pytest.raises(DefinitionError):
        rows.partition_custom("user", "k")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError):
        rows.partition_custom(tenth)
