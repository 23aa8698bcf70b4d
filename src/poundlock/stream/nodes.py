"""The nodes of a job's graph: frozen, compared by identity, each knowing only what it reads from.

Nothing is checked against data here and nothing runs; `plan/` cuts the graph into stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from poundlock.values import format_duration

if TYPE_CHECKING:
    from poundlock.stream.watermarks import WatermarkStrategy
    from poundlock.stream.windows.assigners import WindowAssigner
    from poundlock.stream.windows.evictors import Evictor
    from poundlock.stream.windows.triggers import Trigger
    from poundlock.stream.windows.window_functions import WindowFunction


OnError = Literal["fail", "bad_record"]


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
    """Any function of DataFrames, one for each input, to a DataFrame; called with the rows of one checkpoint."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class PythonNode(Node):
    """A user's Python function, per record (map, flat_map, filter: dicts) or per Arrow batch (map_batches: pyarrow.RecordBatch).

    `schema` is the DDL of what it gives, None = the same as its input (filter). `side_outputs` maps tags to their DDL. `on_error`
    says whether an exception of the function fails the job, or makes its record a bad one.
    """

    kind: Literal["map", "flat_map", "filter", "map_batches"]
    function: Callable[..., Any]
    schema: str | None
    side_outputs: Mapping[str, str]
    on_error: OnError = "fail"


@dataclass(frozen=True, eq=False)
class SideOutputNode(Node):
    """The rows a node with side outputs emitted under a tag; `schema` None = the columns of the input the rows came from."""

    tag: str
    schema: str | None


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
    """Windows by key, and what becomes of their elements.

    Args:
        keys: Spark SQL expressions; none for windows over all rows.
        assigner: which windows a row is in.
        column: holds the event time; None where no watermark is assigned before.
        aggregates: SQL aggregates with a name; none where there is a function.
        function: what becomes of the elements, in Python; None where there are aggregates.
        schema: DDL of what the function gives; None for aggregates, and for a reduce whose result is as its input.
        trigger: None for the assigner's own.
        evictor: None for the assigner's own.
        allowed_lateness: how long after its end a window takes rows.
        late_tag: side output of late rows, which has the columns of the input; None to drop them.
        side_outputs: of the function: tags to their DDL.
    """

    keys: Sequence[str]
    assigner: WindowAssigner
    column: str | None
    aggregates: Sequence[str]
    function: WindowFunction | None = None
    schema: str | None = None
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    allowed_lateness: timedelta = timedelta(0)
    late_tag: str | None = None
    side_outputs: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        """Return what was said, for `explain`."""
        parts = [self.assigner.describe()]
        parts += [f"fired {self.trigger.describe()}"] if self.trigger is not None else []
        parts += [f"keeping {self.evictor.describe()}"] if self.evictor is not None else []
        parts += [f"late by up to {format_duration(self.allowed_lateness)}"] if self.allowed_lateness else []
        parts += [f"late rows to {self.late_tag}"] if self.late_tag is not None else []
        return ", ".join(parts)


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
