"""Jobs whose rows are uneven or large. Arguments: WORK ROWS OUT CHECKPOINT_DIR FOUND, and for `large` the folder of the input.

`uniform` and `hot` add up rows by key, 100,000 keys, where `hot` has half of its rows under one; `large` reads a record of many bytes
among short ones; `buckets` has a bucket for each row; `window` counts all rows in windows of a day, a million keys; `elements` gives
a Python function all rows of such a window.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.jobs.much_state import texts
from benchmarks.jobs.usage import anonymous_bytes
from poundlock import (
    DatagenSource,
    ExpressionBucketAssigner,
    FileSink,
    FileSource,
    Job,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RollingPolicy,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.connectors.datagen.rows import RowOrigin
from poundlock.driver.progress import Progress
from poundlock.formats.chunk import Batch, Chunk

_BASE_MS = 1_545_184_220_000 // 86_400_000 * 86_400_000
_MIX = 0x9E3779B1
PAYLOAD = 100


@dataclass(frozen=True)
class Uneven:
    """Rows with a key, a time in ms, a one, and a text of a hundred bytes.

    Args:
        keys: how many there are.
        hot: whether every second row has the key 0.
    """

    keys: int
    hot: bool = False

    def schema(self) -> pa.Schema:
        return pa.schema([("key", pa.string()), ("at", pa.int64()), ("n", pa.int64()), ("text", pa.string())])

    def make(self, start: int, stop: int) -> Chunk:
        rows = np.arange(start, stop, dtype=np.int64)
        numbers = rows * _MIX % self.keys
        if self.hot:
            numbers[rows % 2 == 0] = 0
        ends = np.arange(len(rows) + 1, dtype=np.int32) * PAYLOAD
        data = np.full(len(rows) * PAYLOAD, ord("x"), np.uint8)
        text = pa.Array.from_buffers(pa.string(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(data)])
        one = np.ones(len(rows), np.int64)
        columns = [texts(numbers), pa.array(_BASE_MS + rows // 1000), pa.array(one), text]
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.schema()), RowOrigin(start))


class UnevenSource(DatagenSource):
    """Rows of `Uneven`."""

    def __init__(self, rows: Uneven, count: int) -> None:
        super().__init__("key string", count=count, rows_per_checkpoint=min(max(count // 10, 1_000), 1_000_000))
        object.__setattr__(self, "rows", rows)


class Length(KeyedProcessFunction):
    """Sends on how long a text is."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield {"n": len(value["text"])}


class Counting(ProcessWindowFunction):
    """Counts the elements of a window."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield {"n": sum(element["n"] for element in elements)}


def _by_key(job: Job, keys: int, rows: int, *, hot: bool) -> Any:
    source = job.from_source(UnevenSource(Uneven(keys, hot), rows), name="rows")
    return source.key_by("key").sum("n", name="sums").map_batches(_only_n, schema="n bigint", name="n")


def _only_n(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["n"])


def _windows(job: Job, keys: int, rows: int) -> Any:
    times = WatermarkStrategy.for_monotonous_timestamps(timestamp="at")
    source = job.from_source(UnevenSource(Uneven(keys), rows), name="rows")
    timed = source.assign_timestamps_and_watermarks(times, name="times")
    return timed.key_by("key").window(TumblingEventTimeWindows("1 d"))


def _large(job: Job, folder: str) -> Any:
    source = FileSource(folder, format="json", schema="key string, text string")
    placed = job.from_source(source, name="lines").rebalance(name="placed")
    return placed.key_by("key").process(Length(), schema="n bigint", name="lengths")


def _build(work: str, job: Job, rows: int, folder: str) -> Any:
    made: Mapping[str, Callable[[], Any]] = {
        "uniform": lambda: _by_key(job, 100_000, rows, hot=False),
        "hot": lambda: _by_key(job, 100_000, rows, hot=True),
        "large": lambda: _large(job, folder),
        "buckets": lambda: job.from_source(
            DatagenSource("n bigint", fields={"n": "sequence"}, count=rows, rows_per_checkpoint=rows), name="rows"
        ),
        "window": lambda: _windows(job, 1_000_000, rows).aggregate("sum(n) as n", "max(text) as longest", name="all"),
        "elements": lambda: _windows(job, 100_000, rows).process(Counting(), schema="n bigint", name="all"),
    }
    return made[work]()


def main(work: str, rows: int, out: str, checkpoints: str, found: Path, folder: str = "") -> None:
    """Run a job to its end; note the memory that its processes had of their own, and how uneven its rows were."""
    memory: list[int] = []
    shares: dict[str, float] = {}

    def note(progress: Progress) -> None:
        if progress.checkpoint is not None:
            memory.append(anonymous_bytes())
            for name, each in {**progress.skew.groups, **progress.skew.splits}.items():
                shares[name] = max(shares.get(name, 0), each.share(each.largest[0])) if each.largest else 0.0

    job = Job("skew", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2, on_error="fail")
    stream = _build(work, job, rows, folder)
    bucket = ExpressionBucketAssigner("concat('b=', n)") if work == "buckets" else None
    stream.sink_to(
        FileSink(
            out, format="json", rolling=RollingPolicy(on_checkpoint=True), **({"bucket": bucket} if bucket else {})
        ),
        name="out",
    )
    job.run(on_progress=note)
    quarter = max(memory[: max(len(memory) // 4, 1)])
    figures = {"memory MB": max(memory) / 1e6, "memory growth": max(memory) / quarter}
    found.write_text(json.dumps({**figures, **{f"largest of {name}": share for name, share in shares.items()}}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], Path(sys.argv[5]), *sys.argv[6:])
