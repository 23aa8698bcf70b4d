"""A job without Spark that keeps state: it counts rows of each key in windows, a checkpoint for each file of its input."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from poundlock import FileSink, FileSource, Job, TumblingEventTimeWindows, WatermarkStrategy

__all__ = ["CountingJob"]


@dataclass(frozen=True)
class CountingJob:
    """The job.

    Args:
        root: a local folder for input and output.
        checkpoint: the folder of state and decisions.
    """

    root: Path
    checkpoint: str

    def prepare(self) -> None:
        """Write the input: rows of ten keys, in order of time."""
        (self.root / "log").mkdir(parents=True)
        for number in range(6):
            rows = [{"k": f"key-{each % 10}", "at": 4000 * number + 40 * each} for each in range(100)]
            path = self.root / f"log/{number}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(path, (1_700_000_000 + number,) * 2)

    def outcome(self) -> list[str]:
        """Return the rows in finished files, in order."""
        paths = [p for p in (self.root / "out").rglob("*") if p.is_file() and not p.name.startswith((".", "_"))]
        return sorted(line for path in paths for line in path.read_text().splitlines())

    def job(self) -> Job:
        """Return the job."""
        job = Job("counting", checkpoint_dir=self.checkpoint, on_error="fail")
        source = FileSource(f"{self.root}/log", format="json", schema="k string, at bigint", max_files_per_checkpoint=1)
        strategy = WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="at")
        rows = job.from_source(source, strategy, name="log")
        counts = rows.key_by("k").window(TumblingEventTimeWindows("5 s")).aggregate("count(*) as n", name="counts")
        counts.sink_to(FileSink(f"{self.root}/out", format="json"), name="out")
        return job
