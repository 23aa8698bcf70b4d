"""A streaming query of the user's own with files and a topic whose transactions time out soon.

Arguments: folder, servers, topic.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from poundlock import FileSink, KafkaSink, RollingPolicy, foreach_batch


def main(folder: str, servers: str, topic: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    write = foreach_batch(
        files=FileSink(f"{folder}/files", row="value", rolling=RollingPolicy(on_checkpoint=True)),
        topic=KafkaSink(servers, topic, transactional_id_prefix=topic, transaction_timeout="20 s"),
        checkpoint_dir=f"{folder}/ledger",
    )
    rows = spark.readStream.option("maxFilesPerTrigger", 4).text(f"{folder}/in")
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/spark")
    query.trigger(availableNow=True).start().awaitTermination()
    write.finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
