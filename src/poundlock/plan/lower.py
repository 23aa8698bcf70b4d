"""A plan as one streaming DataFrame: every branch ends in its sink stage, and the union of the stages is the query.

Each row of the DataFrame is one JSON text of what a task prepared or counted; nothing else ever reaches the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from poundlock.checkpoint.participant import Participant
from poundlock.connectors.base import SparkRead, SparkSource, SplitSource
from poundlock.formats import ddl
from poundlock.formats.chunk import Chunk
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Decode, Edge, Filter, FlatMap, Map, MapBatches, Operator, Pass, Step
from poundlock.plan.plan import DEAD_LETTER, Branch, Plan
from poundlock.plan.rows import BAD, HIDDEN, OFFSET, PARTITION, TOPIC, arrow_rows, chunk_of, lines_of, shared_chunks
from poundlock.plan.shipping import ship_user_modules
from poundlock.plan.split_source import FORMAT, SplitDataSource, SplitSpec, directive_of_task, task_identity
from poundlock.plan.stage import SinkStep, Stage, run_together
from poundlock.storage.base import Storage
from poundlock.stream.nodes import (
    ApplyNode,
    Node,
    PythonNode,
    SideOutputNode,
    SinkNode,
    SourceNode,
    SqlNode,
    UnionNode,
    walk,
)

__all__ = ["AGAIN", "Lowered", "Lowering", "observed_name"]

RECORD = "record string"
ROW, KEEP = "__row", "__keep"
AGAIN = "#"  # between a source's name and the number of its second and later uses in one query


def observed_name(head: str, source: str) -> str:
    """Return the name under which Spark counts the rows a source gives to a branch."""
    return f"{head}/{source}"


@dataclass(frozen=True)
class Lowered:
    """The query.

    Args:
        frame: its DataFrame.
        observed: per branch head, the names of what Spark counts for it; none where the stage counts itself.
        row_wise: per branch head, whether rows that vanish before the stage were filtered.
        order: the uses of sources in the order in which Spark numbers them; None where it knows the sources by name.
    """

    frame: DataFrame
    observed: Mapping[str, Sequence[str]]
    row_wise: Mapping[str, bool]
    order: Sequence[str] | None


@dataclass
class Lowering:
    """Turns one plan into a DataFrame.

    Args:
        plan: the cut.
        spark: the session.
        job_id: 32 hex digits.
        sources: by name, as this start of the job reads them.
        reads: per Spark source, how Spark reads it.
        sinks: participants by name, as this job owns them.
        workspace: gives the durable folder of a split-planned source.
        parallelism: greatest number of tasks of a split-planned source.
    """

    plan: Plan
    spark: SparkSession
    job_id: str
    sources: Mapping[str, Any]
    reads: Mapping[str, SparkRead]
    sinks: Mapping[str, Participant]
    workspace: Callable[[str], Storage]
    parallelism: int
    _bad_frames: list[DataFrame] = field(default_factory=list)
    _observed: dict[str, list[str]] = field(default_factory=dict)
    _order: list[str] = field(default_factory=list)

    def lower(self) -> Lowered:
        """Return the query."""
        ship_user_modules()
        self.spark.dataSource.register(SplitDataSource)
        named = "true" if self.plan.named else "false"
        self.spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", named)
        self.spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2" if self.plan.named else "1")
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
        frame = reduce(DataFrame.union, frames)
        order = None if self.plan.named else self._order
        return Lowered(frame, self._observed, {b.head.id: b.row_wise for b in self.plan.branches}, order)

    def _reader(self, name: str) -> Any:
        """Return a reader for one more use of a source; a second use is a source of its own to Spark."""
        uses = sum(1 for used in self._order if used.partition(AGAIN)[0] == name)
        self._order.append(f"{name}{AGAIN}{uses + 1}" if uses else name)
        return self.spark.readStream.name(name) if self.plan.named else self.spark.readStream

    # --- the stage ---------------------------------------------------------------------------------------------------

    def _stage(self, branch: Branch, decoder: Any | None, columns: pa.Schema | Sequence[str]) -> Stage:
        head = branch.head.id
        steps = [Step(head, Pass(), [])]
        entry = head
        if decoder is not None:
            entry = f"{head}.decode"
            steps.append(Step(entry, Decode(decoder, _want(branch)), [Edge(head)]))
        schemas: dict[str, Any] = {}
        ids = {head: entry} | {node.id: node.id for node in branch.nodes}
        given: dict[str, pa.Schema | None] = {head: columns if isinstance(columns, pa.Schema) else None}
        names = {head: list(columns.names if isinstance(columns, pa.Schema) else columns)}
        for node in branch.nodes:
            inside = [p for p in node.inputs if p.id in ids]
            given[node.id] = _schema_after(node, given[inside[0].id])
            known = given[node.id]
            names[node.id] = names[inside[0].id] if known is None else list(known.names)
            if isinstance(node, SinkNode):
                schemas[node.id] = given[inside[0].id]
                _check_columns(self.sinks[node.id], node.id, names[node.id])
            edges = [_edge(node, parent, ids[parent.id]) for parent in inside]
            steps.append(Step(node.id, _operator(node, given[inside[0].id]), edges))
        fed = {sink.id for sink in branch.sinks} | ({DEAD_LETTER} & set(self.plan.sinks))
        sinks = {name: self.sinks[name] for name in fed}
        return Stage(self.job_id, head, steps, sinks, self.plan.job.on_error, schemas)

    # --- the three placements ----------------------------------------------------------------------------------------

    def _fused(self, branch: Branch) -> DataFrame:
        source: SplitSource = self.sources[branch.head.id]
        stage = self._stage(branch, None, source.schema())
        return self._read_splits(branch.head.id, source, RECORD, stage, _want(branch))

    def _read_splits(
        self, name: str, source: SplitSource, columns: str, stage: Stage | None, want: Literal["batch", "records"]
    ) -> DataFrame:
        reader = self._reader(name)
        spec = SplitSpec(name, source, self.workspace(self._order[-1]), self.parallelism, columns, stage, want)
        frame: DataFrame = reader.format(FORMAT).option("spec", spec.option()).load()
        return frame

    def _direct(self, branch: Branch) -> DataFrame:
        name = branch.head.id
        source: SparkSource = self.sources[name]
        frame = self._connector(name)
        topic = _single_topic(branch.sources[0].source)
        decoder = source.decoder()
        kafka = {"topic", "partition", "offset"} <= set(frame.columns)
        only_value = decoder is None and _only_value(branch)
        carried = [c for c in frame.columns if c != "value"] if decoder is not None else []
        needed = carried if _reads_metadata(branch.sources[0].source) else []
        as_lines = kafka and not needed and (decoder is not None or only_value)
        place = [f"partition as {PARTITION}", f"offset as {OFFSET}"] + ([f"topic as {TOPIC}"] if topic is None else [])
        if as_lines:
            # One "\n" behind each value makes the Arrow buffer the image of the file.
            frame = frame.selectExpr("concat(value, X'0A') as value", *place)
        elif kafka:
            frame = frame.selectExpr("*", *place)
        after = _visible(frame) if decoder is None else [*decoder.schema().names, *needed]
        schema = decoder.schema() if decoder is not None and not needed else after
        return self._sink_stage(frame, self._stage(branch, decoder, schema), as_lines, topic)

    def _shared(self, branches: Sequence[Branch]) -> DataFrame:
        """One pass over a source for several branches: a struct column each, null where the branch has filtered the row."""
        base = self._source_rows(branches[0].sources[0])
        frame = base.selectExpr(f"struct({', '.join(_quoted(base.columns))}) as {ROW}")
        columns: list[str] = []
        stages: list[Stage] = []
        for number, branch in enumerate(branches):
            frame = frame.selectExpr(ROW, *columns, f"{ROW}.*", f"true as {KEEP}")
            for node in walk([branch.head]):
                if isinstance(node, SqlNode):
                    frame = _sql_kept(frame, node, [ROW, *columns])
            rest = [c for c in frame.columns if c not in (ROW, KEEP, *columns, *HIDDEN)]
            fields = ", ".join(_quoted(rest))
            frame = frame.selectExpr(ROW, *columns, f"IF({KEEP}, struct({fields}), NULL) as __b{number}")
            columns.append(f"__b{number}")
            stages.append(self._stage(branch, None, rest))
        hidden = [f"{ROW}.`{name}` as `{name}`" for name in base.columns if name in HIDDEN]
        frame = frame.selectExpr(*hidden, *columns)
        topic = _single_topic(branches[0].sources[0].source)
        return frame.mapInArrow(_shared_task(stages, branches[0].sources[0].id, topic, columns), RECORD)

    def _spread(self, branch: Branch) -> list[DataFrame]:
        self._bad_frames = []
        frame = self._spark_side(branch.head, branch.head.id)
        stage = self._stage(branch, None, _visible(frame))
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

    def _connector(self, name: str) -> DataFrame:
        read = self.reads[name]
        reader = self._reader(name).format(read.format).options(**read.options)
        if read.schema is not None:
            reader = reader.schema(read.schema)
        frame: DataFrame = reader.load()
        if read.columns is not None:
            frame = frame.selectExpr(*read.columns)
        return frame if read.where is None else frame.where(read.where)

    def _spark_side(self, node: Node, head: str | None) -> DataFrame:
        """Return the rows of a node on Spark's side. `head` names the branch that counts; None = not counted."""
        if isinstance(node, SourceNode):
            frame = self._source_rows(node)
            if head is not None:
                name = observed_name(head, self._order[-1])
                self._observed.setdefault(head, []).append(name)
                frame = frame.observe(name, F.count(F.lit(1)).alias("rows"))
            return frame
        inputs = [self._spark_side(parent, head) for parent in node.inputs]
        if isinstance(node, SqlNode):
            return _sql(inputs[0], node)
        if isinstance(node, UnionNode):
            return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), inputs)
        if isinstance(node, ApplyNode):
            frame = inputs[0]
            if BAD in frame.columns:
                if head is not None and not self.plan.named:
                    again = self._spark_side(node.inputs[0], None)
                    self._bad_frames.append(again.where(f"{BAD} IS NOT NULL").select(BAD))
                frame = frame.where(f"{BAD} IS NULL")
            result: DataFrame = node.function(frame.drop(*HIDDEN))
            return result
        if isinstance(node, (PythonNode, SideOutputNode)):
            return _python_stage(inputs[0], node)
        raise TypeError(f"{type(node).__name__} has no Spark side")

    def _source_rows(self, node: SourceNode) -> DataFrame:
        source = self.sources[node.id]
        if isinstance(source, SplitSource):
            columns = f"{ddl.render(source.schema())}, `{BAD}` string"
            return self._read_splits(node.id, source, columns, None, "batch")
        frame = self._connector(node.id)
        decoder = source.decoder()
        kafka = {"topic", "partition", "offset"} <= set(frame.columns)
        hidden = [BAD, TOPIC, PARTITION, OFFSET] if kafka else [BAD]
        if kafka:
            frame = frame.selectExpr("*", f"topic as {TOPIC}", f"partition as {PARTITION}", f"offset as {OFFSET}")
        if decoder is None:
            return frame
        if not _reads_metadata(node.source):
            frame = frame.select("value", *(c for c in frame.columns if c in HIDDEN))
        return _decoded(frame, decoder, node.id, _single_topic(node.source), hidden)


def _visible(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name not in HIDDEN]


def _check_columns(sink: Any, name: str, columns: Sequence[str]) -> None:
    """Let a sink that wants to refuse rows without the columns it needs, before anything runs."""
    check = getattr(sink, "check_columns", None)
    if check is not None:
        check(name, columns)


def _reads_metadata(source: Any) -> bool:
    """Return whether decoded rows also have columns of the record they came in."""
    return bool(getattr(source, "metadata", None)) or bool(getattr(source, "include_headers", False))


def _quoted(names: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in names]


def _sql_kept(frame: DataFrame, node: SqlNode, kept: Sequence[str]) -> DataFrame:
    """Apply row-wise SQL where filtered rows stay, empty, so that several branches can share a pass."""
    stay = [name for name in frame.columns if name in (*kept, KEEP, *HIDDEN)]
    own = [name for name in frame.columns if name not in stay]
    if node.kind == "select":
        wanted = [e for text in node.arguments for e in (_quoted(own) if text.strip() == "*" else [text])]
        return frame.selectExpr(*_quoted(stay), *wanted)
    if node.kind == "where":
        frame = frame.withColumn(KEEP, F.expr(f"{KEEP} AND coalesce(({node.arguments[0]}), false)"))
        # Emptied, so that a later expression never meets values that the condition kept from it.
        return frame.selectExpr(*_quoted(stay), *(f"IF({KEEP}, `{name}`, NULL) as `{name}`" for name in own))
    return _sql(frame, node)


def _shared_task(stages: Sequence[Stage], source: str, topic: str | None, columns: Sequence[str]) -> Any:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        directive = directive_of_task()
        if directive["decided"]:
            for _ in batches:
                pass
            return

        def read(rejects: Sequence[Callable[[Reject], None]]) -> Iterator[tuple[int, list[Chunk]]]:
            def reject(record: Reject) -> None:
                for each in rejects:
                    each(record)

            for batch in batches:
                yield shared_chunks(batch, reject, source, topic, columns)

        tasks = [task_identity() for _ in stages]
        texts = list(run_together(stages, read, directive, tasks))
        if texts:
            yield pa.RecordBatch.from_pydict({"record": texts})

    return task


def _single_topic(source: Any) -> str | None:
    topics = getattr(source, "topics", None)
    return topics[0] if topics is not None and len(topics) == 1 else None


def _only_value(branch: Branch) -> bool:
    """Return whether every step that reads the head is a sink that needs the raw value and nothing else."""
    readers = [node for node in branch.nodes if any(parent is branch.head for parent in node.inputs)]
    return all(isinstance(node, SinkNode) and bool(getattr(node.sink, "needs_only_value", False)) for node in readers)


def _want(branch: Branch) -> Literal["batch", "records"]:
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
        yield from arrow_rows(chunks, schema, hidden, bad, source)

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

        yield from arrow_rows(chunks(), after, [BAD], bad, python.id)

    return frame.mapInArrow(task, _columns(ddl.render(after), [BAD]))
