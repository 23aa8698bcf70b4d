"""Several sinks under one decision: page views to Parquet by hour, the rest to JSON lines, what has no user to a side output.

Reads JSON lines from the folder `input` and goes on with files that come later; run it with `poundlock run sort_out.py`.
"""

from collections.abc import Iterator
from os import environ
from typing import Any

from poundlock import EventTimeBucketAssigner, FileCompaction, FileSink, FileSource, Job, Side

OUT = environ.get("SORT_OUT_OUT", "output")


def sort_out(record: dict[str, Any]) -> Iterator[dict[str, Any] | Side]:
    """Give known users in lower case; records without a user go to a side output."""
    if not record["user"]:
        yield Side("anonymous", {"timestamp": record["timestamp"], "event": record["event"]})
    else:
        yield {**record, "user": record["user"].lower()}


job = Job("sort-out", checkpoint_dir=environ.get("SORT_OUT_CHECKPOINTS"), dead_letters=f"{OUT}/_dead_letters")
events = job.from_source(
    FileSource(
        environ.get("SORT_OUT_IN", "input"),
        format="json",
        schema="timestamp double, event string, user string",
        watch=environ.get("SORT_OUT_WATCH", "true") == "true",
    ),
    name="events",
)
known = events.flat_map(
    sort_out,
    schema="timestamp double, event string, user string",
    side_outputs={"anonymous": "timestamp double, event string"},
    name="sort-out",
)
known.filter(lambda record: record["event"] == "page_view", name="views").sink_to(
    FileSink(
        f"{OUT}/views",
        format="parquet",
        bucket=EventTimeBucketAssigner("timestamp", "'dt='yyyyMMdd'/hour='HH", zone="UTC"),
        compaction=FileCompaction(min_size="64 MB", max_wait="10 min"),
    ),
    name="views-files",
)
known.filter(lambda record: record["event"] != "page_view", name="others").sink_to(
    FileSink(f"{OUT}/others"), name="others-files"
)
known.side_output("anonymous").sink_to(FileSink(f"{OUT}/anonymous"), name="anonymous-files")
