"""Checkpoints of ten rows, one after the other. Arguments: CHECKPOINTS COUNT OUT CHECKPOINT_DIR TIMES, TIMES a file for their ms."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from poundlock import DatagenSource, EventTimeBucketAssigner, FileSink, Job
from poundlock.driver.progress import Progress

ROWS = 10

if __name__ == "__main__":
    count, out, checkpoints, times = int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])
    took: dict[int, int] = {}

    def note(progress: Progress) -> None:
        if progress.checkpoint is not None and progress.last_ms is not None:
            took.setdefault(progress.checkpoint, progress.last_ms)

    job = Job("small", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2)
    rows = job.from_source(DatagenSource(count=count * ROWS, rows_per_checkpoint=ROWS), name="events")
    rows.sink_to(FileSink(out, row="value", bucket=EventTimeBucketAssigner("timestamp", zone="UTC")), name="event_log")
    job.run(on_progress=note)
    times.write_text(json.dumps([took[number] for number in sorted(took)]))
