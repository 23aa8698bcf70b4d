"""A value for each of many keys, then checkpoints that touch a thousand of them. Arguments: KEYS CHECKPOINTS OUT CHECKPOINT_DIR FOUND.

The thousand are other ones each time, all over the keys. FOUND is a file for what these checkpoints took: the median of their
ms, CPU ms and bytes written by the whole process tree, each for one checkpoint.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.jobs.usage import used
from poundlock import DatagenSource, FileSink, Job, KeyedProcessFunction, ValueStateDescriptor
from poundlock.connectors.base import Split
from poundlock.connectors.datagen.rows import RowOrigin
from poundlock.connectors.datagen.source import DatagenEnumerator
from poundlock.driver.progress import Progress
from poundlock.formats.chunk import Batch, Chunk

TOUCHED, WARM_UP = 1_000, 20
_FILL = 500_000
_STRIDE = 0x9E3779B1  # a prime, so that a thousand rows in a row are a thousand keys far apart


@dataclass(frozen=True)
class Keys:
    """Row i of the first `keys` has the key i; the rows behind them go through the keys in steps of `_STRIDE`."""

    keys: int

    def schema(self) -> pa.Schema:
        return pa.schema([("key", pa.int64())])

    def make(self, start: int, stop: int) -> Chunk:
        rows = np.arange(start, stop, dtype=np.int64)
        rows[rows >= self.keys] = rows[rows >= self.keys] * _STRIDE % self.keys
        return Batch(pa.RecordBatch.from_arrays([pa.array(rows)], schema=self.schema()), RowOrigin(start))


class FilledFirst(DatagenSource):
    """Half a million rows a checkpoint until every key was there once, then `TOUCHED`."""

    def __init__(self, keys: int, checkpoints: int) -> None:
        super().__init__("key bigint", count=keys + checkpoints * TOUCHED)
        object.__setattr__(self, "rows", Keys(keys))

    def enumerator(self, workspace: Any) -> DatagenEnumerator:
        return _Planned(self)


class Halves(DatagenEnumerator):
    """Cuts what a checkpoint reads in two."""

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        first, last = int(start["row"]), int(end["row"])
        middle = (first + last) // 2
        return [
            Split(f"{a:020d}", {"start": a, "stop": b}, b - a) for a, b in ((first, middle), (middle, last)) if a < b
        ]


class _Planned(Halves):
    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        row, keys = int(start["row"]), self.source.rows.keys  # type: ignore[attr-defined]
        end = min(row + _FILL, keys) if row < keys else row + TOUCHED
        return {**start, "row": min(end, self.source.count or 0)}


class Seen(KeyedProcessFunction):
    """Counts the rows of a key, and sends on how many there were, from the second on."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("n"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        known = self.rows.value() or 0
        self.rows.update(known + 1)
        return [{"n": known + 1}] if known else ()


def expected(keys: int, checkpoints: int) -> int:
    """Return the sum of all that `Seen` sends on: every round through the keys finds one row more at each."""
    rounds, rest = divmod((WARM_UP + checkpoints) * TOUCHED, keys)
    return keys * sum(range(2, rounds + 2)) + rest * (rounds + 2)


def main(keys: int, count: int, out: str, checkpoints: str, found: Path) -> None:
    total = WARM_UP + count
    marks: list[
        tuple[int, int, int]
    ] = []  # of each checkpoint behind the filling: its ms, CPU ms and bytes written so far

    def note(progress: Progress) -> None:
        if progress.rows_read > keys and len(marks) < (progress.rows_read - keys) // TOUCHED:
            marks.append((progress.last_ms or 0, *used()))

    job = Job("state", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2, on_error="fail")
    seen = (
        job.from_source(FilledFirst(keys, total), name="keys")
        .key_by("key")
        .process(Seen(), schema="n bigint", name="seen")
    )
    seen.sink_to(FileSink(out, format="json"), name="out")
    job.run(on_progress=note)
    (_, cpu_ms, written), (_, last_cpu_ms, last_written) = marks[WARM_UP - 1], marks[-1]
    state = sum(file.stat().st_size for file in Path(checkpoints).rglob("state/**/*.arrow"))
    found.write_text(
        json.dumps(
            {
                "ms": statistics.median(ms for ms, *_ in marks[WARM_UP:]),
                "CPU ms": (last_cpu_ms - cpu_ms) / count,
                "kB written": (last_written - written) / count / 1000,
                "state MB": state / 1e6,
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], Path(sys.argv[5]))
