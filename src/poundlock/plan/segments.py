"""Where rows enter the JVM: connected steps that Spark runs, cut out of a job's graph so that rows go in once and come out once.

Pure. No path leads out of a segment and back into it, so segments and the steps between them can be run one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from poundlock.stream.nodes import Node, UnionNode, walk


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
