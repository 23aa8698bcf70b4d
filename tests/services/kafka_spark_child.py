"""A Spark session in a process of its own, told what to read by lines of base64 pickles; run by test_kafka_spark.py.

In its own process because a JVM takes the connector's jars only when it starts, and other tests have other sessions.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
from typing import Any

from pyspark.sql import SparkSession

from poundlock.connectors.base import SparkRead
from poundlock.runtime.jars import jar_set
from poundlock.runtime.java import find_java


class Queries:
    """Streaming queries by name; each collects the rows of its batches."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.batches: dict[str, list[list[dict[str, Any]]]] = {}
        self.queries: dict[str, Any] = {}

    def start(self, name: str, read: SparkRead, checkpoint: str, until_done: bool) -> None:
        frame = self.spark.readStream.format(read.format).options(**read.options).load()
        frame = frame.selectExpr(*(read.columns or ["*"]))
        frame = frame.where(read.where) if read.where else frame
        batches = self.batches.setdefault(name, [])
        writer = frame.writeStream.foreachBatch(lambda batch, n: batches.append([_plain(r) for r in batch.collect()]))
        writer = writer.option("checkpointLocation", checkpoint)
        writer = writer.trigger(availableNow=True) if until_done else writer.trigger(processingTime="0 seconds")
        self.queries[name] = writer.start()

    def wait(self, name: str) -> str | None:
        try:
            self.queries[name].awaitTermination()
        except Exception as error:
            return str(error)
        return None

    def rows(self, name: str) -> list[list[dict[str, Any]]]:
        return self.batches[name]

    def position(self, name: str) -> Any:
        progress = self.queries[name].lastProgress
        return None if progress is None else json.loads(progress["sources"][0]["endOffset"])

    def stop(self, name: str) -> None:
        self.queries[name].stop()


def _plain(row: Any) -> dict[str, Any]:
    return {k: bytes(v) if isinstance(v, bytearray) else v for k, v in row.asDict(recursive=True).items()}


def main() -> None:
    java = find_java()
    os.environ |= {"JAVA_HOME": java.home, "PYSPARK_PYTHON": sys.executable}
    answers, sys.stdout = sys.stdout, sys.stderr
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.jars", ",".join(jar_set("kafka")))
        .config("spark.driver.extraJavaOptions", "-Xss16m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    queries = Queries(spark)
    for line in sys.stdin:
        method, arguments = pickle.loads(base64.b64decode(line))
        try:
            answer: Any = getattr(queries, method)(*arguments)
        except Exception as error:
            answer = error
        print(base64.b64encode(pickle.dumps(answer)).decode(), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
