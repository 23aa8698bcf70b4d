"""Control rows: one for each key group in every batch, so that every group is told the time in every batch.

The clock in them is Spark's time of the batch, and the watermark is what the driver says of the batch: both are in logs before
the batch begins, so a batch that is run again has the same.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from poundlock.plan.packing import CONTROL
from poundlock.plan.splits import TICKER, ticker_options
from poundlock.plan.uses import spark_name

__all__ = ["control_rows"]

_NAME = "#control"  # no source can be called so


def control_rows(
    spark: SparkSession, groups: int, *, name: str = "", tasks: int = 1, streaming: bool = True
) -> DataFrame:
    """Return a row of PACKED for each group in every batch; its payload is the clock, in ms.

    A query that has them has a batch at each trigger, as with a split-planned source.

    Args:
        spark: the session.
        groups: how many rows, numbered from 0.
        name: tells several of a query apart.
        tasks: over how many tasks they are spread.
        streaming: False for a batch query that reads what was decided once more.
    """
    if streaming:
        options = ticker_options(groups) | {"numPartitions": str(min(groups, tasks))}
        rows = spark.readStream.name(spark_name(f"{_NAME}{name}")).format(TICKER).options(**options).load()
    else:
        rows = spark.range(0, groups, 1, min(groups, tasks)).withColumnRenamed("id", "value")
    packs: DataFrame = rows.selectExpr(
        f"CAST(value % {groups} AS INT) AS `group`",
        f"{CONTROL} AS side",
        "'' AS place",
        "CAST(CAST(unix_millis(current_timestamp()) AS STRING) AS BINARY) AS payload",
    )
    return packs
