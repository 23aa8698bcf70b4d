"""What became of the rows on the way to each sink: read + produced = written + filtered + late + dead-lettered + skipped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from poundlock.checkpoint.participant import DEAD_LETTER, Counts
from poundlock.operators.chain import Edge, StepCounts
from poundlock.operators.factory import edge
from poundlock.plan.segments import Segment
from poundlock.stream.nodes import Node, SinkNode, SourceNode, SqlNode, UnionNode, walk


def sink_counts(
    nodes: Sequence[Node], segments: Sequence[Segment], totals: Mapping[str, StepCounts], *, keeps_dead_letters: bool
) -> dict[str, Counts]:
    """Return the counts of each sink, dead letters included.

    Args:
        segments: those of them that Spark runs: rows are counted as they go in and as they come out.
        totals: rows per step, added up over all tasks of all stages.
        keeps_dead_letters: whether rejected records are kept; otherwise they were skipped.
    """
    readers: dict[Edge, list[str]] = {}
    for node in nodes:
        for parent in node.inputs:
            readers.setdefault(edge(node, parent.id), []).append(node.id)
    counts = {}
    for node in nodes:
        if isinstance(node, SinkNode):
            account = counts[node.id] = _on_the_way(node, segments, totals, readers)
            if not keeps_dead_letters:
                account.skipped, account.dead_lettered = account.dead_lettered, 0
    letters = totals.get(DEAD_LETTER)
    if letters is not None:
        counts[DEAD_LETTER] = Counts(read=letters.rows_in, written=letters.rows_in)
    return counts


def _on_the_way(
    sink: SinkNode, segments: Sequence[Segment], totals: Mapping[str, StepCounts], readers: Mapping[Edge, Sequence[str]]
) -> Counts:
    upstream = list(walk([sink]))
    inside = {node.id for node in upstream}
    members = {node.id: {member.id for member in segment.nodes} for segment in segments for node in segment.nodes}
    counts = Counts()
    for node in upstream:
        if node is sink or (node.id in members and not _leaves(node, members[node.id], inside, readers)):
            continue
        step = totals.get(node.id, StepCounts())
        out = sum(
            rows
            * sum(
                reader in inside and reader not in members.get(node.id, ())
                for reader in readers.get(Edge(node.id, tag), ())
            )
            for tag, rows in step.rows_out.items()
        )
        counts.read += step.rows_in if isinstance(node, SourceNode) else 0
        counts.filtered += step.filtered
        counts.late += step.late
        counts.dead_lettered += step.rejected
        counts.produced += out - step.rows_in + step.filtered + step.rejected + step.late
    for segment in segments:
        _through(segment, inside, totals, readers, counts)
    written = totals.get(sink.id, StepCounts())
    counts.written = written.rows_out.get("", 0)
    counts.dead_lettered += written.rejected
    return counts


def _through(
    segment: Segment,
    inside: Collection[str],
    totals: Mapping[str, StepCounts],
    readers: Mapping[Edge, Sequence[str]],
    counts: Counts,
) -> None:
    """Add what became of rows within a segment: what row-wise SQL leaves out was filtered, what a function makes was produced."""
    members = {node.id for node in segment.nodes}
    came = sum(
        totals.get(node.id, StepCounts()).rows_out.get("", 0)
        * sum(reader in members and reader in inside for reader in readers.get(Edge(node.id), ()))
        for node in segment.inputs
    )
    went = sum(
        totals.get(node.id, StepCounts()).rows_in
        for node in segment.outputs
        if node.id in inside and _leaves(node, members, inside, readers)
    )
    if went < came and all(isinstance(node, (SqlNode, UnionNode)) for node in segment.nodes):
        counts.filtered += came - went
    else:
        counts.produced += went - came


def _leaves(
    node: Node, members: Collection[str], inside: Collection[str], readers: Mapping[Edge, Sequence[str]]
) -> bool:
    """Return whether rows leave a segment at a step on the way to the sink, and do not only go on within the segment.

    A step that another sink's rows leave at is an output of the segment too, and is no part of this sink's account.
    """
    return any(reader in inside and reader not in members for reader in readers.get(Edge(node.id), ()))
