"""JSON lines into Parquet files on S3 on Spark alone, as its own guides write it: the streaming file sink, to `s3a://`.

Run as a program: `spark_s3_sink.py FOLDER OUT CHECKPOINTS FILES-A-BATCH`; jars and Hadoop's settings come in the environment.
"""

from __future__ import annotations

import json
import os
import sys

from benchmarks.spark_file_sink import session

__all__ = ["main"]


def main(place: str, out: str, checkpoints: str, files: str) -> None:
    """Run the job to the end of its input.

    Args:
        place: folder of the lines.
        out: folder for the files, `s3a://…`.
        checkpoints: folder for Spark's checkpoint.
        files: how many files a batch reads.
    """
    settings = json.loads(os.environ.get("BASELINE_SETTINGS", "{}"))
    spark = session("spark-s3-sink", os.environ.get("BASELINE_JARS", ""), settings)
    (
        spark.readStream.schema("timestamp double, event string, uuid string")
        .option("maxFilesPerTrigger", files)
        .json(place)
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoints)
        .trigger(availableNow=True)
        .start(out)
        .awaitTermination()
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:5])
