"""A topic into files, until a file STOP is there. Arguments: SERVERS/TOPIC OUT CHECKPOINTS PARTS STOP, PARTS a file as of `life.noted`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.jobs.life import noted, watched
from poundlock import FileSink, Job, KafkaSource

if __name__ == "__main__":
    place, out, checkpoints, parts, stop = sys.argv[1:]
    servers, topic = place.split("/", 1)
    job = Job("recovery", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2, on_error="fail")
    events = job.from_source(KafkaSource(bootstrap_servers=servers, topics=topic), name="events")
    events.sink_to(FileSink(out, row="value"), name="copy")
    noted(job, Path(parts), stop=watched(Path(stop)))
