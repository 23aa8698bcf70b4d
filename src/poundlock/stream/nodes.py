"""The nodes of a job's graph: frozen, compared by identity, each knowing only what it reads from.

Nothing is checked against data here and nothing runs; `plan/` cuts the graph into stages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from traceback import walk_stack
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from poundlock.arguments import function_name
from poundlock.values import format_duration

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.stream.functions.asynchronous import AsyncOptions
    from poundlock.stream.functions.base import Function
    from poundlock.stream.functions.process import CoGroupFunction, JoinFunction, ProcessJoinFunction, WindowFunction
    from poundlock.stream.functions.records import BatchFormat, RecordType
    from poundlock.stream.functions.state import MapStateDescriptor
    from poundlock.stream.watermarks import WatermarkStrategy
    from poundlock.stream.windows.assigners import WindowAssigner
    from poundlock.stream.windows.evictors import Evictor
    from poundlock.stream.windows.triggers import Trigger


OnError = Literal["fail", "bad_record"]
PythonKind = Literal["map", "flat_map", "filter", "async_map", "map_batches"]


def _line() -> str:
    """Return file:line of the newest call from outside this package."""
    for frame, line in walk_stack(sys._getframe()):
        if frame.f_globals.get("__name__", "").partition(".")[0] != "poundlock":
            return f"{frame.f_code.co_filename}:{line}"
    return ""


@dataclass(frozen=True, eq=False)
class Node:
    """One step. `id` is stable: the user's name, or one made from kind and place; `inputs` are the steps it reads from; `line` is
    where it was written, file:line."""

    id: str
    inputs: Sequence[Node]
    line: str = field(default_factory=_line, kw_only=True, repr=False)


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
    """A user's Python function, per record (map, flat_map, filter, async_map) or per batch (map_batches).

    `schema` is the DDL of what it gives, None = the same as its input (filter). `side_outputs` maps tags to their DDL. `on_error`
    says whether an exception of the function fails the job, or makes its record a bad one. `record` is the type of record that it
    asks for, None = a dict; `batch_format` the form of its batches; `asynchronous` how async_map calls it.
    """

    kind: PythonKind
    function: Callable[..., Any]
    schema: str | None
    side_outputs: Mapping[str, str]
    on_error: OnError = "fail"
    record: RecordType | None = None
    batch_format: BatchFormat = "record_batch"
    asynchronous: AsyncOptions | None = None


class RowProgram(Protocol):
    """Computes rows of rows, batch by batch. Picklable."""

    @property
    def leaves_out(self) -> bool:
        """Whether each of its rows is one that it was given, and those that are missing were left out."""

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Return the rows, and the place among the given ones of each, int64; None where they are the same ones."""

    def describe(self) -> str:
        """Return it in words, for `explain`."""


@runtime_checkable
class Clocked(Protocol):
    """A program that may look at the time of the checkpoint."""

    def at(self, clock_ms: int) -> RowProgram:
        """Return the program of a checkpoint that began at a time, ms since 1970."""


@runtime_checkable
class JudgesRows(Protocol):
    """A program that may look at the watermark that its rows are judged by."""

    @property
    def watermark_of(self) -> str | None:
        """The id of the step whose watermark it looks at; None where it does not."""

    def behind(self, watermark_ms: int | None) -> RowProgram:
        """Return the program of a checkpoint whose rows are judged by a watermark, ms since 1970; None before the first one."""


@dataclass(frozen=True, eq=False)
class CalcNode(Node):
    """Columns computed of columns by a program of ours, and rows left out by it; event time passes through.

    Args:
        schema: DDL of what comes out.
        holds_back_ms: by how much the watermark behind it is behind the one before it, where rows come that are so much older.
    """

    program: RowProgram
    schema: str
    holds_back_ms: int = 0


@dataclass(frozen=True, eq=False)
class QueryNode(CalcNode):
    """The rows of a query of SQL, as steps of streams take them.

    Args:
        time: the column of their event time, whatever it was called before; None where they have none.
    """

    time: str | None = None


@dataclass(frozen=True, eq=False)
class SideOutputNode(Node):
    """The rows a node with side outputs emitted under a tag; `schema` None = the columns of the input the rows came from."""

    tag: str
    schema: str | None


@dataclass(frozen=True, eq=False)
class UnionNode(Node):
    """The rows of all inputs, in no order; columns are matched by name."""


@dataclass(frozen=True, eq=False)
class PartitionNode(Node):
    """Rows are placed among the tasks of another stage.

    Args:
        keys: Spark SQL expressions, of which the partitioner is given the values; none where there is no partitioner.
        partitioner: returns the number of a task, given the key and how many tasks there are; for "partition_custom".
    """

    kind: Literal["rebalance", "rescale", "partition_custom"]
    keys: Sequence[str] = ()
    partitioner: Callable[[Any, int], int] | None = None

    def describe(self) -> str:
        """Return the step in words, for `explain`."""
        if self.partitioner is None:
            return self.kind
        return f"{self.kind} {function_name(self.partitioner)} by {', '.join(self.keys)}"


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
        column: holds the event time; None where no watermark is assigned before.
        aggregates: SQL aggregates with a name; none where there is a function.
        function: what becomes of the elements, in Python; None where there are aggregates.
        schema: DDL of what the function gives; None for aggregates, and for a reduce whose result is as its input.
        late_tag: side output of late rows, which has the columns of the input; None to drop them.
        side_outputs: of the function: tags to their DDL.
        zone: whose wall clocks windows follow, where those are moved: window_start and window_end are wall times then, in a column of UTC.
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
    zone: tzinfo | None = None

    def describe(self) -> str:
        """Return the step in words, for `explain`."""
        zone = "" if self.zone is None else f", by the clocks of {self.zone}"
        return _windows(self) + zone + (f", late rows to {self.late_tag}" if self.late_tag is not None else "")


@dataclass(frozen=True, eq=False)
class KeyedNode(Node):
    """A step with state, timers or several outputs, run by `operators/`.

    Args:
        keys: for each input its Spark SQL expressions, as many for both; none where the input is not keyed or is broadcast.
        columns: for each input the column of its event time; None where no watermark is assigned before.
        schema: DDL of the main output; None for the columns of the (first) input.
        side_outputs: tags to their DDL; None for the columns of the input the rows came from, as late rows.
    """

    keys: Sequence[Sequence[str]]
    columns: Sequence[str | None]
    schema: str | None
    side_outputs: Mapping[str, str | None]

    def describe(self) -> str:
        """Return the step in words, for `explain`."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ProcessNode(KeyedNode):
    """A process function over one input or two.

    Args:
        broadcast: descriptors of the broadcast state that the second input writes; none unless that is broadcast.
        records: per input the type of record that the function asks for, None = a dict.
    """

    function: Function
    broadcast: Sequence[MapStateDescriptor] = ()
    records: Sequence[RecordType | None] = (None, None)

    def describe(self) -> str:
        rules = f", broadcast state {', '.join(d.name for d in self.broadcast)}" if self.broadcast else ""
        return f"process {type(self.function).__name__}{rules}"


@dataclass(frozen=True, eq=False)
class RollingNode(KeyedNode):
    """The records of a key so far as one record; in a bounded job only the last of each key comes out.

    Args:
        column: that is added up or compared; None for reduce.
        first: whether of equal records the first stays, for min_by and max_by.
    """

    kind: Literal["sum", "min", "max", "min_by", "max_by", "reduce"]
    column: str | None = None
    function: Callable[[Any, Any], Any] | None = None
    first: bool = True

    def describe(self) -> str:
        what = function_name(self.function) if self.column is None else self.column
        return f"rolling {self.kind} of {what}"


@dataclass(frozen=True, eq=False)
class DeduplicateNode(KeyedNode):
    """The first or the last record of each key; the last one comes with the kind of change.

    Args:
        order: what makes a record the first: its event time, or when it arrived.
        ttl_ms: how long a key is known after its last change, by the clock; None for ever.
        update_before: whether the record that is replaced is given before the one that replaces it.
    """

    keep: Literal["first", "last"]
    order: Literal["event_time", "arrival"]
    ttl_ms: int | None = None
    update_before: bool = False

    def describe(self) -> str:
        order = "by event time" if self.order == "event_time" else "that arrived"
        return f"the {self.keep} record {order}{living(self.ttl_ms)}"


@dataclass(frozen=True, eq=False)
class TopNNode(KeyedNode):
    """The first records of each key in an order, with the kind of change.

    Args:
        n: how many.
        order_by: columns, the most important first; none for the order in which records came.
        rank: the column with the place of a record, from 1; None where it is not wanted.
        ttl_ms: how long the records of a key are kept after their last change, by the clock; None for ever.
        update_before: whether the record that had a place is given before the one that takes it.
        first: the first place that is wanted, from 1; those before it are kept, and do not come out.
    """

    n: int
    order_by: Sequence[SortColumn]
    rank: str | None = None
    ttl_ms: int | None = None
    update_before: bool = False
    first: int = 1

    def describe(self) -> str:
        return f"{places_text(self.first, self.n, self.order_by)}{living(self.ttl_ms)}"


def places_text(first: int, last: int, order_by: Sequence[SortColumn]) -> str:
    """Return in words which places of an order are wanted."""
    which = f"the first {last}" if first == 1 else f"places {first} to {last}"
    return f"{which} by {', '.join(each.describe() for each in order_by)}" if order_by else f"{which} as they come"


def living(ttl_ms: int | None) -> str:
    """Return in words how long state is kept, nothing for ever."""
    return "" if ttl_ms is None else f", known for {format_duration(timedelta(milliseconds=ttl_ms))}"


@dataclass(frozen=True)
class SortColumn:
    """A column of an order. As in Flink and Spark, nulls are less than all values unless `nulls_first` says where they stand."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    def describe(self) -> str:
        """Return it as SQL."""
        usual = self.nulls_first is not self.descending
        nulls = "" if usual else f" nulls {'first' if self.nulls_first else 'last'}"
        return f"{self.column}{' desc' if self.descending else ''}{nulls}"


@dataclass(frozen=True, eq=False)
class IntervalJoinNode(KeyedNode):
    """Pairs whose times are between two bounds: left time + lower <= right time <= left time + upper.

    Args:
        function: called with each pair; None where `select` says what comes out.
        select: Spark SQL expressions over the structs `left` and `right`; none where there is a function.
        late_tags: side outputs of left and right rows behind the watermark; None to drop and count them.
    """

    lower_ms: int
    upper_ms: int
    function: ProcessJoinFunction | None = None
    select: Sequence[str] = ()
    late_tags: tuple[str | None, str | None] = (None, None)

    def describe(self) -> str:
        lower, upper = (
            f"{'-' if ms < 0 else ''}{format_duration(timedelta(milliseconds=abs(ms)))}"
            for ms in (self.lower_ms, self.upper_ms)
        )
        what = ", ".join(self.select) or type(self.function).__name__
        return f"interval join from {lower} to {upper}: {what}"


@dataclass(frozen=True, eq=False)
class WindowJoinNode(KeyedNode):
    """Records of two streams that have the same key and window.

    Args:
        kind: "join" calls the function with each pair, "co_group" with all records of both sides.
        function: a JoinFunction or CoGroupFunction, or a plain function of left and right; None where `select` says what comes out.
        select: of a join, Spark SQL expressions over the structs `left` and `right`; none where there is a function.
    """

    kind: Literal["join", "co_group"]
    assigner: WindowAssigner
    function: JoinFunction | CoGroupFunction | Callable[[Any, Any], Any] | None = None
    select: Sequence[str] = ()
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    allowed_lateness: timedelta = timedelta(0)

    def describe(self) -> str:
        what = f": {', '.join(self.select)}" if self.select else ""
        return f"{self.kind.replace('_', '-')} in {_windows(self)}{what}"


def _windows(node: WindowNode | WindowJoinNode) -> str:
    parts = [node.assigner.describe()]
    parts += [f"fired {node.trigger.describe()}"] if node.trigger is not None else []
    parts += [f"keeping {node.evictor.describe()}"] if node.evictor is not None else []
    parts += [f"late by up to {format_duration(node.allowed_lateness)}"] if node.allowed_lateness else []
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
