"""The crash tests' job on PostgreSQL: a table, or its changes, into JSON lines. Small ranges, so that there are many checkpoints."""

from os import environ
from typing import Any

from poundlock import FileSink, Job, PostgresSource, RollingPolicy

MODES: dict[str, dict[str, Any]] = {
    "snapshot": {"split_size": "64 KB"},
    "incremental": {"column": "id", "until": environ.get("CRASH_UNTIL"), "settle": "0 s", "poll_every": "50 ms",
                    "rows_per_split": 500, "max_rows_per_checkpoint": 1000},
    "cdc": {"slot": "crash", "publication": "crash", "poll_every": "50 ms", "max_wal_per_checkpoint": "256 KB"},
}  # fmt: skip
mode: Any = environ["CRASH_MODE"]

job = Job("crash-postgres", checkpoint_interval="0 s", checkpoint_dir=environ["CRASH_CHECKPOINTS"], parallelism=2)
job.from_source(
    PostgresSource(environ["CRASH_DSN"], table="public.events", mode=mode, **MODES[mode]), name="table"
).sink_to(
    FileSink(environ["CRASH_OUT"], format="json", rolling=RollingPolicy(every="1 s", size="1 MB")),
    name="files",
)
