"""Kafka -> one-minute windows -> Kafka, exactly once: how often each event happened, by event time.

The pipeline of Flink's article on two-phase commit. Start a broker with: poundlock kafka up --topic events --topic counts
Then run: poundlock run examples/window_counts.py
"""

from os import environ

from poundlock import Job, KafkaSink, KafkaSource, TumblingEventTimeWindows, WatermarkStrategy

SERVERS = environ.get("WINDOW_COUNTS_SERVERS", "localhost:9092")

job = Job(
    "window-counts",
    checkpoint_interval=environ.get("WINDOW_COUNTS_INTERVAL", "1 s"),
    checkpoint_dir=environ.get("WINDOW_COUNTS_CHECKPOINTS"),
    dead_letters=environ.get("WINDOW_COUNTS_DEAD_LETTERS", "window-counts-dead-letters"),
    require="exactly-once",
)
events = job.from_source(
    KafkaSource(
        bootstrap_servers=SERVERS,
        topics=environ.get("WINDOW_COUNTS_FROM", "events"),
        format="json",
        schema="timestamp double, event string",
        max_records_per_checkpoint=int(environ.get("WINDOW_COUNTS_MAX_PER_CHECKPOINT", "1000000")),
    ),
    name="events",
)
by_event_time = WatermarkStrategy.bounded_out_of_orderness(
    "5 s", timestamp="timestamp_millis(bigint(round(timestamp * 1000)))"
)
counts = (
    events.assign_timestamps_and_watermarks(by_event_time, name="event-time")
    .key_by("event")
    .window(TumblingEventTimeWindows("1 min"))
    .aggregate("count(*) as n", name="per-minute")
    .select("event", "unix_millis(window_start) as window_start_ms", "n")
)
counts.sink_to(KafkaSink(SERVERS, environ.get("WINDOW_COUNTS_TO", "counts"), key="event", format="json"), name="counts")
