"""The stages of a job as far as its graph alone tells them: where rows change hands, and which steps are in each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from poundlock.plan.normalize import Normalized, normalize
from poundlock.plan.plan import Plan
from poundlock.plan.segments import Segment, cut_segments, spark_streams
from poundlock.stream.nodes import (
    ApplyNode,
    KeyedNode,
    Node,
    PartitionNode,
    SqlNode,
    WatermarkNode,
    WindowNode,
    walk,
)
from poundlock.tasks.event_time import reads_like_a_column


def is_keyed(node: Node) -> bool:
    """Return whether a step keeps state by key, so that its rows come through an exchange."""
    return isinstance(node, (WindowNode, KeyedNode))


StageKind = Literal["source", "keyed", "partitioned", "spark"]


@dataclass(frozen=True)
class StageOutline:
    """A stage as far as the graph alone tells it.

    Args:
        kind: "source" = our readers begin it; "keyed" = rows come by key group; "partitioned" = rows are placed in its tasks;
            "spark" = rows come out of Spark's SQL engine.
        depth: how many stages are before it.
        spark: the steps that Spark runs before it.
        steps: the steps that its tasks run; a step that gets rows from several stages is in each of them.
    """

    kind: StageKind
    depth: int
    spark: Sequence[Node]
    steps: Sequence[Node]


def outline(plan: Plan) -> list[StageOutline]:
    """Return the stages of a job in order; needs nobody but the graph."""
    graph = normalized_graph(plan, ())
    segments = cut_segments(graph.roots, runs_in_spark)
    keys: dict[int, frozenset[tuple[int, str]]] = {}  # of a step: (depth, name) of each stage that has its rows
    spark: dict[tuple[int, str], Sequence[Node]] = {}
    steps: dict[tuple[int, str], list[Node]] = {(0, "source"): []}
    for unit in in_order(list(walk(graph.roots)), segments):
        before = frozenset().union(*(keys[id(parent)] for parent in unit.inputs)) or frozenset({(0, "source")})
        deeper = max(depth for depth, _ in before) + 1
        if isinstance(unit, Segment):
            mine = (deeper, f"spark {unit.id}")
            spark[mine] = unit.nodes
            steps.setdefault(mine, [])
            keys |= {id(node): frozenset({mine}) for node in unit.nodes}
            continue
        exchange = exchange_of(unit)
        keys[id(unit)] = before if exchange is None else frozenset({(deeper, exchange)})
        for key in keys[id(unit)]:
            steps.setdefault(key, []).append(unit)
    return [StageOutline(_kind(key), key[0], spark.get(key, ()), steps[key]) for key in sorted(steps)]


def _kind(key: tuple[int, str]) -> StageKind:
    kinds: dict[str, StageKind] = {"source": "source", "keyed": "keyed", "partitioned": "partitioned"}
    return kinds.get(key[1], "spark")


def exchange_of(node: Node) -> Literal["keyed", "partitioned"] | None:
    """Return the kind of the stage that begins with a step; None where no stage does."""
    return "keyed" if is_keyed(node) else "partitioned" if isinstance(node, PartitionNode) else None


def state_spaces(plan: Plan) -> dict[str, list[str]]:
    """Return the ids of the steps of a job that keep state, by the name of the stage they are in; needs nobody but the graph."""
    return {
        f"stage-{stage.depth}": [node.id for node in stage.steps if is_keyed(node)]
        for stage in outline(plan)
        if stage.kind == "keyed"
    }


def enters_jvm(plan: Plan) -> bool:
    """Return whether rows of a job enter the JVM: for Spark SQL, functions of DataFrames, or a source that Spark reads."""
    return plan.has_streams or any(runs_in_spark(node) for node in walk(normalized_graph(plan, ()).roots))


def normalized_graph(plan: Plan, left: Collection[str]) -> Normalized:
    """Return the graph of a job with columns for expressions; `left` are steps whose timestamps only Spark can compute."""
    graph = spark_streams(list(plan.job.graph()))

    def time_in_tasks(node: WatermarkNode) -> bool:
        return node.id not in left and reads_like_a_column(str(node.strategy.timestamp))

    return normalize(graph.roots, time_in_tasks=time_in_tasks)


def runs_in_spark(node: Node) -> bool:
    """Return whether Spark's SQL engine runs a step."""
    return isinstance(node, (SqlNode, ApplyNode))


def in_order(nodes: Sequence[Node], segments: Sequence[Segment]) -> list[Node | Segment]:
    """Return the steps that tasks run, and the segments, each behind all that it reads from."""
    inside = {id(node): segment for segment in segments for node in segment.nodes}
    waiting: list[Node | Segment] = [*segments, *(node for node in nodes if id(node) not in inside)]
    done: set[int] = set()
    ordered: list[Node | Segment] = []
    while waiting:
        ready = [unit for unit in waiting if all(id(parent) in done for parent in unit.inputs)]
        assert ready, "no path leads out of a segment and back into it"
        for unit in ready:
            done |= {id(node) for node in (unit.nodes if isinstance(unit, Segment) else (unit,))}
        ordered += ready
        waiting = [unit for unit in waiting if unit not in ready]
    return ordered
