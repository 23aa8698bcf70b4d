"""A streaming query of the user's own with three sinks of ours: files, a table of PostgreSQL and a topic.

Arguments: folder, servers, topic, DSN, table.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from poundlock import FileSink, KafkaSink, PostgresSink, RollingPolicy, foreach_batch


def main(folder: str, servers: str, topic: str, dsn: str, table: str) -> None:
    # Eight attempts a task: one whose process is killed is run again.
    spark = SparkSession.builder.master("local[2,8]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    write = foreach_batch(
        files=FileSink(f"{folder}/files", row="value", rolling=RollingPolicy(on_checkpoint=True)),
        table=PostgresSink(dsn, table),
        topic=KafkaSink(servers, topic, transactional_id_prefix=topic, transaction_timeout="60 s"),
        checkpoint_dir=f"{folder}/ledger",
    )
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(f"{folder}/in")
    query = rows.repartition(2).writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/spark")
    query.trigger(availableNow=True).start().awaitTermination()
    write.finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
