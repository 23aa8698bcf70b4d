"""JSON lines into a table of PostgreSQL on Spark alone, as its own guides write it: `foreachBatch` and the JDBC writer.

Run as a program: `spark_jdbc_sink.py FOLDER URL TABLE CHECKPOINTS FILES-A-BATCH`. It is at-least-once. `reWriteBatchedInserts`
is the driver's own setting for many rows a statement; without it the writer takes several times as long.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame

from benchmarks.spark_file_sink import session

__all__ = ["main"]


def main(place: str, url: str, table: str, checkpoints: str, files: str) -> None:
    """Run the job to the end of its input.

    Args:
        place: folder of the lines.
        url: JDBC URL of the database.
        table: the table.
        checkpoints: folder for Spark's checkpoint.
        files: how many files a batch reads.
    """
    spark = session("spark-jdbc-sink", os.environ.get("BASELINE_JARS", ""))

    def write(batch: DataFrame, number: int) -> None:
        (
            batch.write.format("jdbc")
            .option("url", f"{url}&reWriteBatchedInserts=true")
            .option("driver", "org.postgresql.Driver")
            .option("dbtable", table)
            .option("batchsize", 10_000)
            .mode("append")
            .save()
        )

    (
        spark.readStream.schema("timestamp double, event string, uuid string")
        .option("maxFilesPerTrigger", files)
        .json(place)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoints)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:6])
