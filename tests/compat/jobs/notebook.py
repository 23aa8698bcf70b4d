"""A job in a session that exists, in another time zone than ours, and the first rows of its streams."""

import json

from pyspark.sql import SparkSession

from poundlock import FileSink, FileSource, Job

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "America/New_York")
    .getOrCreate()
)
job = Job("compat-notebook", checkpoint_interval="0 s", checkpoint_dir="checkpoint", on_error="fail")
rows = job.from_source(FileSource("in", format="json", schema="k string, n bigint, at bigint"), name="rows")
hours = rows.select("n", "hour(timestamp_millis(at)) AS hour")
hours.sink_to(FileSink("out", format="json"), name="out")
first = hours.preview(2, spark=spark, timeout="200 s")
handle = job.start(spark)
ended = handle.await_termination(240)
own = spark.sql("SELECT hour(timestamp_millis(0)) AS hour").first()["hour"]
with open("seen.json", "w") as file:
    json.dump([len(first), sorted({row["hour"] for row in first}), ended, handle.status, own], file)
spark.stop()
