"""A job whose parallelism changes up and down in one life and on real Spark: numbers of keys go on, nothing starts again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from poundlock import FileSink, FileSource, Job, KeyedProcessFunction, TumblingEventTimeWindows, WatermarkStrategy
from poundlock import ValueStateDescriptor as Value
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.storage import LocalStorage
from support.jobs_in_threads import Running, settings
from support.scripted_scaler import NEXT, ScriptedScaler

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

KEYS, ROWS, FILES = 7, 35, 16


class Number(KeyedProcessFunction):
    """Numbers the rows of a key."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(Value("rows", default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.rows.update(self.rows.value() + 1)
        yield {"k": value["k"], "n": self.rows.value()}


def put(folder: Path, number: int) -> None:
    """Write a file of rows that go on by three seconds."""
    rows = [{"k": f"k{i % KEYS}", "at": 3_000 * number + (i * 997) % 3_000} for i in range(ROWS)]
    hidden = folder / f".{number:03d}.jsonl"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / f"{number:03d}.jsonl")


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.rglob("part-*") for line in path.read_text().splitlines()]


def test_tasks_are_added_and_taken_away_in_one_life(tmp_path: Path) -> None:
    job = Job(
        "scaled", checkpoint_interval="100 ms", on_error="fail", autoscaler=ScriptedScaler(), max_parallelism=16
    )  # fmt: skip
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        put(tmp_path / "in", number)
    source = FileSource(
        str(tmp_path / "in"), format="json", schema="k string, at bigint", watch=True, discover_every="50 ms",
        max_files_per_checkpoint=2,
    )  # fmt: skip
    rows = job.from_source(source, WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="at"), name="rows")
    numbered = rows.key_by("k").process(Number(), schema="k string, n bigint", name="number")
    numbered.sink_to(FileSink(str(tmp_path / "numbered"), format="json"), name="numbered")
    counts = rows.key_by("k").window(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n", name="counts")
    counts.sink_to(FileSink(str(tmp_path / "counts"), format="json"), name="counts-out")
    running = Running(job, settings(tmp_path))
    running.until(lambda: running.progress.rows_read == FILES * ROWS)
    running.requests.trigger("savepoint", directory=str(tmp_path / "saved"), then="stop", drain=True)
    running.end()

    records = [r for r in Ledger(LocalStorage(str(tmp_path / "checkpoint"))) if r.occasion == "checkpoint"]
    assert {record.epoch for record in records} == {1}
    ran = [record.parallelism for record in records if record.sources["rows"].rows]
    assert ran == [1, 3, 2, 4, 1, 3, 2, 4]
    assert all(record.tasks is None or record.tasks <= (record.parallelism or 0) for record in records)
    said = [line.partition(":")[0] for line in running.lines if line.startswith("parallelism ")]
    assert said[:4] == ["parallelism 1 → 3", "parallelism 3 → 2", "parallelism 2 → 4", "parallelism 4 → 1"]
    assert running.progress.parallelism in NEXT

    numbers: dict[str, list[int]] = {f"k{i}": [] for i in range(KEYS)}
    for row in written(tmp_path / "numbered"):
        numbers[row["k"]].append(row["n"])
    assert all(sorted(found) == list(range(1, FILES * ROWS // KEYS + 1)) for found in numbers.values()), numbers
    wanted = Counter(
        (f"k{i % KEYS}", (3_000 * number + (i * 997) % 3_000) // 10_000) for number in range(FILES) for i in range(ROWS)
    )
    found = Counter((row["k"], row["n"]) for row in written(tmp_path / "counts"))
    assert found == Counter((key, n) for (key, _), n in wanted.items())
