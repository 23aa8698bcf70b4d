"""How watermarks flow through a job: where each stream gets its watermark from, where watermarks begin, and who waits for whom.

The graph is made from the job's nodes once and has nothing of them but ids and strategies, so it goes to every task. Alignment
(Flink's FLIP-182 and FLIP-217) is pure arithmetic over the state behind a checkpoint: what must not be read on until the slowest
of its group has caught up is left out of the ranges by whoever plans the next one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from poundlock.errors import DefinitionError
from poundlock.operators.time_values import MAX, MIN, UNKNOWN, SourceTime, TimeState, known
from poundlock.stream.nodes import (
    ApplyNode,
    CalcNode,
    Node,
    PartitionNode,
    PythonNode,
    SideOutputNode,
    SinkNode,
    SourceNode,
    SqlNode,
    UnionNode,
    WatermarkNode,
    walk,
)
from poundlock.stream.watermarks import Alignment, WatermarkStrategy
from poundlock.values import span_ms

_ROW_WISE = (SourceNode, PythonNode, CalcNode, SqlNode, SideOutputNode, UnionNode, WatermarkNode)
_STATELESS = (*_ROW_WISE, ApplyNode, PartitionNode, SinkNode)


@dataclass(frozen=True)
class TimeNode:
    """A step as far as watermarks go.

    Args:
        inputs: ids of the steps it reads from, each once.
        strategy: of a step that assigns timestamps and watermarks; None for others.
        sources: of such a step, the ids of the sources whose rows come there; UNKNOWN where nobody knows which row is whose.
        kept: whether it has a watermark of its own in the state, and does not only pass on that of its one input.
        behind_ms: how far its watermark is behind that of its input.
    """

    id: str
    inputs: tuple[str, ...]
    strategy: WatermarkStrategy | None = None
    sources: tuple[str, ...] = ()
    kept: bool = False
    behind_ms: int = 0

    @property
    def is_source(self) -> bool:
        """Whether rows come in here."""
        return not self.inputs


@dataclass(frozen=True)
class TimeGraph:
    """The steps of a job, inputs before those that read them."""

    nodes: tuple[TimeNode, ...]

    @classmethod
    def of(cls, roots: Sequence[Node]) -> TimeGraph:
        """Return the graph of a job.

        Raises:
            DefinitionError: a generator is to look at each record, or a source to be aligned, where nobody knows which partition
                a record is of.
        """
        sources: dict[str, tuple[str, ...]] = {}
        nodes = []
        for node in walk(roots):
            inputs = tuple(dict.fromkeys(each.id for each in node.inputs))
            sources[node.id] = _sources(node, [sources[name] for name in inputs])
            if not isinstance(node, WatermarkNode):
                kept = keeps_watermark(node)
                nodes.append(TimeNode(node.id, inputs, kept=kept, behind_ms=_behind_ms(node)))
                continue
            read = sources[node.id]
            if node.strategy.per_record and UNKNOWN in read:
                raise DefinitionError(
                    f"{node.id}: a watermark generator of each record behind a step that mixes partitions",
                    next="assign timestamps and watermarks right behind the source, or leave per_record=True out",
                )
            if node.strategy.alignment is not None and UNKNOWN in read:
                raise DefinitionError(
                    f"{node.id}: watermark alignment behind a step that mixes partitions, where no source could wait",
                    next="assign timestamps and watermarks right behind the source, or leave with_watermark_alignment(…) out",
                )
            nodes.append(TimeNode(node.id, inputs, node.strategy, read, kept=True))
        return cls(tuple(nodes))

    @property
    def assigners(self) -> tuple[TimeNode, ...]:
        """The steps that assign timestamps and watermarks."""
        return tuple(node for node in self.nodes if node.strategy is not None)

    def judging(self, operators: Container[str]) -> list[str]:
        """Return the steps whose rows are judged by their watermark, which never goes back: operators with event time, and the last steps.

        The watermark of an input of a union is not among them: it may be far behind that of the union, if it was idle.
        """
        timed: set[str] = set()
        for node in self.nodes:
            if node.strategy is not None or not timed.isdisjoint(node.inputs):
                timed.add(node.id)
        read = {name for node in self.nodes for name in node.inputs}
        return [each.id for each in self.nodes if each.id in timed and (each.id in operators or each.id not in read)]

    @property
    def per_record_sources(self) -> frozenset[str]:
        """The sources of which all splits of a partition must be read by one task of a checkpoint, in their order."""
        return frozenset(
            name
            for node in self.assigners
            if node.strategy is not None and node.strategy.per_record
            for name in node.sources
        )


def keeps_watermark(node: Node) -> bool:
    """Return whether a step has a watermark of its own in the state, and does not only pass on that of its one input."""
    is_own = isinstance(node, WatermarkNode) or not isinstance(node, _STATELESS)
    return is_own or len({each.id for each in node.inputs}) > 1 or _behind_ms(node) > 0


def _behind_ms(node: Node) -> int:
    return node.holds_back_ms if isinstance(node, CalcNode) else 0


def _sources(node: Node, inputs: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the sources whose rows a step gives on, as far as one can tell which row is whose."""
    if isinstance(node, SourceNode):
        return (node.id,)
    names = tuple(dict.fromkeys(name for each in inputs for name in each))
    return names if isinstance(node, _ROW_WISE) else (UNKNOWN,)


@dataclass(frozen=True, slots=True)
class Held:
    """What of a source has to wait.

    Args:
        everything: whether nothing of it is to be read.
        partitions: those that are not to be read; of a source whose splits are read to their end there are none.
        ahead_ms: how much further the farthest of them is than it may be.
    """

    everything: bool = False
    partitions: frozenset[str] = frozenset()
    ahead_ms: int = 0


NOTHING_HELD = Held()


def allowed(watermarks: Iterable[int], drift_ms: int) -> int:
    """Return the greatest watermark that a member of a group may have, given those of its active members."""
    least = min(watermarks, default=MAX)
    return MAX if least > MAX - drift_ms else MIN if least == MIN else least + drift_ms


def held(graph: TimeGraph, state: TimeState) -> dict[tuple[str, str], Held]:
    """Return what has to wait, by assigner and source; those of which nothing has to are left out.

    A source that is idle or has ended holds nobody back. A group in which somebody has no watermark yet lets nobody run who
    has one: as in Flink, all wait for the first rows of the last.
    """
    groups: dict[str, list[int]] = {}
    members: list[tuple[str, str, SourceTime, Alignment]] = []
    for node in graph.assigners:
        if node.strategy is None or (alignment := node.strategy.alignment) is None:
            continue
        for name in node.sources:
            source = state.sources.get(node.id, {}).get(name, SourceTime())
            members.append((node.id, name, source, alignment))
            if not source.idle:
                groups.setdefault(alignment.group, []).append(known(source.watermark))
    limits: dict[tuple[str, str], Held] = {}
    for assigner, name, source, alignment in members:
        limit = allowed(groups.get(alignment.group, ()), span_ms(alignment.max_drift))
        if (each := _held(source, limit)) != NOTHING_HELD:
            limits[assigner, name] = each
    return limits


def held_of_source(graph: TimeGraph, state: TimeState) -> Mapping[str, Held]:
    """Return what has to wait, by source, for the enumerators: a source that goes to several assigners waits if one has it wait."""
    together: dict[str, Held] = {}
    for (_, name), each in held(graph, state).items():
        if name != UNKNOWN:
            other = together.get(name, NOTHING_HELD)
            together[name] = Held(
                each.everything or other.everything,
                each.partitions | other.partitions,
                max(each.ahead_ms, other.ahead_ms),
            )
    return together


def _held(source: SourceTime, limit: int) -> Held:
    partitions = {
        name: ahead for name, each in source.partitions.items() if (ahead := _ahead(known(each.watermark), limit))
    }
    ahead = _ahead(known(source.watermark), limit)
    if not ahead and not partitions:
        return NOTHING_HELD
    return Held(bool(ahead), frozenset(partitions), max(ahead, *partitions.values()) if partitions else ahead)


def _ahead(watermark: int, limit: int) -> int:
    if watermark in (MIN, MAX) or watermark <= limit:
        return 0
    return watermark - limit if limit != MIN else MAX
