"""The reference job: JSON events from Kafka into files by the day of the event, each event in exactly one finished file.

Every setting can be given by an environment variable; run it with `poundlock run event_log.py`.
"""

from os import environ

from poundlock import EventTimeBucketAssigner, FileSink, Job, KafkaSource, RollingPolicy

job = Job(
    "event-log",
    checkpoint_interval=environ.get("EVENT_LOG_INTERVAL", "10 s"),
    checkpoint_dir=environ.get("EVENT_LOG_CHECKPOINTS"),
    dead_letters=environ.get("EVENT_LOG_DEAD_LETTERS"),
)
events = job.from_source(
    KafkaSource(
        bootstrap_servers=environ.get("EVENT_LOG_SERVERS", "localhost:9092"),
        topics=environ.get("EVENT_LOG_TOPIC", "flink_test"),
        group_id=environ.get("EVENT_LOG_GROUP", "event-log"),
        start="earliest",
        max_records_per_checkpoint=int(environ.get("EVENT_LOG_MAX_PER_CHECKPOINT", "2000000")),
    ),
    name="events",
)
events.sink_to(
    FileSink(
        environ.get("EVENT_LOG_OUT", "event_log"),
        row="value",
        bucket=EventTimeBucketAssigner("timestamp", "'dt='yyyyMMdd", zone=environ.get("EVENT_LOG_ZONE", "UTC")),
        rolling=RollingPolicy(
            every=environ.get("EVENT_LOG_ROLL_EVERY", "60 s"), size=environ.get("EVENT_LOG_ROLL_SIZE", "128 MB")
        ),
    ),
    name="event_log",
)
