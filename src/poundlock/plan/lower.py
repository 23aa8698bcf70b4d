"""A plan as one streaming DataFrame: every branch ends in its sink stage, and the union of the stages is the query.

Each row of the DataFrame is one JSON text of what a task prepared or counted; nothing else ever reaches the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from poundlock.checkpoint.participant import Participant
from poundlock.connectors.base import SparkRead, SparkSource, SplitSource
from poundlock.operators.chain import MAIN, Decode, Edge, Pass, Step
from poundlock.plan.arrow import map_in_arrow
from poundlock.plan.emitted import Unpack
from poundlock.plan.event_time import TimeChannel
from poundlock.plan.lowered import Lowered
from poundlock.plan.plan import DEAD_LETTER, Branch, Plan, is_ours
from poundlock.plan.reading import Reading, carried_columns, single_topic
from poundlock.plan.rows import HIDDEN, OFFSET, PARTITION, TOPIC
from poundlock.plan.shipping import ship_user_modules
from poundlock.plan.spark_side import SparkSide, selected
from poundlock.plan.sql import KEEP, apply_sql_kept, quoted, visible
from poundlock.plan.stage import Stage
from poundlock.plan.steps import edge, only_value, operator_of, schema_after, wanted_form
from poundlock.plan.tasks import RECORD, fused_task, shared_task, sink_task
from poundlock.plan.uses import source_of
from poundlock.stream.nodes import SideOutputNode, SinkNode, SourceNode, SqlNode, WatermarkNode, walk

__all__ = ["Lowering", "untimed"]

ROW = "__row"


@dataclass
class Lowering:
    """Turns one plan into a DataFrame.

    Args:
        plan: the cut.
        spark: the session.
        job_id: 32 hex digits.
        sources: by name, as this start of the job reads them.
        reads: per Spark source, or per use of one, how Spark reads it.
        sinks: participants by name, as this job owns them.
        parallelism: greatest number of tasks of a split-planned source.
        partitions: per source of Kafka, the (topic, partition) whose event time is told apart.
    """

    reading_type: ClassVar[type[Reading]] = Reading
    plan: Plan
    spark: SparkSession
    job_id: str
    sources: Mapping[str, Any]
    reads: Mapping[str, SparkRead]
    sinks: Mapping[str, Participant]
    parallelism: int
    partitions: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)
    _reading: Reading = field(init=False)
    _side: SparkSide = field(init=False)

    def __post_init__(self) -> None:
        every = list(walk([branch.head for branch in self.plan.branches]))
        marks = [node for node in every if isinstance(node, WatermarkNode)]
        timed = {node.id for node in walk(marks) if isinstance(node, SourceNode)}
        self._reading = self.reading_type(self.spark, self.sources, self.reads, self.parallelism, timed)
        self._side = SparkSide(self.plan, self._reading, self.partitions)

    def lower(self) -> Lowered:
        """Return the query."""
        ship_user_modules()
        self.spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
        self.spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
        frames: list[DataFrame] = []
        done: set[str] = set()
        for branch in self.plan.branches:
            if branch.shared:
                source = branch.sources[0].id
                if source not in done:
                    done.add(source)
                    frames.append(
                        self._shared([b for b in self.plan.branches if b.shared and b.sources[0].id == source])
                    )
            elif branch.placement == "fused":
                frames.append(self._fused(branch))
            elif branch.placement == "direct":
                frames.append(self._direct(branch))
            else:
                frames.extend(self._spread(branch))
        ticks, timed = self._reading.ticks, self._reading.timed
        if self._reading.streaming and timed and not (ticks or self.plan.stateless):
            # Batches without data have to follow event time. Spark would run them by itself, but only before it has looked for
            # one in vain: a watermark that moves after that ends the query.
            ticks = True
            frames.append(self._reading.pulse())
        row_wise = {b.head.id: b.row_wise for b in self.plan.branches}
        uses, times = self._reading.uses, self._side.times
        query = reduce(DataFrame.union, frames)
        return Lowered(query, self._side.observed, row_wise, uses, times, ticks, untimed(uses, times))

    # --- the stage ---------------------------------------------------------------------------------------------------

    def _stage(
        self,
        branch: Branch,
        decoder: Any | None,
        columns: pa.Schema | Sequence[str],
        emitted: Mapping[str, pa.Schema] | None = None,
    ) -> Stage:
        """Return the stage of a branch; `emitted` are the columns by tag where its head is a step of ours with state."""
        head = branch.head.id
        steps = [Step(head, Pass() if emitted is None else Unpack(), [])]
        entry = head
        if decoder is not None:
            entry = f"{head}.decode"
            steps.append(Step(entry, Decode(decoder, wanted_form(branch)), [Edge(head)]))
        schemas: dict[str, Any] = {}
        ids = {head: entry} | {node.id: node.id for node in branch.nodes}
        given: dict[str, pa.Schema | None] = {head: columns if isinstance(columns, pa.Schema) else None}
        names = {head: list(columns.names if isinstance(columns, pa.Schema) else columns)}
        for node in branch.nodes:
            inside = [p for p in node.inputs if p.id in ids]
            given[node.id] = schema_after(node, given[inside[0].id])
            if emitted is not None and isinstance(node, SideOutputNode) and inside[0] is branch.head:
                given[node.id] = emitted[node.tag]
            known = given[node.id]
            names[node.id] = names[inside[0].id] if known is None else list(known.names)
            if isinstance(node, SinkNode):
                schemas[node.id] = given[inside[0].id]
                _check_columns(self.sinks[node.id], node.id, names[node.id], given[inside[0].id])
            edges = [edge(node, ids[parent.id]) for parent in inside]
            steps.append(Step(node.id, operator_of(node, given[inside[0].id]), edges))
        fed = {sink.id for sink in branch.sinks} | ({DEAD_LETTER} & set(self.plan.sinks))
        sinks = {name: self.sinks[name] for name in fed}
        return Stage(self.job_id, head, steps, sinks, self.plan.job.on_error, schemas)

    # --- the three placements ----------------------------------------------------------------------------------------

    def _fused(self, branch: Branch) -> DataFrame:
        source: SplitSource = self.sources[branch.head.id]
        stage = self._stage(branch, None, source.schema())
        ticker = self._reading.ticker(branch.head.id)
        return map_in_arrow(ticker, fused_task(stage, source, self._reading.newest, wanted_form(branch)), RECORD)

    def _direct(self, branch: Branch) -> DataFrame:
        name = branch.head.id
        source: SparkSource = self.sources[name]
        frame = self._reading.connector(name)
        topic = single_topic(branch.sources[0].source)
        decoder = source.decoder()
        kafka = {"topic", "partition", "offset"} <= set(frame.columns)
        carried = carried_columns(branch.sources[0].source) if decoder is not None else []
        as_lines = kafka and not carried and (decoder is not None or only_value(branch))
        place = [f"partition as {PARTITION}", f"offset as {OFFSET}"] + ([f"topic as {TOPIC}"] if topic is None else [])
        if as_lines:
            # One "\n" behind each value makes the Arrow buffer the image of the file.
            frame = frame.selectExpr("concat(value, X'0A') as value", *place)
        elif kafka:
            frame = frame.selectExpr(*(["*"] if decoder is None else ["value", *quoted(carried)]), *place)
        columns: Any = visible(frame)
        if decoder is not None:
            decoded = decoder.schema()
            more = [name for name in carried if name not in decoded.names]
            columns = [*decoded.names, *more] if more else decoded
        stage = self._stage(branch, decoder, columns)
        return map_in_arrow(frame, sink_task(stage, as_lines=as_lines, topic=topic, sized=kafka), RECORD)

    def _shared(self, branches: Sequence[Branch]) -> DataFrame:
        """One pass over a source for several branches: a struct column each, null where the branch has filtered the row."""
        base = self._reading.rows(branches[0].sources[0])
        frame = base.selectExpr(f"struct({', '.join(quoted(base.columns))}) as {ROW}")
        columns: list[str] = []
        stages: list[Stage] = []
        for number, branch in enumerate(branches):
            frame = frame.selectExpr(ROW, *columns, f"{ROW}.*", f"true as {KEEP}")
            for node in walk([branch.head]):
                if isinstance(node, SqlNode):
                    frame = apply_sql_kept(frame, node, [ROW, *columns])
            rest = [c for c in frame.columns if c not in (ROW, KEEP, *columns, *HIDDEN)]
            fields = ", ".join(quoted(rest))
            frame = frame.selectExpr(ROW, *columns, f"IF({KEEP}, struct({fields}), NULL) as __b{number}")
            columns.append(f"__b{number}")
            stages.append(self._stage(branch, None, rest))
        hidden = [f"{ROW}.`{name}` as `{name}`" for name in base.columns if name in HIDDEN]
        frame = frame.selectExpr(*hidden, *columns)
        topic = single_topic(branches[0].sources[0].source)
        return map_in_arrow(frame, shared_task(stages, branches[0].sources[0].id, topic, columns), RECORD)

    def _spread(self, branch: Branch) -> list[DataFrame]:
        if is_ours(branch.head) and not selected(branch.head):
            found = self._side.emitted(branch.head, branch.head.id)
            frame, stage = found.frame, self._stage(branch, None, found.schemas[MAIN], found.schemas)
        else:
            frame = self._side.rows(branch.head, branch.head.id)
            stage = self._stage(branch, None, visible(frame))
        task = sink_task(stage, as_lines=False, topic=None)
        return [map_in_arrow(each, task, RECORD) for each in (frame, *self._side.take_bad())]


def untimed(uses: Sequence[str], times: Sequence[TimeChannel]) -> list[str]:
    """Return the uses of sources whose end no channel of event time goes by.

    That a step gives their rows a time is not enough: in a union with Kafka or files, those of other sources are in no partition.
    """
    measured = {source_of(use) for channel in times for use in channel.uses}
    return [use for use in uses if source_of(use) not in measured]


def _check_columns(sink: Any, name: str, columns: Sequence[str], schema: pa.Schema | None) -> None:
    """Let a sink that wants to refuse rows without the columns it needs, or of other types, before anything runs."""
    check = getattr(sink, "check_columns", None)
    if check is not None:
        check(name, columns)
    check = getattr(sink, "check_schema", None)
    if check is not None and schema is not None:
        check(name, schema)
