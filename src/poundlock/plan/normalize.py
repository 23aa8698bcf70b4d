"""A job's graph with columns where the user wrote expressions, so that keyed operators, watermarks and sinks only ever see columns.

Pure. What is no plain column becomes a step of row-wise SQL before the operator, or behind it; where that step runs is decided
later. The user's steps keep their ids. Columns that were put in are named in the result, so that nobody shows them to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from poundlock.checkpoint.capabilities import ComputesColumns
from poundlock.operators.windows.aggregates import SqlAggregate
from poundlock.plan.sql_text import NamedColumn, named_column, parse_aggregates, resolve_column, result_type
from poundlock.stream.nodes import (
    IntervalJoinNode,
    KeyedNode,
    Node,
    PartitionNode,
    SideOutputNode,
    SinkNode,
    SqlNode,
    WatermarkNode,
    WindowJoinNode,
    WindowNode,
    walk,
)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression as the column that holds it.

    Args:
        text: what the user wrote.
        name: what a result calls it; None where only Spark knows, which is asked with the text.
    """

    column: str
    text: str
    name: str | None


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """One input of a keyed operator.

    Args:
        keys: in the order the user gave them; none where the input is not keyed.
        hidden: columns that were put in; neither a user's function nor a side output of late rows may show them.
    """

    keys: Sequence[Expression]
    hidden: Sequence[str]


@dataclass(frozen=True, slots=True)
class WindowAggregates:
    """The SQL aggregates of a window.

    Args:
        aggregates: their columns are places in `arguments`.
        results: what each result is called; `column` is not used.
    """

    aggregates: Sequence[SqlAggregate]
    arguments: Sequence[str]
    results: Sequence[Expression]

    def result_types(self, schema: pa.Schema, operator: str) -> list[pa.DataType]:
        """Return the types of the results.

        Raises:
            DefinitionError: a column is not there, or an aggregate does not take values of its type.
        """
        types = [schema.field(resolve_column(schema, name, operator)).type for name in self.arguments]
        return [
            result_type(
                each,
                types[each.column] if isinstance(each.column, int) else None,
                operator,
                types[each.by] if isinstance(each.by, int) else None,
            )
            for each in self.aggregates
        ]


@dataclass(frozen=True, slots=True)
class PairColumn:
    """A column that a join gives: of which side (0 = left, 1 = right), the column there, and its name in the result."""

    side: int
    column: str
    name: str


@dataclass(frozen=True)
class Normalized:
    """A graph of columns.

    Args:
        inputs: per keyed operator, and per step that places rows, its inputs, in their order.
        pairs: per join whose select(…) is of plain columns. One with other expressions gives the structs `left` and
            `right`, and a step behind it makes the columns.
    """

    roots: Sequence[SinkNode]
    inputs: Mapping[str, Sequence[KeyColumns]]
    aggregates: Mapping[str, WindowAggregates]
    pairs: Mapping[str, Sequence[PairColumn]]


def normalize(roots: Sequence[SinkNode], *, time_in_tasks: Callable[[WatermarkNode], bool]) -> Normalized:
    """Return the graph of a job with columns where expressions were.

    Args:
        time_in_tasks: whether tasks can compute the timestamp expression of a step; a plain column is not asked about.

    Raises:
        DefinitionError: an aggregate is not among those that windows know.
    """
    rewriting = _Rewriting(time_in_tasks)
    for node in walk(roots):
        rewriting.add(node)
    sinks = [rewriting.made[id(root)] for root in roots]
    return Normalized(
        [sink for sink in sinks if isinstance(sink, SinkNode)], rewriting.inputs, rewriting.aggregates, rewriting.pairs
    )


@dataclass
class _Rewriting:
    """Rewrites nodes one by one, inputs before readers."""

    time_in_tasks: Callable[[WatermarkNode], bool]
    made: dict[int, Node] = field(default_factory=dict)
    """By the identity of an old node, where its rows come from."""
    emitters: dict[int, Node] = field(default_factory=dict)
    """The same for side outputs, which come from the operator itself."""
    inputs: dict[str, list[KeyColumns]] = field(default_factory=dict)
    aggregates: dict[str, WindowAggregates] = field(default_factory=dict)
    pairs: dict[str, list[PairColumn]] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        source = self.emitters if isinstance(node, SideOutputNode) else {}
        inputs = [source.get(id(parent), self.made[id(parent)]) for parent in node.inputs]
        made = self._rewritten(node, inputs)
        self.emitters[id(node)] = made
        self.made[id(node)] = self._behind(node, made)

    def _rewritten(self, node: Node, inputs: list[Node]) -> Node:
        if isinstance(node, SinkNode):
            return self._sink(node, inputs)
        if isinstance(node, WatermarkNode):
            return self._watermark(node, inputs)
        if isinstance(node, WindowNode):
            return self._window(node, inputs)
        if isinstance(node, KeyedNode):
            return self._keyed(node, inputs)
        if isinstance(node, PartitionNode):
            return self._partition(node, inputs)
        return node if all(a is b for a, b in zip(node.inputs, inputs, strict=True)) else replace(node, inputs=inputs)

    def _sink(self, node: SinkNode, inputs: list[Node]) -> Node:
        """Put the columns before a sink that it wants computed, such as a bucket or a topic."""
        computed = node.sink.computed_columns if isinstance(node.sink, ComputesColumns) else {}
        for column, text in computed.items():
            inputs = [SqlNode(f"{node.id}.{column.strip('_')}", inputs, "with_column", [column, text], line=node.line)]
        return replace(node, inputs=inputs)

    def _watermark(self, node: WatermarkNode, inputs: list[Node]) -> Node:
        strategy = node.strategy
        text = strategy.timestamp
        if not isinstance(text, str) or _plain(text) is not None or self.time_in_tasks(node):
            return replace(node, inputs=inputs)
        before = SqlNode(f"{node.id}.time", inputs, "with_column", [strategy.column, text], line=node.line)
        return replace(node, inputs=[before], strategy=replace(strategy, timestamp=strategy.column))

    def _window(self, node: WindowNode, inputs: list[Node]) -> Node:
        columns = _Columns(node.id, inputs[0], node.line)
        keys = [columns.put("key", text) for text in node.keys]
        if node.aggregates:
            parsed = parse_aggregates(node.aggregates, node.id)
            arguments = [columns.put("argument", text).column for text in parsed.arguments]
            results = [Expression("", text, name) for text, name in zip(node.aggregates, parsed.names, strict=True)]
            self.aggregates[node.id] = WindowAggregates(parsed.aggregates, arguments, results)
        self.inputs[node.id] = [KeyColumns(keys, columns.hidden)]
        return replace(node, inputs=[columns.node], keys=[key.column for key in keys])

    def _keyed(self, node: KeyedNode, inputs: list[Node]) -> Node:
        sides = [""] if len(inputs) == 1 else ["left.", "right."]
        before: list[Node] = []
        key_columns: list[KeyColumns] = []
        for side, parent, texts in zip(sides, inputs, node.keys, strict=True):
            columns = _Columns(f"{node.id}.{side}".rstrip("."), parent, node.line)
            keys = [columns.put("key", text) for text in texts]
            key_columns.append(KeyColumns(keys, columns.hidden))
            before.append(columns.node)
        self.inputs[node.id] = key_columns
        return replace(node, inputs=before, keys=[[key.column for key in each.keys] for each in key_columns])

    def _partition(self, node: PartitionNode, inputs: list[Node]) -> Node:
        columns = _Columns(node.id, inputs[0], node.line)
        keys = [columns.put("key", text) for text in node.keys]
        self.inputs[node.id] = [KeyColumns(keys, columns.hidden)]
        return replace(node, inputs=[columns.node], keys=[key.column for key in keys])

    def _behind(self, node: Node, made: Node) -> Node:
        """Return where the rows of a node come from: of a join with select(…), the step that makes its columns."""
        if not isinstance(node, (IntervalJoinNode, WindowJoinNode)) or not node.select:
            return made
        pairs = [_pair_column(text) for text in node.select]
        plain = [pair for pair in pairs if pair is not None]
        if len(plain) == len(pairs):
            self.pairs[node.id] = plain
            return made
        return SqlNode(f"{node.id}.select", [made], "select", list(node.select), line=node.line)


@dataclass
class _Columns:
    """Puts columns before an operator, each expression once."""

    operator: str
    node: Node
    line: str
    hidden: list[str] = field(default_factory=list)
    _known: dict[str, str] = field(default_factory=dict)

    def put(self, kind: str, text: str) -> Expression:
        """Return the column of an expression; one that is none is put in as `__key0`, `__argument0` and so on."""
        plain = named_column(text)
        if plain is not None and plain.column is not None:
            return Expression(plain.column, text, plain.name)
        if text not in self._known:
            number = sum(name.startswith(f"__{kind}") for name in self.hidden)
            column = self._known[text] = f"__{kind}{number}"
            self.hidden.append(column)
            name, given = f"{self.operator}.{kind}{number}", [column, text]
            self.node = SqlNode(name, [self.node], "with_column", given, line=self.line)
        return Expression(self._known[text], text, None if plain is None else plain.name)


def _plain(text: str) -> str | None:
    column = named_column(text)
    return None if column is None else column.column


def _pair_column(text: str) -> PairColumn | None:
    column: NamedColumn | None = named_column(text)
    if column is None or len(column.path) != 2 or column.path[0].lower() not in ("left", "right"):
        return None
    return PairColumn(int(column.path[0].lower() == "right"), column.path[1], column.name)
