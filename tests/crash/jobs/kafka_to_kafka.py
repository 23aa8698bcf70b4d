"""The crash tests' job from Kafka to Kafka: one topic out, or two topics and files under one decision."""

import time
from os import environ

from poundlock import FileSink, Job, KafkaSink, KafkaSource, RollingPolicy, TopicExpression

servers = environ["CRASH_SERVERS"]
timeout = environ.get("CRASH_TIMEOUT", "60 s")
prefix = environ["CRASH_OUT"]
slow = float(environ.get("CRASH_SLOW_S", "0"))


def slowly(record):
    time.sleep(slow)
    return {"key": record["key"], "value": record["value"]}


job = Job(
    "crash-kafka",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    on_error="fail",
    parallelism=2,
)
events = job.from_source(
    KafkaSource(
        bootstrap_servers=servers,
        topics=environ["CRASH_IN"],
        max_records_per_checkpoint=int(environ.get("CRASH_RECORDS", "1500")),
    ),
    name="events",
)
if slow:
    events = events.map(slowly, schema="key BINARY, value BINARY")
events.sink_to(
    KafkaSink(
        servers,
        f"{prefix}-a",
        key="key",
        transactional_id_prefix=prefix,
        transaction_timeout=timeout,
        commit_mode=environ.get("CRASH_MODE", "two_phase"),
    ),
    name="a",
)
if environ.get("CRASH_SINKS") == "3":
    events.sink_to(
        KafkaSink(
            servers,
            TopicExpression(f"concat('{prefix}', '-b')"),
            key="key",
            headers={"from": "topic"},
            transactional_id_prefix=prefix,
            transaction_timeout=timeout,
            compression="lz4",
        ),
        name="b",
    )
    events.sink_to(
        FileSink(environ["CRASH_FILES"], row="value", rolling=RollingPolicy(on_checkpoint=True)), name="files"
    )
