"""Spark SQL and a DataFrame function between a source of our own and a sink."""

from typing import Any

from poundlock import FileSink, FileSource, Job, RollingPolicy


def summed(rows: Any) -> Any:
    """Return the sums of a checkpoint, by key."""
    from pyspark.sql import functions as F

    return rows.groupBy("k").agg(F.sum("twice").alias("total"), F.max("day").alias("day"))


job = Job("compat-segments", checkpoint_interval="0 s", checkpoint_dir="checkpoint", on_error="fail")
(
    job.from_source(FileSource("in", format="json", schema="k string, n bigint, at bigint"), name="rows")
    .select("upper(k) AS k", "n * 2 AS twice", "date_format(timestamp_millis(at), 'yyyy-MM-dd HH') AS day")
    .where("twice % 3 <> 0")
    .apply(summed)
    .sink_to(FileSink("out", format="json", rolling=RollingPolicy(on_checkpoint=True)), name="out")
)
