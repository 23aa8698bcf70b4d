"""A streaming query of the user's own: JSON files in, bucketed files out, one input file a batch.

Arguments: folder, folder of the ledger.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from poundlock import ExpressionBucketAssigner, FileSink, RollingPolicy, foreach_batch


def main(folder: Path, ledger: str) -> None:
    # Eight attempts a task: one whose process is killed is run again.
    spark = SparkSession.builder.master("local[2,8]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    write = foreach_batch(
        each=FileSink(
            str(folder / "each"),
            bucket=ExpressionBucketAssigner("concat('k=', n % 3)"),
            rolling=RollingPolicy(on_checkpoint=True),
        ),
        full=FileSink(str(folder / "full"), rolling=RollingPolicy(size="20 KB")),
        checkpoint_dir=ledger,
    )
    rows = spark.readStream.schema("n bigint, text string").option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    query = (
        rows.where("n >= 0")
        .repartition(2)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "spark"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    write.finish()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
