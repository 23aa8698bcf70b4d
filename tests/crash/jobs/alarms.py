"""Alarms at least once: a topic to a topic, with a decision only when somebody asks for one."""

from os import environ

from poundlock import Job, KafkaSink, KafkaSource

servers = environ["CRASH_SERVERS"]
job = Job(
    "crash-alarms",
    checkpointing_mode="AT_LEAST_ONCE",
    checkpoint_interval="1 h",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    dead_letters=environ["CRASH_LETTERS"],
    parallelism=2,
)
events = job.from_source(KafkaSource(bootstrap_servers=servers, topics=environ["CRASH_IN"]), name="events")
long = events.filter(lambda record: len(record["value"]) > 3, name="long")
long.sink_to(KafkaSink(servers, environ["CRASH_OUT"], guarantee="at-least-once"), name="alarms")
