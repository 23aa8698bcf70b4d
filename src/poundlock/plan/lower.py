"""A plan as one streaming DataFrame: every branch ends in its sink stage, and the union of the stages is the query.

Each row of the DataFrame is one JSON text of what a task prepared or counted; nothing else ever reaches the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from poundlock.checkpoint.participant import Participant
from poundlock.connectors.base import SparkRead, SparkSource, SplitSource
from poundlock.formats import ddl
from poundlock.operators.chain import MAIN, Decode, Edge, Pass, Step
from poundlock.plan.arrow import map_in_arrow
from poundlock.plan.control import control_rows
from poundlock.plan.emitted import Unpack
from poundlock.plan.event_time import (
    SPLIT_SLOTS,
    TimeChannel,
    measured,
    refuse_other_watermarks,
    timeless_apart,
    with_event_time,
    without_watermark,
)
from poundlock.plan.keyed import KEYED, Emitted, emitted, unpacked
from poundlock.plan.plan import DEAD_LETTER, Branch, Plan, is_ours, may_reject
from poundlock.plan.rows import BAD, EVENT_TIME, HIDDEN, OFFSET, PARTITION, SPLIT, TOPIC
from poundlock.plan.shipping import ship_user_modules
from poundlock.plan.splits import TICKER, ticker_options
from poundlock.plan.sql import KEEP, apply_sql, apply_sql_kept, quoted, visible
from poundlock.plan.stage import Stage
from poundlock.plan.steps import edge, only_value, operator_of, schema_after, wanted_form
from poundlock.plan.tasks import RECORD, decode_task, fused_task, python_task, shared_task, sink_task, source_task
from poundlock.plan.timestamps import timestamps
from poundlock.plan.uses import nth_use, source_of, spark_name
from poundlock.plan.windows import windowed
from poundlock.stream.nodes import (
    ApplyNode,
    Node,
    PythonNode,
    SideOutputNode,
    SinkNode,
    SourceNode,
    SqlNode,
    UnionNode,
    WatermarkNode,
    WindowNode,
    walk,
)
from poundlock.stream.process_nodes import IntervalJoinNode

__all__ = ["BYTES", "Lowered", "Lowering"]

ROW = "__row"
PULSE = "#pulse"  # no name of a source
BYTES = "bytes/"  # before the name of a use: what Spark counts is how large its values are


@dataclass(frozen=True)
class Lowered:
    """The query.

    Args:
        frame: its DataFrame.
        observed: per branch head, the names of what Spark counts for it; none where the stage counts itself.
        row_wise: per branch head, whether rows that vanish before the stage were filtered.
        uses: the uses of sources; one that is read twice in the query is two sources to Spark.
        times: where event time is measured.
        ticks: whether Spark begins a batch at each trigger, data or not.
        untimed: the uses of sources whose rows have no event time.
    """

    frame: DataFrame
    observed: Mapping[str, Sequence[str]]
    row_wise: Mapping[str, bool]
    uses: Sequence[str]
    times: Sequence[TimeChannel] = ()
    ticks: bool = False
    untimed: Sequence[str] = ()


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

    streaming: ClassVar[bool] = True
    plan: Plan
    spark: SparkSession
    job_id: str
    sources: Mapping[str, Any]
    reads: Mapping[str, SparkRead]
    sinks: Mapping[str, Participant]
    parallelism: int
    partitions: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)
    _times: list[TimeChannel] = field(default_factory=list)
    _bad_frames: list[DataFrame] = field(default_factory=list)
    _observed: dict[str, list[str]] = field(default_factory=dict)
    _uses: list[str] = field(default_factory=list)
    _controls: int = 0
    _slots: dict[str, range] = field(default_factory=dict)
    _timed: set[str] = field(init=False)

    def __post_init__(self) -> None:
        every = list(walk([branch.head for branch in self.plan.branches]))
        marks = [node for node in every if isinstance(node, WatermarkNode)]
        self._timed = {node.id for node in walk(marks) if isinstance(node, SourceNode)}

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
        ticks = any(isinstance(self.sources[source_of(use)], SplitSource) for use in self._uses) or self._controls > 0
        if self.streaming and self._timed and not (ticks or self.plan.stateless):
            # Batches without data have to follow event time. Spark would run them by itself, but only before it has looked for
            # one in vain: a watermark that moves after that ends the query.
            ticks = True
            ticker = self.spark.readStream.name(spark_name(PULSE)).format(TICKER).options(**ticker_options(1)).load()
            frames.append(ticker.selectExpr(f"CAST(NULL AS STRING) AS {RECORD.split()[0]}").where("false"))
        row_wise = {b.head.id: b.row_wise for b in self.plan.branches}
        timed = {use for channel in self._times for use in channel.uses}
        untimed = [use for use in self._uses if source_of(use) not in self._timed and use not in timed]
        query = reduce(DataFrame.union, frames)
        return Lowered(query, self._observed, row_wise, self._uses, self._times, ticks, untimed)

    def _use(self, name: str) -> str:
        """Note one more use of a source and return its name; a second use is a source of its own to Spark."""
        before = sum(1 for used in self._uses if source_of(used) == name)
        self._uses.append(nth_use(name, before + 1))
        return self._uses[-1]

    def _reader(self, name: str) -> Any:
        """Return a reader for one more use of a source."""
        return self.spark.readStream.name(spark_name(self._use(name)))

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
        ticker = self._ticker(branch.head.id)
        return map_in_arrow(ticker, fused_task(stage, source, self._uses[-1], wanted_form(branch)), RECORD)

    def _ticker(self, name: str) -> DataFrame:
        """Return one row for each task that may read a split-planned source."""
        ticker = self._reader(name).format(TICKER).options(**ticker_options(self.parallelism)).load()
        frame: DataFrame = ticker.select("value")
        return frame

    def _control(self, groups: int) -> DataFrame:
        """Return one row for each group in every batch; see `plan/control.py`."""
        self._controls += 1
        return control_rows(
            self.spark, groups, name=str(self._controls), tasks=self.parallelism, streaming=self.streaming
        )

    def _direct(self, branch: Branch) -> DataFrame:
        name = branch.head.id
        source: SparkSource = self.sources[name]
        frame = self._connector(name)
        topic = _single_topic(branch.sources[0].source)
        decoder = source.decoder()
        kafka = {"topic", "partition", "offset"} <= set(frame.columns)
        carried = _carried(branch.sources[0].source) if decoder is not None else []
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
        base = self._source_rows(branches[0].sources[0])
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
        topic = _single_topic(branches[0].sources[0].source)
        return map_in_arrow(frame, shared_task(stages, branches[0].sources[0].id, topic, columns), RECORD)

    def _spread(self, branch: Branch) -> list[DataFrame]:
        self._bad_frames = []
        if is_ours(branch.head) and not _selected(branch.head):
            found = self._emitted(branch.head, branch.head.id)
            frame, stage = found.frame, self._stage(branch, None, found.schemas[MAIN], found.schemas)
        else:
            frame = self._spark_side(branch.head, branch.head.id)
            stage = self._stage(branch, None, visible(frame))
        task = sink_task(stage, as_lines=False, topic=None)
        return [map_in_arrow(each, task, RECORD) for each in (frame, *self._bad_frames)]

    # --- Spark's side ------------------------------------------------------------------------------------------------

    def _connector(self, name: str) -> DataFrame:
        reader = self._reader(name)
        read = self.reads.get(self._uses[-1]) or self.reads[name]
        reader = reader.format(read.format).options(**read.options)
        if read.schema is not None:
            reader = reader.schema(read.schema)
        frame: DataFrame = reader.load()
        if read.columns is not None:
            frame = frame.selectExpr(*read.columns)
        return frame if read.where is None else frame.where(read.where)

    def _spark_side(self, node: Node, head: str | None) -> DataFrame:
        """Return the rows of a node on Spark's side. `head` names the branch that counts; None = not counted."""
        if isinstance(node, SourceNode):
            frame = self._source_rows(node, sized=head is not None)
            if head is not None:
                name = f"{head}/{self._uses[-1]}"
                self._observed.setdefault(head, []).append(name)
                frame = frame.observe(name, F.count(F.lit(1)).alias("rows"))
            return frame
        if is_ours(node):
            return unpacked(self._emitted(node, head), MAIN, _selected(node))
        if isinstance(node, SideOutputNode) and is_ours(node.inputs[0]):
            return unpacked(self._emitted(node.inputs[0], head), node.tag)
        before = len(self._uses)
        # On the way of undecodable records those that bring none are left out: a step of ours would be there twice.
        parents = [each for each in node.inputs if head is not None or len(node.inputs) == 1 or _brings_bad(each)]
        inputs = [self._spark_side(parent, head) for parent in parents]
        if isinstance(node, SqlNode):
            return apply_sql(inputs[0], node)
        if isinstance(node, UnionNode):
            return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), inputs)
        if isinstance(node, WatermarkNode):
            frame = with_event_time(inputs[0], node, lambda frame: _python_stage(frame, timestamps(frame, node)))
            if _brings_bad(node):
                frame = timeless_apart(frame, node)
            if head is None:
                return frame  # records that do not decode: they have no time
            for channel in self._channels(node, frame, self._uses[before:]):
                frame = measured(frame, channel)
                self._times.append(channel)
            return without_watermark(frame, node.strategy)
        if isinstance(node, (ApplyNode, WindowNode)):
            if head is not None:
                self._set_bad_apart(node)
            frames = [_without_bad(frame) for frame in inputs]
            if isinstance(node, WindowNode):
                return windowed(frames[0], node)
            made: DataFrame = node.function(*frames)
            if self._timed or self.plan.hosted:
                refuse_other_watermarks(made, node.id)
            return made
        if isinstance(node, (PythonNode, SideOutputNode)):
            return _python_stage(inputs[0], node)
        raise TypeError(f"{type(node).__name__} has no Spark side")

    def _emitted(self, node: Any, head: str | None) -> Emitted:
        """Return what a step of ours emits; its undecodable records go to the stage by a way of their own."""
        if head is not None:
            self._set_bad_apart(node)
        inputs = [self._spark_side(parent, head) for parent in node.inputs]
        control = self._control(self.plan.job.max_parallelism)
        return emitted(
            node,
            inputs,
            control=control,
            groups=self.plan.job.max_parallelism,
            bounded=self.plan.batch,
            counted_as=f"{KEYED}{head}/{self._controls}",
        )

    def _channels(self, node: WatermarkNode, frame: DataFrame, uses: Sequence[str]) -> Iterator[TimeChannel]:
        """Yield where the event time of a step is measured: rows of Kafka by partition, others by split, or all as one."""
        split = [use for use in uses if isinstance(self.sources[source_of(use)], SplitSource)]
        kafka = [use for use in uses if source_of(use) in self.partitions]
        places = sorted({p for use in kafka for p in self.partitions[source_of(use)]})
        by_partition, by_split = PARTITION in frame.columns and bool(kafka), SPLIT in frame.columns and bool(split)
        name = nth_use(node.id, 1 + sum(1 for c in self._times if source_of(c.name) == node.id))
        if by_partition:
            others = SPLIT if by_split else None
            yield TimeChannel(name, node.strategy, kafka, places, None, others=others)
        if by_split:
            named = f"{name}/splits" if by_partition else name
            others = PARTITION if by_partition else None
            yield TimeChannel(named, node.strategy, split, None, split, self._slots[split[0]].start, others)
        if not by_partition and not by_split:
            yield TimeChannel(name, node.strategy, uses, None, None)

    def _set_bad_apart(self, node: Node) -> None:
        """Lead undecodable records to the stage by a second way: what a function does with them is not ours to say."""
        for parent in dict.fromkeys(node.inputs):
            if _brings_bad(parent):
                again = self._spark_side(parent, None)
                if BAD in again.columns:
                    self._bad_frames.append(again.where(f"{BAD} IS NOT NULL").select(BAD))

    def _source_rows(self, node: SourceNode, *, sized: bool = False) -> DataFrame:
        source = self.sources[node.id]
        if isinstance(source, SplitSource):
            ticker = self._ticker(node.id)
            use, slots = self._uses[-1], None
            if node.id in self._timed:
                first = SPLIT_SLOTS * len(self._slots)
                slots = self._slots[use] = range(first, first + SPLIT_SLOTS)
            task = source_task(source, node.id, use, slots)
            hidden = [BAD] if slots is None else [BAD, SPLIT]
            return map_in_arrow(ticker, task, _columns(ddl.render(source.schema()), hidden))
        frame = self._connector(node.id)
        decoder = source.decoder()
        kafka = {"topic", "partition", "offset"} <= set(frame.columns)
        hidden = [BAD, TOPIC, PARTITION, OFFSET] if kafka else [BAD]
        if kafka and sized:
            size = F.coalesce(F.sum(F.octet_length("value")), F.lit(0))
            frame = frame.observe(f"{BYTES}{self._uses[-1]}", size.alias("bytes"))
        if kafka:
            frame = frame.selectExpr("*", f"topic as {TOPIC}", f"partition as {PARTITION}", f"offset as {OFFSET}")
        if decoder is None:
            return frame
        carried = _carried(node.source)
        frame = frame.selectExpr("value", *quoted(carried), *(c for c in frame.columns if c in HIDDEN))
        schema = decoder.schema()
        for column in frame.select(*carried).schema.fields if carried else ():
            if schema.get_field_index(column.name) < 0:
                schema = schema.append(ddl.parse(f"`{column.name}` {column.dataType.simpleString()}").field(0))
        task = decode_task(decoder, schema, hidden, node.id, _single_topic(node.source))
        return map_in_arrow(frame, task, _columns(ddl.render(schema), hidden))


def _selected(node: Node) -> Sequence[str]:
    """Return the Spark SQL that makes rows of what a step of ours emits."""
    return node.select if isinstance(node, IntervalJoinNode) else ()


def _without_bad(frame: DataFrame) -> DataFrame:
    """Return the good rows of a frame, without the columns that are poundlock's."""
    return (frame.where(f"{BAD} IS NULL") if BAD in frame.columns else frame).drop(*HIDDEN)


def _brings_bad(node: Node) -> bool:
    """Return whether undecodable records come out of a node. A step with state leads its own ones past itself."""
    if isinstance(node, SourceNode):
        return may_reject(node.source)
    if isinstance(node, (ApplyNode, WindowNode)) or is_ours(node):
        return False
    return any(_brings_bad(parent) for parent in node.inputs)


def _carried(source: Any) -> list[str]:
    """Return the columns of the record that stand beside the decoded ones."""
    return list(getattr(source, "carried", ()))


def _check_columns(sink: Any, name: str, columns: Sequence[str], schema: pa.Schema | None) -> None:
    """Let a sink that wants to refuse rows without the columns it needs, or of other types, before anything runs."""
    check = getattr(sink, "check_columns", None)
    if check is not None:
        check(name, columns)
    check = getattr(sink, "check_schema", None)
    if check is not None and schema is not None:
        check(name, schema)


def _single_topic(source: Any) -> str | None:
    topics = getattr(source, "topics", None)
    return topics[0] if topics is not None and len(topics) == 1 else None


def _columns(columns: str, hidden: Sequence[str]) -> str:
    kinds = {BAD: "string", TOPIC: "string", PARTITION: "int", OFFSET: "bigint", SPLIT: "int"}
    return ", ".join([columns, *(f"`{name}` {kinds[name]}" for name in hidden)])


def _python_stage(frame: DataFrame, node: PythonNode | SideOutputNode) -> DataFrame:
    """Run a user's Python function in a stage of its own, because Spark operators follow."""
    frame = frame.drop(EVENT_TIME)
    python = node.inputs[0] if isinstance(node, SideOutputNode) else node
    assert isinstance(python, PythonNode)
    fields = [f for f in frame.schema.fields if f.name not in HIDDEN]
    hidden = [BAD, *(f.name for f in frame.schema.fields if f.name in HIDDEN and f.name != BAD)]
    before = ddl.parse(", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in fields))
    after = schema_after(node, before)
    assert after is not None
    tag = node.tag if isinstance(node, SideOutputNode) else ""
    task = python_task(operator_of(python, before), tag, after, python.id, hidden)
    return map_in_arrow(frame, task, _columns(ddl.render(after), hidden))
