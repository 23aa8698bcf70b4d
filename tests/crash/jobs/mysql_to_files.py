"""The crash tests' job on MariaDB: a table and its changes into JSON lines. Small chunks, so that there are many checkpoints."""

from os import environ
from typing import Any

from poundlock import FileSink, Job, MySqlSource, RollingPolicy

start: Any = environ["CRASH_START"]

job = Job("crash-mysql", checkpoint_interval="0 s", checkpoint_dir=environ["CRASH_CHECKPOINTS"], parallelism=2)
job.from_source(
    MySqlSource(
        environ["CRASH_DSN"],
        tables="events",
        start=start,
        chunk_size=int(environ["CRASH_CHUNK"]),
        chunks_per_checkpoint=3,
        poll_every="50 ms",
        max_log_per_checkpoint="64 KB",
    ),
    name="table",
).sink_to(
    FileSink(environ["CRASH_OUT"], format="json", rolling=RollingPolicy(every="1 s", size="1 MB")),
    name="files",
)
