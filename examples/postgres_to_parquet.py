"""A table of PostgreSQL -> Parquet files: as it is now, as it grows, or every change of it.

Only the URL says where the files go: a folder, s3://bucket/prefix or hdfs://… Run it with: poundlock run examples/postgres_to_parquet.py
"""

from os import environ

from poundlock import FileSink, Job, PostgresSource, RollingPolicy

MODES = {
    "snapshot": {},
    "incremental": {"column": environ.get("POSTGRES_TO_PARQUET_COLUMN", "id")},
    "cdc": {
        "slot": environ.get("POSTGRES_TO_PARQUET_SLOT", "postgres_to_parquet"),
        "publication": environ.get("POSTGRES_TO_PARQUET_PUBLICATION", "postgres_to_parquet"),
    },
}
mode = environ.get("POSTGRES_TO_PARQUET_MODE", "snapshot")

job = Job(
    "postgres-to-parquet",
    checkpoint_interval=environ.get("POSTGRES_TO_PARQUET_INTERVAL", "10 s"),
    checkpoint_dir=environ.get("POSTGRES_TO_PARQUET_CHECKPOINTS"),
)
job.from_source(
    PostgresSource(
        environ.get("POSTGRES_TO_PARQUET_DSN", "postgresql://localhost/postgres"),
        table=environ.get("POSTGRES_TO_PARQUET_TABLE", "public.events"),
        mode=mode,
        **MODES[mode],
    ),
    name="table",
).sink_to(
    FileSink(
        environ.get("POSTGRES_TO_PARQUET_TO", "events"),
        format="parquet",
        rolling=RollingPolicy(every="60 s", size="128 MB"),
    ),
    name="files",
)
