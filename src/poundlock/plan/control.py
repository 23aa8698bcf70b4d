"""Control rows: the watermark in use in a batch as rows of the batch, for operators that are not Spark's own.

What a row says is in Spark's log of the batch before the batch begins, so a batch that is run again has the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from poundlock.operators.watermarks import MIN
from poundlock.plan.arrow import map_in_arrow
from poundlock.plan.splits import TICKER, ticker_options
from poundlock.plan.tasks import directive_of_task
from poundlock.plan.uses import spark_name

__all__ = ["CONTROL", "CONTROL_COLUMNS", "control_rows"]

CONTROL = "#control"
"""Begins the names by which Spark knows them; no source can be called so."""

CONTROL_COLUMNS = "group int, watermark bigint, watermark_before bigint"
"""`watermark`: the one in use in the batch. `watermark_before`: that of the batch before, by which the batch's rows are judged.

Both are ms since the epoch, `operators.watermarks.MIN` before any and `MAX` behind the end of the input.
"""


def control_rows(
    spark: SparkSession, groups: int = 1, *, name: str = "", tasks: int = 1, streaming: bool = True
) -> DataFrame:
    """Return one row for each group in every batch: its number, and the watermark; see CONTROL_COLUMNS.

    A query that has them has a batch at each trigger, as with a split-planned source.

    Args:
        spark: the session.
        groups: how many rows, numbered from 0; with 1 it is the single-row form.
        name: tells several of a query apart.
        tasks: over how many tasks they are spread.
        streaming: False for a batch query that reads what was decided once more.
    """
    if streaming:
        options = ticker_options(groups) | {"numPartitions": str(min(groups, tasks))}
        ticker = spark.readStream.name(spark_name(f"{CONTROL}{name}")).format(TICKER).options(**options).load()
        rows = ticker.selectExpr(f"CAST(value % {groups} AS INT) AS `group`")
    else:
        rows = spark.range(0, groups, 1, min(groups, tasks)).selectExpr("CAST(id AS INT) AS `group`")
    return map_in_arrow(rows, _with_watermark, CONTROL_COLUMNS)


def _with_watermark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    directive = directive_of_task()
    said = [int(directive.get(column, MIN)) for column in ("watermark", "watermark_before")]
    for batch in batches:
        columns = [pa.repeat(pa.scalar(value, pa.int64()), batch.num_rows) for value in said]
        yield pa.RecordBatch.from_arrays([batch.column(0), *columns], names=["group", "watermark", "watermark_before"])
