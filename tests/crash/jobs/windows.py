"""Windows over files, a file a checkpoint, for a job that is killed while windows are open."""

from os import environ

from poundlock import FileSink, FileSource, Job, TumblingEventTimeWindows, WatermarkStrategy

job = Job(
    "crash-windows",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    on_error="fail",
    spark={"spark.sql.shuffle.partitions": "1"},
)
(
    job.from_source(
        FileSource(environ["CRASH_IN"], format="json", schema="k string, at bigint", max_files_per_checkpoint=1),
        WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="at"),
        name="rows",
    )
    .key_by("k")
    .window(TumblingEventTimeWindows("10 s"))
    .aggregate("count(*) as n", name="counts")
    .select("k", "unix_millis(window_end) as end", "n")
    .sink_to(FileSink(environ["CRASH_OUT"], format="json"), name="out")
)
