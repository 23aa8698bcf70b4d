"""Where the rows of a query come from: each use of a source as a DataFrame, read by Spark's connector or by tasks that get splits.

A second use of a source is a source of its own to Spark, so every use has a name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from poundlock.connectors.base import SparkRead, SplitSource
from poundlock.formats import ddl
from poundlock.plan.arrow import map_in_arrow
from poundlock.plan.control import control_rows
from poundlock.plan.event_time import SPLIT_SLOTS
from poundlock.plan.lowered import BYTES
from poundlock.plan.rows import BAD, HIDDEN, OFFSET, PARTITION, SPLIT, TOPIC
from poundlock.plan.splits import TICKER, ticker_options
from poundlock.plan.sql import quoted
from poundlock.plan.tasks import RECORD, decode_task, source_task
from poundlock.plan.uses import nth_use, source_of, spark_name
from poundlock.stream.nodes import SourceNode

__all__ = ["Reading", "carried_columns", "ddl_of", "single_topic"]

PULSE = "#pulse"  # no name of a source


@dataclass
class Reading:
    """The sources of one query.

    Args:
        spark: the session.
        sources: by name, as this start of the job reads them.
        reads: per Spark source, or per use of one, how Spark reads it.
        parallelism: greatest number of tasks of a split-planned source.
        timed: names of the sources whose rows have an event time.
    """

    streaming: ClassVar[bool] = True
    spark: SparkSession
    sources: Mapping[str, Any]
    reads: Mapping[str, SparkRead]
    parallelism: int
    timed: Collection[str]
    uses: list[str] = field(default_factory=list, init=False)
    """The uses so far."""
    slots: dict[str, range] = field(default_factory=dict, init=False)
    """Per use of a split-planned source with event time, the numbers that tell its splits apart."""
    controls: int = field(default=0, init=False)
    """How many sources of control rows there are."""

    def use(self, name: str) -> str:
        """Note one more use of a source and return its name; a second use is a source of its own to Spark."""
        before = sum(1 for used in self.uses if source_of(used) == name)
        self.uses.append(nth_use(name, before + 1))
        return self.uses[-1]

    @property
    def newest(self) -> str:
        """The use that was noted last."""
        return self.uses[-1]

    @property
    def ticks(self) -> bool:
        """Whether Spark begins a batch at each trigger, data or not."""
        return self.controls > 0 or any(isinstance(self.sources[source_of(use)], SplitSource) for use in self.uses)

    def pulse(self) -> DataFrame:
        """Return no rows at all, from a source that makes Spark begin a batch at each trigger."""
        ticker = self.spark.readStream.name(spark_name(PULSE)).format(TICKER).options(**ticker_options(1)).load()
        return ticker.selectExpr(f"CAST(NULL AS STRING) AS {RECORD.split()[0]}").where("false")

    def _reader(self, name: str) -> Any:
        """Return a reader for one more use of a source."""
        return self.spark.readStream.name(spark_name(self.use(name)))

    def ticker(self, name: str) -> DataFrame:
        """Return one row for each task that may read a split-planned source."""
        ticker = self._reader(name).format(TICKER).options(**ticker_options(self.parallelism)).load()
        frame: DataFrame = ticker.select("value")
        return frame

    def control(self, groups: int) -> DataFrame:
        """Return one row for each group in every batch; see `plan/control.py`."""
        self.controls += 1
        return control_rows(
            self.spark, groups, name=str(self.controls), tasks=self.parallelism, streaming=self.streaming
        )

    def connector(self, name: str) -> DataFrame:
        """Return the rows of one more use of a Spark source, as its connector gives them."""
        reader = self._reader(name)
        read = self.reads.get(self.newest) or self.reads[name]
        reader = reader.format(read.format).options(**read.options)
        if read.schema is not None:
            reader = reader.schema(read.schema)
        frame: DataFrame = reader.load()
        if read.columns is not None:
            frame = frame.selectExpr(*read.columns)
        return frame if read.where is None else frame.where(read.where)

    def rows(self, node: SourceNode, *, sized: bool = False) -> DataFrame:
        """Return the decoded rows of one more use of a source, with the columns that are poundlock's.

        Args:
            node: the source.
            sized: whether Spark is to count how large its values are.
        """
        source = self.sources[node.id]
        if isinstance(source, SplitSource):
            ticker = self.ticker(node.id)
            use, slots = self.newest, None
            if node.id in self.timed:
                first = SPLIT_SLOTS * len(self.slots)
                slots = self.slots[use] = range(first, first + SPLIT_SLOTS)
            task = source_task(source, node.id, use, slots)
            hidden = [BAD] if slots is None else [BAD, SPLIT]
            return map_in_arrow(ticker, task, ddl_of(ddl.render(source.schema()), hidden))
        frame = self.connector(node.id)
        decoder = source.decoder()
        kafka = {"topic", "partition", "offset"} <= set(frame.columns)
        hidden = [BAD, TOPIC, PARTITION, OFFSET] if kafka else [BAD]
        if kafka and sized:
            size = F.coalesce(F.sum(F.octet_length("value")), F.lit(0))
            frame = frame.observe(f"{BYTES}{self.newest}", size.alias("bytes"))
        if kafka:
            frame = frame.selectExpr("*", f"topic as {TOPIC}", f"partition as {PARTITION}", f"offset as {OFFSET}")
        if decoder is None:
            return frame
        carried = carried_columns(node.source)
        frame = frame.selectExpr("value", *quoted(carried), *(c for c in frame.columns if c in HIDDEN))
        schema = decoder.schema()
        for column in frame.select(*carried).schema.fields if carried else ():
            if schema.get_field_index(column.name) < 0:
                schema = schema.append(ddl.parse(f"`{column.name}` {column.dataType.simpleString()}").field(0))
        task = decode_task(decoder, schema, hidden, node.id, single_topic(node.source))
        return map_in_arrow(frame, task, ddl_of(ddl.render(schema), hidden))


def ddl_of(columns: str, hidden: Sequence[str]) -> str:
    """Return columns with those that are poundlock's behind them, as DDL."""
    kinds = {BAD: "string", TOPIC: "string", PARTITION: "int", OFFSET: "bigint", SPLIT: "int"}
    return ", ".join([columns, *(f"`{name}` {kinds[name]}" for name in hidden)])


def carried_columns(source: Any) -> list[str]:
    """Return the columns of the record that stand beside the decoded ones."""
    return list(getattr(source, "carried", ()))


def single_topic(source: Any) -> str | None:
    """Return the one topic that a source reads; None where it reads several, or none."""
    topics = getattr(source, "topics", None)
    return topics[0] if topics is not None and len(topics) == 1 else None
