"""Counts by key and ten seconds on Spark alone, as its own guides would write them.

Run as a program: `spark_keyed.py WORK KEYS IN OUT CHECKPOINTS`; see `jobs/keyed_work.py`. The state backend is poundlock's default.
"""

from __future__ import annotations

import sys

from pyspark.sql import functions as F

from benchmarks.jobs.keyed_work import session_gap_us
from benchmarks.spark_file_sink import session

__all__ = ["main"]


def main(work: str, keys: str, given: str, out: str, checkpoints: str) -> None:
    """Count all rows there are; windows that are open at the end are not written, as Spark has it."""
    spark = session("spark-keyed", "")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    state = "spark.sql.streaming.stateStore"
    spark.conf.set(f"{state}.providerClass", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    spark.conf.set(f"{state}.rocksdb.changelogCheckpointing.enabled", "true")
    rows = (
        spark.readStream.schema("at timestamp, key string, n bigint")
        .option("maxFilesPerTrigger", "1")
        .parquet(given)
        .withWatermark("at", "5 seconds")
    )
    gap = f"{session_gap_us(int(keys)) // 1000} milliseconds"
    window = F.window("at", "10 seconds") if work.startswith("window") else F.session_window("at", gap)
    counts = rows.groupBy("key", window.alias("w")).agg(F.count(F.lit(1)).alias("n"))
    (
        counts.select("key", "w.start", "w.end", "n")
        .writeStream.format("json")
        .option("path", out)
        .option("checkpointLocation", checkpoints)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
