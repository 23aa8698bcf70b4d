"""The reference job on poundlock: raw lines by event time. Arguments: `files FOLDER` or `kafka SERVERS/TOPIC`, then OUT CHECKPOINTS."""

from __future__ import annotations

import sys
from typing import Any

from poundlock import EventTimeBucketAssigner, FileSink, FileSource, Job, KafkaSource


def source(kind: str, place: str) -> Any:
    if kind == "files":
        return FileSource(place)
    servers, topic = place.split("/", 1)
    return KafkaSource(bootstrap_servers=servers, topics=topic, end="latest")


if __name__ == "__main__":
    kind, place, out, checkpoints = sys.argv[1:5]
    job = Job("event-log", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2)
    sink = FileSink(out, row="value", bucket=EventTimeBucketAssigner("timestamp", "'dt='yyyyMMdd", zone="UTC"))
    job.from_source(source(kind, place), name="events").sink_to(sink, name="event_log")
    print(job.run())
