"""The job of the savepoint rounds: a topic to files, and a topic through windows to files; what changes is in a JSON file."""

import json
from os import environ
from pathlib import Path

from poundlock import FileSink, Job, KafkaSource, RollingPolicy, TumblingEventTimeWindows, WatermarkStrategy

now = json.loads(Path(environ["ROUNDS_CONFIG"]).read_text())
output = now["output"]
rolling = RollingPolicy(every="1 h", size="16 kB", inactivity=None)
job = Job(
    "rounds",
    checkpoint_interval=now["interval"],
    checkpoint_dir=now["checkpoint"],
    parallelism=now["parallelism"],
    on_error="fail",
    checkpoints_retained=2,
)


def read(topic, **more):
    source = KafkaSource(
        bootstrap_servers=environ["ROUNDS_SERVERS"],
        topics=f"{environ['ROUNDS_TOPICS']}-{topic}",
        max_records_per_checkpoint=600,
        **more,
    )
    return job.from_source(source, name=topic)


def raw():
    events = read("events")
    if now["filter"]:
        events = events.where("length(value) > 0", name="not-empty")
    if now["project"]:
        events = events.select("value", "1 as one", name="projected").drop("one", name="without")
    events.sink_to(FileSink(f"{output}/events", row="value", rolling=rolling), name="event-files")


def windows():
    clicks = read("clicks", format="json", schema="t bigint, k string")
    by_time = WatermarkStrategy.bounded_out_of_orderness("2000 s", timestamp="timestamp_seconds(t)")
    counts = (
        clicks.assign_timestamps_and_watermarks(by_time, name="time")
        .key_by("k")
        .window(TumblingEventTimeWindows("100 s"))
        .aggregate("count(*) as n", name="counts")
        .select("cast(concat_ws(',', k, unix_seconds(window_start), n) as binary) as line", name="lines")
    )
    counts.sink_to(FileSink(f"{output}/counts", row="line", rolling=rolling), name="count-files")


def extra():
    read("extra").sink_to(FileSink(now["extra"], row="value", rolling=rolling), name="extra-files")


parts = [raw, windows, *([extra] if now["extra"] else [])]
for part in reversed(parts) if now["reversed"] else parts:
    part()
