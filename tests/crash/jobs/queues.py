"""Messages of a queue into files, and rows of files into another queue; which system they are of says the environment."""

from os import environ
from typing import Any

from poundlock import (
    FileSink,
    FileSource,
    Job,
    KinesisStreamsSink,
    KinesisStreamsSource,
    MqttSink,
    MqttSource,
    PulsarSink,
    PulsarSource,
    RollingPolicy,
)

SCHEMA = "n bigint"


def ends() -> tuple[Any, Any]:
    """Return source and sink."""
    if environ["CRASH_SYSTEM"] == "kinesis":
        given = KinesisStreamsSource(
            "given", format="json", schema=SCHEMA, poll_every="100 ms", max_rows_per_checkpoint=200
        )
        return given, KinesisStreamsSink("copies", partition_key="n")
    broker = environ["CRASH_BROKER"]
    if environ["CRASH_SYSTEM"] == "pulsar":
        messages = PulsarSource(broker, "given", "job", format="json", schema=SCHEMA, max_rows_per_checkpoint=200)
        return messages, PulsarSink(broker, "copies", staging=environ["CRASH_STAGING"])
    source = MqttSource(
        broker,
        "given",
        client_id="crash-job",
        format="json",
        schema=SCHEMA,
        deduplicate="correlation-data",
        max_rows_per_checkpoint=200,
    )
    return source, MqttSink(broker, "copies", id_column="n")


source, sink = ends()
job = Job("crash-queues", checkpoint_interval="0 s", checkpoint_dir=environ["CRASH_CHECKPOINTS"], parallelism=2)
job.from_source(source, name="messages").sink_to(
    FileSink(environ["CRASH_OUT"], format="json", rolling=RollingPolicy(on_checkpoint=True)), name="files"
)
rows = FileSource(environ["CRASH_IN"], format="json", schema=SCHEMA, watch=True, discover_every="300 ms")
job.from_source(rows, name="rows").sink_to(sink, name="copies")
