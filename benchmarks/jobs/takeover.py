"""A topic into files, for `poundlock run --standby`: TAKEOVER_SERVERS, TAKEOVER_TOPIC, and TAKEOVER_ROOT with output and checkpoint below it."""

from os import environ

from poundlock import FileSink, Job, KafkaSource

root = environ["TAKEOVER_ROOT"]
job = Job("takeover", checkpoint_interval="0 s", checkpoint_dir=f"{root}/checkpoints", parallelism=2, on_error="fail")
events = job.from_source(
    KafkaSource(bootstrap_servers=environ["TAKEOVER_SERVERS"], topics=environ["TAKEOVER_TOPIC"]), name="events"
)
events.sink_to(FileSink(f"{root}/out", row="value"), name="copy")
