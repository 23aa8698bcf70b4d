"""Rows that a query of Spark's reads: windows of ours behind them, and counts that Spark keeps itself in its own stream."""

from os import environ
from typing import Any

from poundlock import FileSink, Job, SparkSource, TumblingEventTimeWindows, WatermarkStrategy

job = Job(
    "crash-spark-stream",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    on_error="fail",
    spark={"spark.sql.shuffle.partitions": "1"},
)


def read() -> SparkSource:
    return SparkSource(
        "json", {"maxFilesPerTrigger": 1}, path=environ["CRASH_IN"], schema="k string, at bigint", bounded=True
    )


def counts_of_a_stream(frame: Any) -> Any:
    from pyspark.sql import functions as F

    timed = frame.withColumn("time", F.expr("timestamp_millis(at)")).withWatermark("time", "5 seconds")
    counts = timed.groupBy(F.window("time", "10 seconds"), "k").agg(F.count("*").alias("n"))
    return counts.selectExpr("k", "unix_millis(window.end) as end", "n")


rows = job.from_source(read(), name="rows")
rows.sink_to(FileSink(f"{environ['CRASH_OUT']}/rows", format="json"), name="rows-out")
timed = rows.assign_timestamps_and_watermarks(
    WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="at"), name="time"
)
counts = timed.key_by("k").window(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n", name="counts")
counts.select("k", "unix_millis(window_end) as end", "n").sink_to(
    FileSink(f"{environ['CRASH_OUT']}/counts", format="json"), name="counts-out"
)
job.from_source(read(), name="again").apply(counts_of_a_stream, name="sparks").sink_to(
    FileSink(f"{environ['CRASH_OUT']}/sparks", format="json"), name="sparks-out"
)
