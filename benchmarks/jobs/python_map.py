"""A Python function per record: JSON lines in, the function names the day, JSON lines out in its folder. Arguments: FOLDER OUT CHECKPOINTS."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

from poundlock import FileSink, FileSource, Job, PythonBucketAssigner


def with_day(event: dict[str, Any]) -> dict[str, Any]:
    return {"dt": datetime.fromtimestamp(event["timestamp"], UTC).strftime("%Y%m%d"), **event}


def bucket(event: dict[str, Any]) -> str:
    return f"dt={event['dt']}"


if __name__ == "__main__":
    place, out, checkpoints = sys.argv[1:4]
    columns = "timestamp double, event string, uuid string"
    job = Job("python-map", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2)
    events = job.from_source(FileSource(place, format="json", schema=columns), name="events")
    days = events.map(with_day, schema=f"dt string, {columns}", name="with_day")
    days.sink_to(FileSink(out, format="json", bucket=PythonBucketAssigner(bucket)), name="days")
    print(job.run())
