"""A Delta table read commit by commit, into one to which rows are added and into one into which they are merged by key."""

from os import environ

from poundlock import DeltaSink, DeltaSource, Job

SCHEMA = "id bigint, day string, k bigint, v string"
out = environ["CRASH_OUT"]
job = Job(
    "crash-delta",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    parallelism=2,
    on_error="fail",
)
rows = job.from_source(
    DeltaSource(
        environ["CRASH_IN"],
        max_files_per_checkpoint=1,
        **({"watch": True, "discover_every": "100 ms"} if environ.get("CRASH_WATCH") == "1" else {}),
    ),
    name="rows",
)
rows.sink_to(DeltaSink(f"{out}/added", schema=SCHEMA, partition_by=["day"]), name="added")
rows.sink_to(DeltaSink(f"{out}/merged", schema=SCHEMA, key=["k"]), name="merged")
