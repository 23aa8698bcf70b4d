"""A job as stages: which steps one task runs in one pass over its rows, and where rows change hands between tasks.

Every record is read and decoded once, whatever hangs on it. Pure: what comes out names no Spark object, and runs in a test as
in a task; only the columns behind a Spark segment are asked of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import pyarrow as pa

from poundlock.checkpoint.capabilities import check_rows
from poundlock.checkpoint.participant import DEAD_LETTER, Participant
from poundlock.connectors.base import SplitSource
from poundlock.errors import DefinitionError
from poundlock.operators.calc import Calc
from poundlock.operators.chain import Edge, Operator, Pass, Step
from poundlock.operators.factory import edge, operator_of, schema_after
from poundlock.operators.stream_times import StreamTimes
from poundlock.operators.time_graph import TimeGraph
from poundlock.plan.heads.columns import known_schema
from poundlock.plan.heads.keyed import exchange_inputs, keyed_head, placing_input
from poundlock.plan.heads.source import source_head
from poundlock.plan.normalize import Normalized
from poundlock.plan.outline import exchange_of, in_order, is_keyed, normalized_graph, runs_in_spark
from poundlock.plan.plan import Plan
from poundlock.plan.segments import Segment, cut_segments
from poundlock.plan.sql_text import resolve_column
from poundlock.stream.nodes import (
    ApplyNode,
    CalcNode,
    Node,
    PartitionNode,
    PythonNode,
    SideOutputNode,
    SinkNode,
    SourceNode,
    WatermarkNode,
    walk,
)
from poundlock.tasks.columns import EVENT_TIME, HIDDEN, HIDDEN_TYPES, SPLIT, visible_schema
from poundlock.tasks.event_time import EventTimeAssigner, NeedsSpark, assigner_for
from poundlock.tasks.exchange.exits import ExchangeStep, ToSegment
from poundlock.tasks.keyed_rows import WithoutTime
from poundlock.tasks.keyed_stage import KeyedHead, KeyedStage
from poundlock.tasks.partitioned_stage import PartitionedStage
from poundlock.tasks.rows_stage import RowsStage, SourceHead, SourceStage
from poundlock.tasks.stage import SinkStep, StageBody, WatermarkStep


class SparkAnalysis(Protocol):
    """What only Spark can say of a job before it runs; asked only where a job has a part for Spark."""

    def segment(self, segment: Segment, inputs: Mapping[str, pa.Schema]) -> tuple[Any, Mapping[str, pa.Schema]]:
        """Return a segment that can be run, and the columns of each output, hidden ones included."""

    def name_of(self, schema: pa.Schema, text: str) -> str:
        """Return what Spark calls an expression over some columns."""


@dataclass(frozen=True)
class SegmentStage:
    """A Spark segment, and the stage that its rows go on in.

    Args:
        inputs: ids of the steps whose rows go in.
        functions: whether functions of DataFrames are in it, of which nobody knows how often they read their rows, or whether all.
    """

    segment: Any
    inputs: Sequence[str]
    functions: bool
    rows: RowsStage


Stage = KeyedStage | PartitionedStage | SegmentStage


@dataclass(frozen=True)
class StageChain:
    """The stages of a job.

    Args:
        nodes: the steps of the job, inputs before readers.
        later: the others by number, each behind those that it gets rows from.
        feeds: per stage, the numbers of those that it sends rows or event times to.
    """

    nodes: Sequence[Node]
    segments: Sequence[Segment]
    source: SourceStage
    later: Mapping[int, Stage]
    feeds: Mapping[int, frozenset[int]]
    times: StreamTimes

    @cached_property
    def operators(self) -> list[str]:
        """The ids of the operators that keep state."""
        return [head.id for stage in self.later.values() if isinstance(stage, KeyedStage) for head in stage.operators]

    @cached_property
    def has_segments(self) -> bool:
        """Whether Spark's SQL engine runs a part of it."""
        return any(isinstance(stage, SegmentStage) for stage in self.later.values())

    @cached_property
    def needs_places(self) -> bool:
        """Whether tasks have to know of all splits of a checkpoint."""
        return any(isinstance(stage, SegmentStage | PartitionedStage) for stage in self.later.values())

    @property
    def keeps_dead_letters(self) -> bool:
        """Whether records that cannot be decoded, placed or written are kept."""
        return DEAD_LETTER in self.source.body.sinks


def stage_chain(
    plan: Plan,
    *,
    job_id: str,
    sources: Mapping[str, SplitSource],
    sinks: Mapping[str, Participant],
    state_dir: str,
    analysis: SparkAnalysis,
) -> StageChain:
    """Return the stages of a job.

    Args:
        job_id: 32 hex digits.
        sources: by name, as this attempt reads them.
        sinks: participants by name, as the job owns them.
        state_dir: the job's checkpoint folder, below which it keeps its state.

    Raises:
        DefinitionError: a step lacks columns that it needs.
    """
    left: set[str] = set()  # steps whose timestamps only Spark can compute, as their columns showed
    while True:
        graph = normalized_graph(plan, left)
        try:
            return _Builder(plan, graph, job_id, sources, sinks, state_dir, analysis).build()
        except _LeftToSpark as exception:
            if exception.step in left:  # Spark was asked, and came to the same column
                raise DefinitionError(
                    f"{exception.step}: {exception.why}",
                    next=f"take event time from one of {', '.join(exception.columns)}",
                ) from None
            left.add(exception.step)


class _LeftToSpark(Exception):
    """Raised where the columns of a step show that tasks cannot compute its timestamps, and why they cannot."""

    def __init__(self, step: str, why: str, columns: Sequence[str]) -> None:
        super().__init__(step)
        self.step, self.why, self.columns = step, why, columns


@dataclass
class _Draft:
    """A stage while it is cut: `placed` are the steps that place rows in it with their columns, `segment` is what Spark runs before it, as it was cut and as Spark analyzed it."""

    depth: int
    exchange: Literal["keyed", "partitioned"] | None = None
    steps: list[Step] = field(default_factory=list)
    heads: list[KeyedHead] = field(default_factory=list)
    placed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    feeds: set[int] = field(default_factory=set)
    segment: tuple[Segment, Any] | None = None


@dataclass
class _Builder:
    """Cuts one job. Schemas, whether rows are timed, and the stages that rows are in are known by the id of a step."""

    plan: Plan
    graph: Normalized
    job_id: str
    sources: Mapping[str, SplitSource]
    sinks: Mapping[str, Participant]
    state_dir: str
    analysis: SparkAnalysis
    _schemas: dict[str, pa.Schema | None] = field(default_factory=dict)
    _timed: dict[str, bool] = field(default_factory=dict)
    _stages: dict[str, frozenset[int]] = field(default_factory=dict)
    _source_heads: dict[str, SourceHead] = field(default_factory=dict)
    _drafts: list[_Draft] = field(default_factory=lambda: [_Draft(0)])

    @cached_property
    def _times(self) -> StreamTimes:
        return StreamTimes(TimeGraph.of(self.graph.roots))

    def build(self) -> StageChain:
        nodes = list(walk(self.graph.roots))
        segments = cut_segments(self.graph.roots, runs_in_spark)
        for unit in in_order(nodes, segments):
            if isinstance(unit, Segment):
                self._add_segment(unit)
            elif isinstance(unit, SourceNode):
                self._add_source(unit, nodes)
            elif is_keyed(unit):
                self._add_keyed(unit)
            elif isinstance(unit, PartitionNode):
                self._add_partition(unit)
            else:
                self._add_step(unit)
        order = sorted(range(1, len(self._drafts)), key=lambda number: (self._drafts[number].depth, number))
        later = {number: self._stage(number) for number in order}
        feeds = {number: frozenset(draft.feeds) for number, draft in enumerate(self._drafts) if draft.feeds}
        source = SourceStage(self._body(0), self._source_heads)
        return StageChain(nodes, segments, source, later, feeds, self._times)

    def _stage(self, number: int) -> Stage:
        draft, body = self._drafts[number], self._body(number)
        if draft.exchange == "partitioned":
            return PartitionedStage(body, draft.placed)
        if draft.segment is None:
            return KeyedStage(body, draft.heads, f"stage-{draft.depth}", self._times, self.state_dir)
        segment, analyzed = draft.segment
        functions = any(isinstance(node, ApplyNode) for node in segment.nodes)
        return SegmentStage(analyzed, [node.id for node in segment.inputs], functions, RowsStage(body))

    def _body(self, number: int) -> StageBody:
        draft = self._drafts[number]
        later = [stage for stage in sorted(draft.feeds) if self._drafts[stage].exchange]
        return StageBody(number, self.job_id, draft.steps, dict(self.sinks), self.plan.job.on_error, later)

    # --- the steps -----------------------------------------------------------------------------------------------------

    def _add_source(self, node: SourceNode, nodes: Sequence[Node]) -> None:
        source = self.sources[node.id]
        self._schemas[node.id], self._timed[node.id] = source.schema(), False
        self._stages[node.id] = frozenset({0})
        self._source_heads[node.id] = source_head(node, source, nodes)
        self._drafts[0].steps.append(Step(node.id, Pass(), []))

    def _add_step(self, node: Node) -> None:
        before = self._schemas[node.inputs[0].id]
        self._stages[node.id] = frozenset().union(*(self._stages[parent.id] for parent in node.inputs))
        self._schemas[node.id] = self._schema_after(node, before)
        timed = any(self._timed[_output(parent, node)] for parent in node.inputs)
        self._timed[node.id] = timed and not isinstance(node, PythonNode)
        for stage in sorted(self._stages[node.id]):
            edges = [edge(node, parent.id) for parent in node.inputs if stage in self._stages[parent.id]]
            if isinstance(node, PythonNode) and timed:
                self._drafts[stage].steps.append(Step(f"{node.id}#timeless", WithoutTime(), edges))
                edges = [Edge(f"{node.id}#timeless")]
            self._drafts[stage].steps.append(Step(node.id, self._operator(node, before), edges))

    def _add_keyed(self, node: Any) -> None:
        number = self._new_stage(node.inputs, "keyed")
        self._stages[node.id] = frozenset({number})
        given = [self._schemas[parent.id] for parent in node.inputs]
        timed = [self._timed[parent.id] for parent in node.inputs]
        head = keyed_head(node, given, timed, self.graph, self.analysis.name_of, bounded=self.plan.batch)
        self._drafts[number].heads.append(head)
        self._drafts[number].steps.append(Step(node.id, Pass(), []))
        for tag, output in head.outputs.items():
            name = f"{node.id}\0{tag}" if tag else node.id
            self._schemas[name], self._timed[name] = output.schema, True
        inputs = exchange_inputs(node, head, max_parallelism=self.plan.job.max_parallelism)
        for side, (parent, (to, columns)) in enumerate(zip(node.inputs, inputs, strict=True)):
            for stage in self._stages[parent.id]:
                seen = frozenset((*to.keys, *head.inputs[side].columns))
                exchange = ExchangeStep(
                    to, number, self._with_time(parent), tuple(columns), seen, head.windows, self._times
                )
                self._drafts[stage].steps.append(Step(f"{node.id}#{side}", exchange, [Edge(parent.id)]))
                self._drafts[stage].feeds.add(number)
        for stage in self._time_stages(node):
            self._drafts[stage].feeds.add(number)

    def _add_partition(self, node: PartitionNode) -> None:
        """Add a step that places rows: its exchange in the stages before, and the stage that they go on in."""
        number = self._new_stage(node.inputs, "partitioned")
        (parent,) = node.inputs
        schema = known_schema(node.id, self._schemas[parent.id])
        (taken,) = self.graph.inputs[node.id]
        own = pa.schema([field for field in schema if field.name not in taken.hidden])
        self._stages[node.id] = frozenset({number})
        self._schemas[node.id], self._timed[node.id] = own, self._timed[parent.id]
        self._drafts[number].steps.append(Step(node.id, Pass(), []))
        self._drafts[number].placed[node.id] = tuple(self._with_time(node).names)
        keys = [resolve_column(schema, key.column, node.id) for key in taken.keys]
        to = placing_input(node, keys)
        columns = dict.fromkeys([*self._with_time(node).names, *to.keys])
        for stage in self._stages[parent.id]:
            exchange = ExchangeStep(to, number, self._with_time(parent), tuple(columns), frozenset(to.keys))
            self._drafts[stage].steps.append(Step(f"{node.id}#0", exchange, [Edge(parent.id)]))
        for stage in self._stages[parent.id] | self._time_stages(node):
            self._drafts[stage].feeds.add(number)

    def _add_segment(self, segment: Segment) -> None:
        number = self._new_stage(segment.inputs, None)
        schemas = {}
        for node in segment.inputs:
            schemas[node.id] = schema = self._into_spark(node)
            for stage in self._stages[node.id]:
                step = ToSegment(node.id, number, schema)
                self._drafts[stage].steps.append(Step(f"{node.id}#spark{number}", step, [Edge(node.id)]))
                self._drafts[stage].feeds.add(number)
        analyzed, outputs = self.analysis.segment(segment, schemas)
        self._drafts[number].segment = segment, analyzed
        for node in segment.nodes:
            self._stages[node.id] = frozenset({number})
        for node in segment.outputs:
            schema = outputs[node.id]
            self._schemas[node.id], self._timed[node.id] = visible_schema(schema), EVENT_TIME in schema.names
            self._drafts[number].steps.append(Step(node.id, Pass(), []))

    def _into_spark(self, node: Node) -> pa.Schema:
        """Return the columns with which the rows of a step go into a segment."""
        schema = self._schemas[node.id]
        if schema is None:
            raise DefinitionError(
                f"{node.id}: its columns are not known, and Spark needs them", next="declare them: map(…, schema=…)"
            )
        return self._with_time(node).append(pa.field(SPLIT, HIDDEN_TYPES[SPLIT]))

    def _with_time(self, node: Node) -> pa.Schema:
        """Return the columns of a step, with the hidden one of event time where its rows may have it."""
        schema = self._schemas[node.id]
        assert schema is not None
        return schema.append(pa.field(EVENT_TIME, HIDDEN_TYPES[EVENT_TIME])) if self._timed[node.id] else schema

    def _new_stage(self, inputs: Sequence[Node], exchange: Literal["keyed", "partitioned"] | None) -> int:
        """Return the number of the stage behind some steps: behind exchanges of one kind those of one depth share one."""
        depth = 1 + max(self._drafts[stage].depth for node in inputs for stage in self._stages[node.id])
        for number, draft in enumerate(self._drafts):
            if exchange is not None and draft.exchange == exchange and draft.depth == depth:
                return number
        self._drafts.append(_Draft(depth, exchange))
        return len(self._drafts) - 1

    def _time_stages(self, node: Node) -> set[int]:
        """Return the stages that know of event time what a step behind an exchange needs: up to the exchanges before it."""
        stages: set[int] = set()
        todo = list(node.inputs)
        while todo:
            parent = todo.pop()
            if isinstance(parent, WatermarkNode) or exchange_of(parent) is not None:
                stages |= self._stages[parent.id]
            if exchange_of(parent) is None:
                todo += parent.inputs
        return stages

    def _operator(self, node: Node, before: pa.Schema | None) -> Operator:
        if isinstance(node, SinkNode):
            if before is not None:
                check_rows(self.sinks[node.id], node.id, before)
            return SinkStep(node.id, before)
        if isinstance(node, WatermarkNode):
            return WatermarkStep(self._assigner(node, before))
        if isinstance(node, CalcNode):
            return Calc(node.program, HIDDEN)
        return operator_of(node, before)

    def _assigner(self, node: WatermarkNode, before: pa.Schema | None) -> EventTimeAssigner:
        assigner = assigner_for(node.id, node.strategy, pa.schema([]) if before is None else before)
        if isinstance(assigner, NeedsSpark):
            raise _LeftToSpark(node.id, assigner.reason, [] if before is None else before.names)
        return assigner

    def _schema_after(self, node: Node, before: pa.Schema | None) -> pa.Schema | None:
        if isinstance(node, WatermarkNode) and before is not None:
            return self._assigner(node, before).schema(before)
        if isinstance(node, SideOutputNode) and is_keyed(node.inputs[0]):
            return self._schemas[f"{node.inputs[0].id}\0{node.tag}"]
        return schema_after(node, before)


def _output(parent: Node, reader: Node) -> str:
    """Return by what the columns are known that a step reads of another."""
    return f"{parent.id}\0{reader.tag}" if isinstance(reader, SideOutputNode) and is_keyed(parent) else parent.id
