"""The reference job on Spark alone, as its own guides would write it: text or Kafka in, `partitionBy("dt")` text files out.

Run as a program: `spark_file_sink.py files FOLDER OUT CHECKPOINTS` or `spark_file_sink.py kafka SERVERS/TOPIC OUT CHECKPOINTS`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

__all__ = ["main", "session"]


def session(name: str, jars: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session of two tasks and 2 GB.

    Args:
        name: of the application.
        jars: paths with commas between, "" for none.
        settings: further settings of Spark.
    """
    # The collector the other engines here run with; C2 stays on, since the rows go through the JVM.
    builder = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", os.environ.get("BASELINE_JAVA_OPTIONS", "-XX:+UseSerialGC"))
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _lines(spark: SparkSession, kind: str, source: str) -> DataFrame:
    if kind == "files":
        return spark.readStream.text(source)
    servers, topic = source.split("/", 1)
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
    )


def main(kind: str, source: str, out: str, checkpoints: str) -> None:
    """Run the job to the end of its input.

    Args:
        kind: "files" or "kafka".
        source: folder, or servers and topic with a slash between.
        out: folder for the buckets.
        checkpoints: folder for Spark's checkpoint.
    """
    spark = session("spark-file-sink", os.environ.get("BASELINE_JARS", ""))
    event_time = "timestamp_seconds(from_json(value, 'timestamp double').timestamp)"
    (
        _lines(spark, kind, source)
        .selectExpr("value", f"date_format({event_time}, 'yyyyMMdd') AS dt")
        .writeStream.format("text")
        .partitionBy("dt")
        .option("checkpointLocation", checkpoints)
        .trigger(availableNow=True)
        .start(out)
        .awaitTermination()
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:5])
