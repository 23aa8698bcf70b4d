"""The copy of a topic on Spark alone, as its own guides would write it; its sink is at-least-once.

Run as a program: `spark_kafka_sink.py SERVERS/TOPIC OUT rows:N CHECKPOINTS` reads what is there, N rows a batch, and ends;
`spark_kafka_sink.py SERVERS/TOPIC OUT every:SECONDS CHECKPOINTS STOP` goes on until a file STOP is there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.spark_file_sink import session

__all__ = ["main"]


def main(source: str, out: str, pace: str, checkpoints: str, stop: str = "") -> None:
    """Copy until the end of the input, or until told to stop.

    Args:
        source: servers and topic with a slash between.
        out: topic to write to.
        pace: "rows:N" or "every:SECONDS".
        checkpoints: folder for Spark's checkpoint.
        stop: file that ends a copy of the second kind.
    """
    spark = session("spark-kafka-sink", os.environ.get("BASELINE_JARS", ""))
    servers, topic = source.split("/", 1)
    kind, figure = pace.split(":", 1)
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    if kind == "rows":
        reader = reader.option("maxOffsetsPerTrigger", figure)
    writer = (
        reader.load()
        .select("value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", out)
        .option("checkpointLocation", checkpoints)
    )
    if kind == "rows":
        writer.trigger(availableNow=True).start().awaitTermination()
    else:
        query = writer.trigger(processingTime=f"{figure} seconds").start()
        while not Path(stop).exists():
            if query.awaitTermination(0.2):
                sys.exit("the query ended by itself")
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
