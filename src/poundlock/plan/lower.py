"""A plan as one streaming DataFrame: every branch ends in its sink stage, and the union of the stages is the query.

Each row of the DataFrame is one JSON text of what a task prepared or counted; nothing else ever reaches the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from poundlock.connectors.base import SparkSource, SplitSource
from poundlock.formats import ddl
from poundlock.formats.chunk import Chunk
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Decode, Edge, Filter, FlatMap, Map, MapBatches, Operator, Pass, Step
from poundlock.plan.plan import DEAD_LETTER, Branch, Plan
from poundlock.plan.rows import BAD, HIDDEN, OFFSET, PARTITION, TOPIC, arrow_rows, chunk_of, lines_of
from poundlock.plan.shipping import ship_user_modules
from poundlock.plan.split_source import FORMAT, SplitDataSource, SplitSpec, directive_of_task, task_identity
from poundlock.plan.stage import SinkStep, Stage
from poundlock.storage.base import Storage
from poundlock.stream.nodes import ApplyNode, Node, PythonNode, SideOutputNode, SinkNode, SourceNode, SqlNode, UnionNode

__all__ = ["Lowered", "Lowering", "observed_name"]

RECORD = "record string"


def observed_name(head: str, source: str) -> str:
    """Return the name under which Spark counts the rows a source gives to a branch."""
    return f"{head}/{source}"


@dataclass(frozen=True)
class Lowered:
    """The query's DataFrame, and per branch head what Spark counts for it (empty where the stage counts itself)."""

    frame: DataFrame
    observed: Mapping[str, Sequence[str]]
    row_wise: Mapping[str, bool]


@dataclass
class Lowering:
    """Turns one plan into a DataFrame.

    Args:
        plan: the cut.
        spark: the session.
        job_id: 32 hex digits.
        workspace: gives the durable folder of a split-planned source.
        restored: per source, the newest decided position.
        parallelism: greatest number of tasks of a split-planned source.
    """

    plan: Plan
    spark: SparkSession
    job_id: str
    workspace: Callable[[str], Storage]
    restored: Mapping[str, Any]
    parallelism: int
    _bad_frames: list[DataFrame] = field(default_factory=list)

    def lower(self) -> Lowered:
        """Return the query."""
        ship_user_modules()
        self.spark.dataSource.register(SplitDataSource)
        frames: list[DataFrame] = []
        observed: dict[str, list[str]] = {}
        for branch in self.plan.branches:
            if branch.placement == "fused":
                frames.append(self._fused(branch))
            elif branch.placement == "direct":
                frames.append(self._direct(branch))
            else:
                frames.extend(self._spread(branch))
                observed[branch.head.id] = [observed_name(branch.head.id, s.id) for s in branch.sources]
        frame = reduce(DataFrame.union, frames)
        return Lowered(frame, observed, {b.head.id: b.row_wise for b in self.plan.branches})

    # --- the stage ---------------------------------------------------------------------------------------------------

    def _stage(self, branch: Branch, decoder: Any | None, columns: StructType | pa.Schema | None) -> Stage:
        head = branch.head.id
        steps = [Step(head, Pass(), [])]
        entry = head
        if decoder is not None:
            entry = f"{head}.decode"
            steps.append(Step(entry, Decode(decoder, _want(branch)), [Edge(head)]))
        schemas: dict[str, Any] = {}
        ids = {head: entry} | {node.id: node.id for node in branch.nodes}
        given: dict[str, pa.Schema | None] = {head: columns if isinstance(columns, pa.Schema) else None}
        for node in branch.nodes:
            inside = [p for p in node.inputs if p.id in ids]
            given[node.id] = _schema_after(node, given[inside[0].id])
            if isinstance(node, SinkNode):
                schemas[node.id] = given[inside[0].id]
            edges = [_edge(node, parent, ids[parent.id]) for parent in inside]
            steps.append(Step(node.id, _operator(node, given[inside[0].id]), edges))
        names = {sink.id for sink in branch.sinks}
        if DEAD_LETTER in self.plan.sinks:
            names.add(DEAD_LETTER)
        sinks = {name: self.plan.sinks[name] for name in names}
        return Stage(self.job_id, head, steps, sinks, self.plan.job.on_error, schemas)

    # --- the three placements ----------------------------------------------------------------------------------------

    def _fused(self, branch: Branch) -> DataFrame:
        source: SplitSource = branch.head.source  # type: ignore[attr-defined]
        decoder = getattr(source, "decoder", lambda: None)()
        stage = self._stage(branch, decoder, source.schema() if decoder is None else decoder.schema())
        return self._read_splits(branch.head.id, source, RECORD, stage)

    def _read_splits(self, name: str, source: SplitSource, columns: str, stage: Stage | None) -> DataFrame:
        spec = SplitSpec(source, self.workspace(name), self.parallelism, columns, stage)
        return self.spark.readStream.name(name).format(FORMAT).option("spec", spec.option()).load()

    def _direct(self, branch: Branch) -> DataFrame:
        source: SparkSource = branch.head.source  # type: ignore[attr-defined]
        frame = self._connector(branch.head.id, source)
        topic = _single_topic(source)
        decoder = source.decoder()
        kafka = {"topic", "partition", "offset"} <= set(frame.columns)
        as_lines = kafka and "value" in frame.columns and (decoder is not None or _only_value(branch))
        if as_lines:
            hidden = [] if topic is not None else [f"topic as {TOPIC}"]
            extra = [f"`{name}`" for name in getattr(decoder, "carried", ())]
            frame = (
                frame.selectExpr(
                    "concat(value, X'0A') as value", f"partition as {PARTITION}", f"offset as {OFFSET}", *hidden, *extra
                )
                if not extra
                else frame.selectExpr("value", *extra, f"partition as {PARTITION}", f"offset as {OFFSET}", *hidden)
            )
            as_lines = not extra
        elif kafka:
            frame = frame.selectExpr("*", f"partition as {PARTITION}", f"offset as {OFFSET}", f"topic as {TOPIC}")
        schema = decoder.schema() if decoder is not None else None
        return self._sink_stage(frame, self._stage(branch, decoder, schema), as_lines, topic)

    def _spread(self, branch: Branch) -> list[DataFrame]:
        self._bad_frames = []
        frame = self._spark_side(branch.head, branch.head.id)
        stage = self._stage(branch, None, None)
        frames = [self._sink_stage(frame, stage, False, None)]
        frames += [self._sink_stage(bad, stage, False, None) for bad in self._bad_frames]
        return frames

    def _sink_stage(self, frame: DataFrame, stage: Stage, as_lines: bool, topic: str | None) -> DataFrame:
        source = stage.source

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            directive = directive_of_task()
            if directive["decided"]:
                for _ in batches:  # a stateful frame must be consumed whole
                    pass
                return

            def read(reject: Callable[[Reject], None]) -> Iterator[Chunk]:
                for batch in batches:
                    yield lines_of(batch, topic) if as_lines else chunk_of(batch, reject, source, topic)

            texts = list(stage.run(read, directive, task_identity()))
            if texts:
                yield pa.RecordBatch.from_pydict({"record": texts})

        return frame.mapInArrow(task, RECORD)

    # --- Spark's side ------------------------------------------------------------------------------------------------

    def _connector(self, name: str, source: SparkSource) -> DataFrame:
        read = source.spark_read(self.restored.get(name))
        reader = self.spark.readStream.name(name).format(read.format).options(**read.options)
        if read.schema is not None:
            reader = reader.schema(read.schema)
        frame = reader.load()
        return frame if read.columns is None else frame.selectExpr(*read.columns)

    def _spark_side(self, node: Node, head: str | None) -> DataFrame:
        """Return the rows of a node on Spark's side. `head` names the branch that counts; None = not counted."""
        if isinstance(node, SourceNode):
            frame = self._source_rows(node)
            if head is not None:
                frame = frame.observe(observed_name(head, node.id), F.count(F.lit(1)).alias("rows"))
            return frame
        inputs = [self._spark_side(parent, head) for parent in node.inputs]
        if isinstance(node, SqlNode):
            return _sql(inputs[0], node)
        if isinstance(node, UnionNode):
            return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), inputs)
        if isinstance(node, ApplyNode):
            frame = inputs[0]
            if BAD in frame.columns:
                if head is not None:
                    again = self._spark_side(node.inputs[0], None)
                    self._bad_frames.append(again.where(f"{BAD} IS NOT NULL").select(BAD))
                frame = frame.where(f"{BAD} IS NULL")
            result: DataFrame = node.function(frame.drop(*HIDDEN))
            return result
        if isinstance(node, (PythonNode, SideOutputNode)):
            return _python_stage(inputs[0], node)
        raise TypeError(f"{type(node).__name__} has no Spark side")

    def _source_rows(self, node: SourceNode) -> DataFrame:
        source = node.source
        if isinstance(source, SplitSource):
            decoder = getattr(source, "decoder", lambda: None)()
            columns = f"{ddl.render(source.schema())}, `{BAD}` string"
            frame = self._read_splits(node.id, source, columns, None)
            return frame if decoder is None else _decoded(frame, decoder, node.id, None, [BAD])
        frame = self._connector(node.id, source)
        decoder = source.decoder()
        kafka = {"topic", "partition", "offset"} <= set(frame.columns)
        if kafka:
            frame = frame.selectExpr("*", f"topic as {TOPIC}", f"partition as {PARTITION}", f"offset as {OFFSET}")
        hidden = [BAD, TOPIC, PARTITION, OFFSET] if kafka else [BAD]
        return frame if decoder is None else _decoded(frame, decoder, node.id, _single_topic(source), hidden)


def _single_topic(source: Any) -> str | None:
    topics = getattr(source, "topics", None)
    if isinstance(topics, str):
        return topics
    return topics[0] if topics is not None and len(topics) == 1 else None


def _only_value(branch: Branch) -> bool:
    """Return whether every step that reads the head is a sink that needs the raw value and nothing else."""
    readers = [node for node in branch.nodes if any(parent is branch.head for parent in node.inputs)]
    return all(isinstance(node, SinkNode) and bool(getattr(node.sink, "needs_only_value", False)) for node in readers)


def _want(branch: Branch) -> str:
    readers = [node for node in branch.nodes if any(parent is branch.head for parent in node.inputs)]
    per_record = any(isinstance(n, PythonNode) and n.kind != "map_batches" for n in readers)
    return "records" if per_record else "batch"


def _edge(node: Node, parent: Node, step: str) -> Edge:
    return Edge(step, node.tag if isinstance(node, SideOutputNode) else "")


def _schema_after(node: Node, before: pa.Schema | None) -> pa.Schema | None:
    if isinstance(node, PythonNode):
        return before if node.schema is None else ddl.parse(node.schema)
    return ddl.parse(node.schema) if isinstance(node, SideOutputNode) else before


def _operator(node: Node, before: pa.Schema | None) -> Operator:
    if isinstance(node, SinkNode):
        return SinkStep(node.id)
    if not isinstance(node, PythonNode):
        return Pass()
    if node.kind == "filter":
        return Filter(node.function)
    schema = ddl.parse(node.schema or "")
    if node.kind == "map_batches":
        return MapBatches(node.id, node.function, schema, before)
    if node.kind == "map":
        return Map(node.id, node.function, tuple(schema.names))
    columns = {"": tuple(schema.names)} | {tag: tuple(ddl.parse(text).names) for tag, text in node.side_outputs.items()}
    return FlatMap(node.id, node.function, columns)


def _sql(frame: DataFrame, node: SqlNode) -> DataFrame:
    """Apply row-wise SQL; hidden columns pass through and records that came as bad are never filtered."""
    hidden = [name for name in frame.columns if name in HIDDEN]
    if node.kind == "select":
        visible = [f"`{name}`" for name in frame.columns if name not in HIDDEN]
        wanted = [e for text in node.arguments for e in (visible if text.strip() == "*" else [text])]
        return frame.selectExpr(*wanted, *hidden)
    if node.kind == "where":
        condition = node.arguments[0]
        return frame.where(f"({condition}) OR {BAD} IS NOT NULL" if BAD in hidden else condition)
    if node.kind == "with_column":
        return frame.withColumn(node.arguments[0], F.expr(node.arguments[1]))
    return frame.drop(*node.arguments)


def _decoded(frame: DataFrame, decoder: Any, source: str, topic: str | None, hidden: Sequence[str]) -> DataFrame:
    """Decode `value` in a Python stage of its own, because Spark operators need the columns."""
    schema = decoder.schema()

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bad: list[Reject] = []
        chunks = (decoder.decode(chunk_of(batch, bad.append, source, topic), bad.append, "batch") for batch in batches)
        yield from arrow_rows(chunks, schema, hidden, bad)

    return frame.mapInArrow(task, _columns(ddl.render(schema), hidden))


def _columns(columns: str, hidden: Sequence[str]) -> str:
    kinds = {BAD: "string", TOPIC: "string", PARTITION: "int", OFFSET: "bigint"}
    return ", ".join([columns, *(f"`{name}` {kinds[name]}" for name in hidden)])


def _python_stage(frame: DataFrame, node: PythonNode | SideOutputNode) -> DataFrame:
    """Run a user's Python function in a stage of its own, because Spark operators follow."""
    python = node.inputs[0] if isinstance(node, SideOutputNode) else node
    assert isinstance(python, PythonNode)
    tag = node.tag if isinstance(node, SideOutputNode) else ""
    visible = [f for f in frame.schema.fields if f.name not in HIDDEN]
    before = ddl.parse(", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in visible))
    after = _schema_after(node, before)
    assert after is not None
    operator = _operator(python, before)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bad: list[Reject] = []

        def chunks() -> Iterator[Chunk]:
            for batch in batches:
                out: list[Chunk] = []
                chunk = chunk_of(batch, bad.append, python.id, None)
                if len(chunk):
                    operator.process(chunk, lambda t, c, out=out: out.append(c) if t == tag else None)  # type: ignore[misc]
                yield from out or [chunk_of(batch.slice(0, 0), bad.append, python.id, None)]

        yield from arrow_rows((c for c in chunks()), after, [BAD], bad)

    return frame.mapInArrow(task, _columns(ddl.render(after), [BAD]))
