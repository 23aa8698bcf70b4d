"""What a streaming query of Spark's runs for a job: a SparkSource, and the SQL and DataFrame functions right behind it.

These are given the stream itself, so that a function may keep state in Spark, as with `withWatermark`. Everything behind them is
in stages of our own. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from poundlock.connectors.base import SparkSource
from poundlock.stream.nodes import ApplyNode, Node, SinkNode, SourceNode, SqlNode, walk


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
