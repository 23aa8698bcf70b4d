"""Ten rows into a file, visible with the first checkpoint. Arguments: FOLDER OUT CHECKPOINTS PARTS, PARTS a file as of `life.noted`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.jobs.life import noted
from poundlock import EventTimeBucketAssigner, FileSink, FileSource, Job, RollingPolicy

if __name__ == "__main__":
    place, out, checkpoints, parts = sys.argv[1:5]
    job = Job("cold", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2)
    bucket = EventTimeBucketAssigner("timestamp", "'dt='yyyyMMdd", zone="UTC")
    sink = FileSink(out, row="value", bucket=bucket, rolling=RollingPolicy(on_checkpoint=True))
    job.from_source(FileSource(place), name="events").sink_to(sink, name="event_log")
    noted(job, Path(parts))
