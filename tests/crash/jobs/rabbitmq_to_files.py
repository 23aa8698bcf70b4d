"""A queue of RabbitMQ into files, and once more into another queue."""

from os import environ

from poundlock import FileSink, Job, RMQSink, RMQSource, RollingPolicy

job = Job("crash-rabbitmq", checkpoint_interval="0 s", checkpoint_dir=environ["CRASH_CHECKPOINTS"], parallelism=2)
messages = job.from_source(
    RMQSource(
        environ["CRASH_BROKER"],
        "given",
        format="json",
        schema="n bigint",
        deduplicate="message-id",
        max_rows_per_checkpoint=200,
    ),
    name="messages",
)
messages.sink_to(FileSink(environ["CRASH_OUT"], format="json", rolling=RollingPolicy(on_checkpoint=True)), name="files")
messages.sink_to(RMQSink(environ["CRASH_BROKER"], "copies", id_column="n"), name="copies")
