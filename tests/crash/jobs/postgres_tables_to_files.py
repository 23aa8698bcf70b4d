"""The crash tests' job on changes of PostgreSQL: two tables, in small chunks, into JSON lines, so that there are many checkpoints."""

from os import environ

from poundlock import FileSink, Job, PostgresSource, RollingPolicy

job = Job("crash-tables", checkpoint_interval="0 s", checkpoint_dir=environ["CRASH_CHECKPOINTS"], parallelism=2)
job.from_source(
    PostgresSource(
        environ["CRASH_DSN"],
        tables=[r"public\.events_[ab]"],
        mode="cdc",
        slot="crash",
        publication="crash",
        chunk_size=int(environ["CRASH_CHUNK"]),
        chunks_per_checkpoint=3,
        poll_every="50 ms",
        max_wal_per_checkpoint="256 KB",
    ),
    name="tables",
).sink_to(
    FileSink(environ["CRASH_OUT"], format="json", rolling=RollingPolicy(every="1 s", size="1 MB")),
    name="files",
)
