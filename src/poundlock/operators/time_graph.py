"""How watermarks flow through a job: which step each of its streams gets its watermark from, and where watermarks begin.

It is made from the job's nodes once and has nothing of them but ids and strategies, so it goes to every task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poundlock.errors import DefinitionError
from poundlock.operators.time_values import UNKNOWN
from poundlock.stream.nodes import (
    ApplyNode,
    Node,
    PythonNode,
    SideOutputNode,
    SinkNode,
    SourceNode,
    SqlNode,
    UnionNode,
    WatermarkNode,
    walk,
)
from poundlock.stream.watermarks import WatermarkStrategy

_ROW_WISE = (SourceNode, PythonNode, SqlNode, SideOutputNode, UnionNode, WatermarkNode)
_STATELESS = (*_ROW_WISE, ApplyNode, SinkNode)


@dataclass(frozen=True)
class TimeNode:
    """A step as far as watermarks go.

    Args:
        inputs: ids of the steps it reads from, each once.
        strategy: of a step that assigns timestamps and watermarks; None for others.
        sources: of such a step, the ids of the sources whose rows come there; UNKNOWN where nobody knows which row is whose.
        kept: whether it has a watermark of its own in the state, and does not only pass on that of its one input.
    """

    id: str
    inputs: tuple[str, ...]
    strategy: WatermarkStrategy | None = None
    sources: tuple[str, ...] = ()
    kept: bool = False

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
            DefinitionError: a generator is to look at each record where nobody knows which partition a record is of.
        """
        sources: dict[str, tuple[str, ...]] = {}
        nodes = []
        for node in walk(roots):
            inputs = tuple(dict.fromkeys(each.id for each in node.inputs))
            sources[node.id] = _sources(node, [sources[name] for name in inputs])
            if not isinstance(node, WatermarkNode):
                kept = len(inputs) > 1 or not isinstance(node, _STATELESS)
                nodes.append(TimeNode(node.id, inputs, kept=kept))
                continue
            read = sources[node.id]
            if node.strategy.per_record and UNKNOWN in read:
                raise DefinitionError(
                    f"{node.id}: a watermark generator of each record behind a step that mixes partitions",
                    next="assign timestamps and watermarks right behind the source, or leave per_record=True out",
                )
            nodes.append(TimeNode(node.id, inputs, node.strategy, read, kept=True))
        return cls(tuple(nodes))

    @property
    def assigners(self) -> tuple[TimeNode, ...]:
        """The steps that assign timestamps and watermarks."""
        return tuple(node for node in self.nodes if node.strategy is not None)

    @property
    def per_record_sources(self) -> frozenset[str]:
        """The sources of which all splits of a partition must be read by one task of a checkpoint, in their order."""
        return frozenset(
            name
            for node in self.assigners
            if node.strategy is not None and node.strategy.per_record
            for name in node.sources
        )

    @property
    def clocked(self) -> frozenset[str]:
        """The assigners whose watermark is the clock's."""
        return frozenset(node.id for node in self.assigners if node.strategy is not None and node.strategy.clocked)


def _sources(node: Node, inputs: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the sources whose rows a step gives on, as far as one can tell which row is whose."""
    if isinstance(node, SourceNode):
        return (node.id,)
    names = tuple(dict.fromkeys(name for each in inputs for name in each))
    return names if isinstance(node, _ROW_WISE) else (UNKNOWN,)
