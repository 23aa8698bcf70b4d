"""The crash tests' job with three sinks under one decision: lines of files into files, a table of PostgreSQL and a topic."""

from os import environ

from poundlock import FileSink, FileSource, Job, KafkaSink, PostgresSink, RollingPolicy

job = Job(
    "three-sinks",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    on_error="fail",
    require="exactly-once",
    parallelism=2,
)
lines = job.from_source(
    FileSource(
        environ["CRASH_IN"],
        format="text",
        watch=environ.get("CRASH_WATCH") == "1",
        max_bytes_per_checkpoint="16 KB",
        split_size="8 KB",
    ),
    name="lines",
)
lines.sink_to(FileSink(environ["CRASH_FILES"], row="value", rolling=RollingPolicy(on_checkpoint=True)), name="files")
lines.sink_to(PostgresSink(environ["CRASH_DSN"], environ["CRASH_TABLE"]), name="table")
lines.sink_to(
    KafkaSink(
        environ["CRASH_SERVERS"],
        environ["CRASH_TOPIC"],
        transactional_id_prefix=environ["CRASH_TOPIC"],
        transaction_timeout="60 s",
    ),
    name="topic",
)
