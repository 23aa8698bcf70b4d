"""A table of PostgreSQL -> Parquet on S3: as it is now, as it grows, or every change of it.

Every setting can be given by an environment variable; password and keys are found as psql and Amazon's tools find theirs:

    export PGPASSWORD=… AWS_PROFILE=etl AWS_REGION=eu-central-1
    poundlock run examples/postgres_to_parquet.py

A server that is not Amazon's is named by AWS_ENDPOINT_URL. Only the URL says where the files go: s3://bucket/prefix,
hdfs://… or a folder. The checkpoint is kept beside them, so the job goes on from any machine.
"""

from os import environ

from poundlock import FileSink, Job, PostgresSource

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
    # A file of Parquet ends with its checkpoint, so this says how soon rows are visible, and how many files there are.
    checkpoint_interval=environ.get("POSTGRES_TO_PARQUET_INTERVAL", "60 s"),
    checkpoint_dir=environ.get("POSTGRES_TO_PARQUET_CHECKPOINTS", "s3://warehouse/checkpoints/postgres-to-parquet"),
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
    FileSink(environ.get("POSTGRES_TO_PARQUET_TO", "s3://warehouse/events"), format="parquet"),
    name="files",
)
