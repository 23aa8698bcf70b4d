"""A job's plan as a picture's nodes and edges: sources, steps, segments of Spark's, sinks, and how rows go from one to the next.

Needs neither Spark nor data. It is written down once when a driver begins, so that a job that has ended can still be drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from poundlock.plan.explain import describe_part, describe_step
from poundlock.plan.outline import exchange_of, is_keyed, outline
from poundlock.plan.plan import DEAD_LETTER, make_plan
from poundlock.plan.segments import spark_streams
from poundlock.stream.nodes import Node, SinkNode, SourceNode

if TYPE_CHECKING:
    from poundlock.job import Job

NodeKind = Literal["source", "step", "keyed", "partitioned", "spark", "sink", "dead letters"]
Ship = Literal["forward", "key groups", "spread", "to Spark", "from Spark", "bad records"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A step: its id, what it does in words, and the stage that runs it, from 1; 0 = none does, as with what Spark streams."""

    id: str
    kind: NodeKind
    what: str
    stage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEdge:
    """Rows that go from one node to another, and how: "forward" is within a task, "key groups" and "spread" through an exchange."""

    source: str
    target: str
    ship: Ship = "forward"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStage:
    """A stage: where its rows come from, see `StageOutline`, and the ids of its steps."""

    number: int
    kind: str
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGraph:
    """A job as a graph; empty where nobody knows it, as of a driver of an older version."""

    nodes: Sequence[GraphNode] = ()
    edges: Sequence[GraphEdge] = ()
    stages: Sequence[GraphStage] = ()


def job_graph(job: Job) -> JobGraph:
    """Return a job as a graph. Raises DefinitionError if the job cannot be planned."""
    plan = make_plan(job)
    nodes: dict[str, GraphNode] = {}
    steps: list[Node] = []
    stages: list[GraphStage] = []
    for number, stage in enumerate(outline(plan), 1):
        here: list[str] = []
        for node in (*stage.spark, *stage.steps):
            # A step that gets rows from several stages is in each of them, and drawn in the first.
            if node.id not in nodes:
                in_spark = any(each is node for each in stage.spark)
                kind = "spark" if in_spark else _kind(node)
                nodes[node.id] = GraphNode(id=node.id, kind=kind, what=describe_step(node), stage=number)
                steps.append(node)
                here.append(node.id)
        stages.append(GraphStage(number=number, kind=stage.kind, nodes=here))
    edges = [
        GraphEdge(source=parent.id, target=node.id, ship=_ship(nodes[parent.id], nodes[node.id], node))
        for node in steps
        for parent in node.inputs
        if parent.id in nodes
    ]
    for name, streamed in spark_streams(list(job.graph())).steps.items():
        for node in streamed:
            if node.id not in nodes:
                nodes[node.id] = GraphNode(id=node.id, kind="spark", what=describe_step(node))
        if streamed and streamed[-1].id != name and name in nodes:
            edges.append(GraphEdge(source=streamed[-1].id, target=name, ship="from Spark"))
    if DEAD_LETTER in plan.sinks:
        nodes[DEAD_LETTER] = GraphNode(id=DEAD_LETTER, kind="dead letters", what=describe_part(plan.sinks[DEAD_LETTER]))
        edges += [
            GraphEdge(source=node.id, target=DEAD_LETTER, ship="bad records")
            for node in steps
            if isinstance(node, SourceNode)
        ]
    return JobGraph(nodes=list(nodes.values()), edges=edges, stages=stages)


def _kind(node: Node) -> NodeKind:
    if isinstance(node, SourceNode):
        return "source"
    if isinstance(node, SinkNode):
        return "sink"
    if is_keyed(node):
        return "keyed"
    return "step" if exchange_of(node) is None else "partitioned"


def _ship(parent: GraphNode, child: GraphNode, node: Node) -> Ship:
    if child.kind == "spark":
        return "forward" if parent.kind == "spark" else "to Spark"
    exchange = exchange_of(node)
    if exchange is not None:
        return "key groups" if exchange == "keyed" else "spread"
    return "from Spark" if parent.kind == "spark" else "forward"
