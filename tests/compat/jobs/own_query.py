"""A streaming query of a user's own, with our sink; a kill after the decision comes from outside."""

from pyspark.sql import SparkSession

from poundlock import FileSink, RollingPolicy, foreach_batch

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.schema("k string, n bigint, at bigint").option("maxFilesPerTrigger", 1).json("in")
write = foreach_batch(
    FileSink("out", format="json", rolling=RollingPolicy(on_checkpoint=True)), checkpoint_dir="ledger"
)
query = rows.writeStream.foreachBatch(write).option("checkpointLocation", "query").trigger(availableNow=True).start()
query.awaitTermination()
write.finish()
