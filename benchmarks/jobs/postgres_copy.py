"""JSON lines into a table of PostgreSQL on poundlock. Arguments: FOLDER DSN TABLE CHECKPOINTS ROWS-A-CHECKPOINT-IN-BYTES."""

from __future__ import annotations

import sys

from poundlock import FileSource, Job, PostgresSink

if __name__ == "__main__":
    place, dsn, table, checkpoints, size = sys.argv[1:6]
    job = Job("postgres-copy", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2, on_error="fail")
    source = FileSource(
        place,
        format="json",
        schema="timestamp double, event string, uuid string",
        max_bytes_per_checkpoint=size,
    )
    job.from_source(source, name="events").sink_to(PostgresSink(dsn, table), name="table")
    print(job.run())
