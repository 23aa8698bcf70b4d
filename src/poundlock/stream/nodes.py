"""The nodes of a job's graph: frozen, compared by identity, each knowing only what it reads from.

Nothing is checked against data here and nothing runs; `plan/` turns the graph into one Spark query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from poundlock.stream.watermarks import WatermarkStrategy
    from poundlock.stream.windows import WindowAssigner

__all__ = [
    "ApplyNode",
    "Node",
    "PythonNode",
    "SideOutputNode",
    "SinkNode",
    "SourceNode",
    "SqlNode",
    "UnionNode",
    "WatermarkNode",
    "WindowNode",
    "walk",
]


@dataclass(frozen=True, eq=False)
class Node:
    """One step. `id` is stable: the user's name, or one made from kind and place; `inputs` are the steps it reads from."""

    id: str
    inputs: Sequence[Node]


@dataclass(frozen=True, eq=False)
class SourceNode(Node):
    """Rows come in. `source` is a SplitSource or a SparkSource."""

    source: Any


@dataclass(frozen=True, eq=False)
class SqlNode(Node):
    """Row-wise Spark SQL: select / where / with_column / drop. `arguments` are expressions, or (name, expression), or names."""

    kind: Literal["select", "where", "with_column", "drop"]
    arguments: Sequence[str]


@dataclass(frozen=True, eq=False)
class ApplyNode(Node):
    """Any function of DataFrames, one for each input, to a DataFrame that Spark can stream."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class PythonNode(Node):
    """A user's Python function, per record (map, flat_map, filter: dicts) or per Arrow batch (map_batches: pyarrow.RecordBatch).

    `schema` is the DDL of what it gives, None = the same as its input (filter). `side_outputs` maps tags to their DDL.
    """

    kind: Literal["map", "flat_map", "filter", "map_batches"]
    function: Callable[..., Any]
    schema: str | None
    side_outputs: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class SideOutputNode(Node):
    """The rows a PythonNode emitted under a tag."""

    tag: str
    schema: str


@dataclass(frozen=True, eq=False)
class UnionNode(Node):
    """The rows of all inputs, in no order; columns are matched by name."""


@dataclass(frozen=True, eq=False)
class SinkNode(Node):
    """Rows go out. `sink` is a Participant."""

    sink: Any


@dataclass(frozen=True, eq=False)
class WatermarkNode(Node):
    """Rows get their event time, and a watermark follows it."""

    strategy: WatermarkStrategy


@dataclass(frozen=True, eq=False)
class WindowNode(Node):
    """SQL aggregates by key and event-time window. `column` holds the event time."""

    keys: Sequence[str]
    assigner: WindowAssigner
    column: str
    aggregates: Sequence[str]


def walk(roots: Sequence[Node]) -> Iterator[Node]:
    """Yield every node the roots depend on, and the roots, each once, inputs before readers."""
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) in seen:
            return
        seen.add(id(node))
        for parent in node.inputs:
            yield from visit(parent)
        yield node

    for root in roots:
        yield from visit(root)
