"""JSON lines into a table of Delta or Iceberg on Spark alone, by the streaming sink that each project has for Structured Streaming.

Run as a program: `spark_table_sink.py FORMAT FOLDER PLACE CHECKPOINTS FILES-A-BATCH`, by the Python of the Spark that the jars are made for.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

__all__ = ["main"]

_SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.local.type": "hadoop",
    },
}


def main(format_: str, folder: str, place: str, checkpoints: str, files: str) -> None:
    """Run the job to the end of its input.

    Args:
        format_: "delta" or "iceberg".
        folder: of the lines.
        place: folder of the table, or of the catalog's warehouse.
        checkpoints: folder for Spark's checkpoint.
        files: how many files a batch reads.
    """
    # As the other baselines here: two tasks and 2 GB. A session of its own, since an older Spark may have no poundlock beside it.
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("spark-table-sink")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", os.environ.get("BASELINE_JAVA_OPTIONS", "-XX:+UseSerialGC"))
        .config("spark.jars", os.environ["BASELINE_JARS"])
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    for name, value in _SETTINGS[format_].items():
        builder = builder.config(name, value)
    if format_ == "iceberg":
        builder = builder.config("spark.sql.catalog.local.warehouse", place)
    spark = builder.getOrCreate()
    columns = "timestamp double, event string, uuid string"
    stream = (
        spark.readStream.schema(columns)
        .option("maxFilesPerTrigger", files)
        .json(folder)
        .writeStream.format(format_)
        .outputMode("append")
        .option("checkpointLocation", checkpoints)
        .trigger(availableNow=True)
    )
    if format_ == "delta":
        stream.start(f"{place}/events").awaitTermination()
    else:
        spark.sql(f"CREATE TABLE local.db.events ({columns}) USING iceberg")
        stream.toTable("local.db.events").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:6])
