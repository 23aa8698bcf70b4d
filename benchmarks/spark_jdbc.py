"""A table of PostgreSQL to Parquet on Spark alone, as its guides would write it: JDBC in parts by the key, Parquet out.

Run as a program: `spark_jdbc.py URL TABLE KEY LEAST GREATEST PARTS OUT`.
"""

from __future__ import annotations

import os
import sys

from benchmarks.spark_file_sink import session


def main(url: str, table: str, key: str, least: str, greatest: str, parts: str, out: str) -> None:
    """Copy the table.

    Args:
        url: of JDBC.
        table: its name.
        key: a number column to cut by.
        least, greatest: its range.
        parts: how many queries there are.
        out: folder.
    """
    spark = session("spark-jdbc", os.environ.get("BASELINE_JARS", ""))
    (
        spark.read.format("jdbc")
        .option("url", url)
        .option("driver", "org.postgresql.Driver")
        .option("dbtable", table)
        .option("partitionColumn", key)
        .option("lowerBound", least)
        .option("upperBound", greatest)
        .option("numPartitions", parts)
        .option("fetchsize", "10000")  # without it the driver holds a whole part in memory
        .load()
        .write.parquet(out)
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:8])
