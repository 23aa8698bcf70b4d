"""The crash tests' job on Iceberg: generated rows into a table by partition, and that table, read as it grows, into another by key."""

from os import environ

import pyarrow as pa

from poundlock import DatagenSource, IcebergSink, IcebergSource, Job

catalog = {"type": "sql", "uri": environ["CRASH_CATALOG"], "warehouse": environ["CRASH_WAREHOUSE"]}
columns = pa.schema([("id", pa.int64()), ("word", pa.string())])

job = Job(
    "crash-iceberg",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    on_error="fail",
    require="exactly-once",
    parallelism=2,
)
if environ["CRASH_MODE"] == "append":
    rows = DatagenSource(
        "id bigint, word string",
        fields={"id": "sequence", "word": ["a", "b", "c"]},
        count=int(environ["CRASH_COUNT"]),
        rows_per_checkpoint=1_000,
        rows_per_split=300,
    )
    job.from_source(rows, name="rows").sink_to(
        IcebergSink(
            catalog,
            "db.events",
            create=columns,
            partition_by=["word"],
            tag="ck-{epoch}-{checkpoint}",
            compact_every=int(environ["CRASH_COMPACT"]) if "CRASH_COMPACT" in environ else None,
        ),
        name="table",
    )
else:
    grown = IcebergSource(
        catalog,
        "db.events",
        mode="incremental",
        starting_strategy="incremental_from_earliest_snapshot",
        end_snapshot_id=int(environ["CRASH_END"]),
        files_per_checkpoint=10,
        poll_every="0 s",
    )
    job.from_source(grown, name="events").sink_to(
        IcebergSink(catalog, "db.copy", create=columns, key=["id"]), name="copy"
    )
