"""What of a job Spark runs: connected steps, cut out of its graph so that rows enter the JVM once, and queries that read a source.

Pure. No path leads out of a segment and back into it, so segments and the steps between them can be run one after another. A
SparkSource's query runs the SQL and DataFrame functions right behind it as well: these are given the stream itself, so that a
function may keep state in Spark, as with `withWatermark`. Everything behind them is in stages of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from poundlock.connectors.base import SparkSource
from poundlock.stream.nodes import ApplyNode, Node, SinkNode, SourceNode, SqlNode, UnionNode, walk


@dataclass(frozen=True, eq=False)
class Segment:
    """Steps that Spark runs together.

    Args:
        id: the ids of its outputs, with "+" between them.
        nodes: the steps, inputs before readers.
        inputs: steps outside whose rows come in, each once.
        outputs: steps inside whose rows somebody outside reads.
    """

    id: str
    nodes: Sequence[Node]
    inputs: Sequence[Node]
    outputs: Sequence[Node]


def cut_segments(roots: Sequence[Node], in_spark: Callable[[Node], bool]) -> list[Segment]:
    """Return the segments of a graph, those whose rows others read first.

    A union belongs to a segment if rows come to it from Spark and go on in Spark. Steps that read the same rows are in one
    segment, so that these rows enter the JVM once.

    Args:
        in_spark: whether Spark runs a step; asked of every step but unions.
    """
    order = list(walk(roots))
    inside = _inside(order, in_spark)
    depths = _depths(order, inside)
    groups = _connected([node for node in order if id(node) in inside], depths)
    segments = [_segment(nodes, order) for nodes in groups]
    return sorted(segments, key=lambda segment: depths[id(segment.nodes[0])])


def _readers(order: Sequence[Node]) -> dict[int, list[Node]]:
    readers: dict[int, list[Node]] = {}
    for node in order:
        for parent in dict.fromkeys(node.inputs):
            readers.setdefault(id(parent), []).append(node)
    return readers


def _inside(order: Sequence[Node], in_spark: Callable[[Node], bool]) -> set[int]:
    """Return the steps that Spark runs, unions between them included."""
    readers = _readers(order)
    inside = {id(node) for node in order if not isinstance(node, UnionNode) and in_spark(node)}
    wanted = set(inside)
    for node in reversed(order):
        if isinstance(node, UnionNode) and readers.get(id(node)) and all(id(r) in wanted for r in readers[id(node)]):
            wanted.add(id(node))
    for node in order:
        if id(node) in wanted and any(id(parent) in inside for parent in node.inputs):
            inside.add(id(node))
    return inside


def _depths(order: Sequence[Node], inside: set[int]) -> dict[int, int]:
    """Return how often rows change between Spark and the tasks on the longest way to each step."""
    depths: dict[int, int] = {}
    for node in order:
        here = id(node) in inside
        depths[id(node)] = max((depths[id(p)] + ((id(p) in inside) != here) for p in node.inputs), default=0)
    return depths


def _connected(nodes: Sequence[Node], depths: Mapping[int, int]) -> list[list[Node]]:
    """Return the steps in groups: those of one depth that are neighbours, or read the same rows."""
    groups: list[list[Node]] = []
    group_of: dict[tuple[int, int], list[Node]] = {}
    for node in nodes:
        depth = depths[id(node)]
        touched = {(id(each), depth) for each in (node, *node.inputs)}
        joined = {id(group_of[key]): group_of[key] for key in touched if key in group_of}
        mine = [*(member for group in joined.values() for member in group), node]
        groups = [*(group for group in groups if id(group) not in joined), mine]
        for member in mine:
            group_of |= {(id(each), depth): mine for each in (member, *member.inputs)}
    return groups


def _segment(nodes: Sequence[Node], order: Sequence[Node]) -> Segment:
    members = {id(node) for node in nodes}
    ordered = [node for node in order if id(node) in members]
    inputs = dict.fromkeys(parent for node in ordered for parent in node.inputs if id(parent) not in members)
    read_outside = {id(parent) for node in order if id(node) not in members for parent in node.inputs}
    outputs = [node for node in ordered if id(node) in read_outside]
    return Segment("+".join(node.id for node in outputs), ordered, tuple(inputs), tuple(outputs))


@dataclass(frozen=True)
class SparkStreams:
    """A graph whose Spark streams end where rows come out of them.

    Args:
        roots: the sinks; steps that a stream runs are not in their graph, its source stands for them.
        steps: per source that Spark reads, the steps behind it that its query runs, in their order.
    """

    roots: Sequence[SinkNode]
    steps: Mapping[str, Sequence[Node]]


def spark_streams(roots: Sequence[SinkNode]) -> SparkStreams:
    """Return a job's graph without the steps that a query of Spark's runs.

    Those are of one line: SQL and functions of one DataFrame, up to the first step that is neither, or to a fork.
    """
    order = list(walk(roots))
    steps = {node.id: _line_behind(node, order) for node in order if _is_stream(node)}
    ends = {id(steps[node.id][-1]): node for node in order if steps.get(node.id)}
    made: dict[int, Node] = {}
    for node in order:
        inputs = [made[id(parent)] for parent in node.inputs]
        same = all(a is b for a, b in zip(node.inputs, inputs, strict=True))
        made[id(node)] = ends.get(id(node)) or (node if same else replace(node, inputs=inputs))
    sinks = [made[id(root)] for root in roots]
    return SparkStreams([sink for sink in sinks if isinstance(sink, SinkNode)], steps)


def _is_stream(node: Node) -> bool:
    return isinstance(node, SourceNode) and isinstance(node.source, SparkSource)


def _line_behind(source: Node, order: Sequence[Node]) -> list[Node]:
    line: list[Node] = []
    last = source
    while True:
        readers = [node for node in order for parent in node.inputs if parent is last]
        if len(readers) != 1 or not isinstance(readers[0], (SqlNode, ApplyNode)) or len(readers[0].inputs) != 1:
            return line
        last = readers[0]
        line.append(last)
