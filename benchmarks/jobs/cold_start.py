"""Ten rows, and when their checkpoint was done. Arguments: FOLDER OUT CHECKPOINTS TIMES, TIMES a file for the time since 1970, s."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from poundlock import EventTimeBucketAssigner, FileSink, FileSource, Job
from poundlock.driver.progress import Progress

if __name__ == "__main__":
    place, out, checkpoints, times = sys.argv[1:5]
    first: list[float] = []

    def note(progress: Progress) -> None:
        if progress.checkpoint is not None and not first:
            first.append(time.time())

    job = Job("cold", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2)
    rows = job.from_source(FileSource(place), name="events")
    rows.sink_to(FileSink(out, row="value", bucket=EventTimeBucketAssigner("timestamp", zone="UTC")), name="event_log")
    job.run(on_progress=note)
    Path(times).write_text(str(first[0]))
