"""Rows (timestamp, key, value) of a topic, counted and added up by key and ten seconds on poundlock. Arguments: SERVERS/TOPIC OUT CHECKPOINTS."""

from __future__ import annotations

import sys

from poundlock import FileSink, Job, KafkaSource, TumblingEventTimeWindows, WatermarkStrategy

if __name__ == "__main__":
    place, out, checkpoints = sys.argv[1:4]
    servers, topic = place.split("/", 1)
    job = Job("key-windows", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2, on_error="fail")
    schema = "timestamp double, key string, value double"
    rows = job.from_source(
        KafkaSource(bootstrap_servers=servers, topics=topic, format="json", schema=schema, end="latest"),
        WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="timestamp_seconds(timestamp)"),
        name="rows",
    )
    sums = rows.key_by("key").window(TumblingEventTimeWindows("10 s"))
    totals = sums.aggregate("count(*) as n", "sum(value) as total", name="totals")
    totals.sink_to(FileSink(out, format="json"), name="out")
    print(job.run())
