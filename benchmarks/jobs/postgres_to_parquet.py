"""A table of PostgreSQL to Parquet on poundlock. Arguments: DSN TABLE OUT CHECKPOINTS."""

from __future__ import annotations

import sys

from poundlock import FileSink, Job, PostgresSource

if __name__ == "__main__":
    dsn, table, out, checkpoints = sys.argv[1:5]
    job = Job("postgres-to-parquet", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2)
    job.from_source(PostgresSource(dsn, table=table), name="table").sink_to(
        FileSink(out, format="parquet"), name="files"
    )
    print(job.run())
