"""The fluent surface over the graph: every method returns a new stream and changes nothing.

A transform is a Spark SQL expression (native), as a function DataFrame -> DataFrame, or as a Python function per
record or per Arrow batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from poundlock.arguments import check_object
from poundlock.calls import check_function
from poundlock.errors import DefinitionError
from poundlock.stream.connected import BroadcastStream, Connectable, ProcessInputs
from poundlock.stream.definitions import check_places_known, checked_keys, checked_schema, checked_sides, checked_stream
from poundlock.stream.functions.asynchronous import AsyncOptions, AsyncRetryStrategy, async_options
from poundlock.stream.functions.base import check_rich_function
from poundlock.stream.functions.process import ProcessFunction
from poundlock.stream.functions.records import BatchFormat, requested_batch, requested_record
from poundlock.stream.functions.state import MapStateDescriptor
from poundlock.stream.joins import JoinedStreams
from poundlock.stream.keyed import KeyedStream
from poundlock.stream.nodes import (
    ApplyNode,
    KeyedNode,
    Node,
    OnError,
    PartitionNode,
    PythonKind,
    PythonNode,
    SideOutputNode,
    SinkNode,
    SqlNode,
    UnionNode,
    WatermarkNode,
    WindowNode,
)
from poundlock.stream.watermarks import Timestamp, WatermarkStrategy
from poundlock.stream.windows.assigners import WindowAssigner
from poundlock.stream.windows.windowed import WindowedStream

if TYPE_CHECKING:
    from poundlock.job import Job


Record = dict[str, Any]


class Side(NamedTuple):
    """Yield this from `flat_map` to send a record to a side output instead of the main one."""

    tag: str
    record: Record


class DataStream(Connectable[ProcessFunction]):
    """Rows between a source and its sinks. Made by `Job.from_source` and the methods here, never by the user."""

    def __init__(self, job: Job, node: Node) -> None:
        self.job = job
        """The job this stream is part of."""
        self.node = node
        """The step this stream comes out of."""

    def _sql(self, kind: Any, name: str | None, *arguments: str) -> DataStream:
        if not arguments or not all(isinstance(a, str) and a.strip() for a in arguments):
            function = kind == "where" and callable(arguments[0])
            given = f"{arguments[0]!r}" if len(arguments) == 1 else f"{arguments!r}"
            raise DefinitionError(
                f"{kind} needs Spark SQL text, got {given:.200}",
                next="write filter with a function of (record)" if function else f'write {kind}("…")',
            )
        return self.then(SqlNode(self.operator_id(kind, name), [self.node], kind, list(arguments)))

    def select(self, *expressions: str, name: str | None = None) -> DataStream:
        """Keep and compute columns: Spark SQL expressions such as "user", "n * 2 as twice"."""
        return self._sql("select", name, *expressions)

    def where(self, condition: str, *, name: str | None = None) -> DataStream:
        """Keep the rows for which a Spark SQL condition is true; the others are counted as filtered."""
        return self._sql("where", name, condition)

    def with_column(self, column: str, expression: str, *, name: str | None = None) -> DataStream:
        """Add or replace a column by a Spark SQL expression."""
        return self._sql("with_column", name, column, expression)

    def drop(self, *columns: str, name: str | None = None) -> DataStream:
        """Leave out columns."""
        return self._sql("drop", name, *columns)

    def apply(self, function: Callable[..., Any], *others: DataStream, name: str | None = None) -> DataStream:
        """Apply any function DataFrame -> DataFrame to the rows of each checkpoint. It must be deterministic: a replay runs it again.

        It sees a batch DataFrame: an aggregation in it is over one checkpoint, and nothing is kept for the next one.

        Args:
            function: takes the DataFrame of this stream, then one for each other stream.
            others: further streams, such as those to join with. A function that uses one DataFrame in two places takes it
                twice: `events.apply(function, events)`.
            name: of the operator; the key of its state in savepoints.
        """
        inputs = [self.node, *(checked_stream(other, self, "apply").node for other in others)]
        frames = ["df"] if not others else [f"df{number}" for number in range(1, len(inputs) + 1)]
        check_function(function, "apply", *frames)
        return self.then(ApplyNode(self.operator_id("apply", name), inputs, function))

    def map(
        self, function: Callable[[Any], Any], *, schema: str, on_error: OnError = "fail", name: str | None = None
    ) -> DataStream:
        """Turn each record into one record.

        Args:
            function: a function, or a callable object; see `RichFunction` for one that has something to open and to close. It is
                given a dict, or what its first parameter is annotated with: a tuple of the columns in their order, or a
                NamedTuple, dataclass or msgspec.Struct of columns by name. It may return any of these.
            schema: the DDL of the result, such as "user string, n bigint".
            on_error: what an exception of the function does, or a value that does not fit `schema`: "fail" the job, or make
                the record a "bad_record", of which `Job(on_error=…)` says what becomes. A PoundlockError, such as a TransientError, fails the job in any case.
            name: of the operator.
        """
        return self._python("map", function, schema, {}, on_error, name)

    def flat_map(
        self,
        function: Callable[[Any], Iterable[Any]],
        *,
        schema: str,
        side_outputs: Mapping[str, str] | None = None,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> DataStream:
        """Turn each record into any number of records. `side_outputs` maps tags to DDL; yield Side(tag, record) for those.

        `function`, `on_error` and `name` are as in `map`. Of a bad record nothing is emitted, also what was yielded before.
        """
        return self._python("flat_map", function, schema, side_outputs, on_error, name)

    def filter(
        self, function: Callable[[Any], Any], *, on_error: OnError = "fail", name: str | None = None
    ) -> DataStream:
        """Keep the records for which a Python function returns something true; the others are counted as filtered.

        `function`, `on_error` and `name` are as in `map`.
        """
        if isinstance(function, str):
            raise DefinitionError(
                f"filter needs a function, got {function!r:.200}", next='write where("…") for Spark SQL'
            )
        return self._python("filter", function, None, {}, on_error, name)

    def async_map(
        self,
        function: Callable[[Any], Any],
        *,
        schema: str,
        capacity: int = 100,
        timeout: str | timedelta | None = "60 s",
        ordered: bool = True,
        retry: AsyncRetryStrategy | None = None,
        on_timeout: Callable[[Any], Any] | None = None,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> DataStream:
        """Turn each record into one record by a call that waits for something else, such as a service; many calls wait at once.

        What Flink's AsyncDataStream does. A checkpoint ends when all its calls have, so none is on its way in a savepoint; a
        checkpoint that is repeated makes its calls again.

        Args:
            function: written with `async def`, or an object whose `__call__` is; `open` and `close` of a `RichFunction` may be
                too. One that is not is called in threads. It is given, and returns, what a function of `map` is.
            schema: the DDL of the result, such as "user string, n bigint".
            capacity: calls that wait at once in each task, 1 or more.
            timeout: for one record, its repetitions included, such as "60 s"; None = no limit.
            ordered: whether rows go on in the order in which they came; else in groups, as calls end, so that the steps behind work meanwhile.
            retry: when a call is repeated, a `FixedDelayRetry` or `ExponentialDelayRetry`; None = never.
            on_timeout: returns the result for a record whose time is up; None = that is an error, a TimeoutError.
            on_error: as in `map`, for the last attempt at a record.
            name: of the operator.
        """
        check_function(function, "async_map", "record")
        options = async_options(
            function, capacity=capacity, timeout=timeout, ordered=ordered, retry=retry, on_timeout=on_timeout
        )
        return self._python("async_map", function, schema, {}, on_error, name, asynchronous=options)

    def map_batches(
        self,
        function: Callable[[Any], Any],
        *,
        schema: str,
        batch_format: BatchFormat | None = None,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> DataStream:
        """Turn each batch of rows into another one, or an iterable of them, with columns as in `schema` (DDL).

        `on_error` and `name` are as in `map`. With "bad_record" a batch for which the function raises is given to it again
        in halves, until the records are known that it raises for.

        Args:
            function: is given a pyarrow.RecordBatch, or what its first parameter is annotated with: a pyarrow.Table, or a
                DataFrame of pandas or polars. It may return any of these.
            batch_format: the same, where there is no annotation: "record_batch", "table", "pandas" or "polars".
        """
        check_function(function, "map_batches", "batch")
        wanted = requested_batch(function, batch_format, "map_batches")
        return self._python("map_batches", function, schema, {}, on_error, name, wanted)

    def _python(
        self,
        kind: PythonKind,
        function: Callable[..., Any],
        schema: str | None,
        sides: Mapping[str, str] | None,
        on_error: OnError,
        name: str | None,
        batch_format: BatchFormat = "record_batch",
        asynchronous: AsyncOptions | None = None,
    ) -> DataStream:
        if on_error not in get_args(OnError):
            raise DefinitionError(
                f"{kind}: on_error={on_error!r} is not known",
                next='use "fail" or "bad_record"; Job(on_error=…) says what becomes of bad records',
            )
        check_function(function, kind, "batch" if kind == "map_batches" else "record")
        check_rich_function(function, kind)
        if schema is not None:
            checked_schema(schema, kind)
        sides = checked_sides(sides)
        record = None if kind == "map_batches" else requested_record(function, kind)
        id = self.operator_id(kind, name)
        return self.then(
            PythonNode(id, [self.node], kind, function, schema, sides, on_error, record, batch_format, asynchronous)
        )

    def side_output(self, tag: str) -> DataStream:
        """Return the stream of records that this stream's function sent to a tag, or of its windows' late rows.

        Raises:
            DefinitionError: this stream has no such side output.
        """
        node = self.node
        if isinstance(node, WindowNode) and tag == node.late_tag:
            return self.then(SideOutputNode(f"{node.id}.{tag}", [node], tag, None))
        if not isinstance(node, (PythonNode, WindowNode, KeyedNode)) or tag not in node.side_outputs:
            declared = f'side_outputs={{"{tag}": "…"}} of flat_map or process'
            late = f'.side_output_late_data("{tag}") before aggregate, reduce or process'
            raise DefinitionError(
                f"{node.id} has no side output {tag!r}",
                next=f"declare it: {late if isinstance(node, WindowNode) and not node.late_tag else declared}",
            )
        return self.then(SideOutputNode(f"{node.id}.{tag}", [node], tag, node.side_outputs[tag]))

    def union(self, *others: DataStream, name: str | None = None) -> DataStream:
        """Return the rows of this stream and the others, in no order; columns are matched by name."""
        if not others:
            raise DefinitionError("union needs at least one other stream", next="write a.union(b)")
        inputs = [self.node, *(checked_stream(other, self, "union").node for other in others)]
        return self.then(UnionNode(self.operator_id("union", name), inputs))

    def assign_timestamps_and_watermarks(
        self,
        timestamp: Timestamp | WatermarkStrategy,
        strategy: WatermarkStrategy | None = None,
        *,
        name: str | None = None,
    ) -> DataStream:
        """Give rows their event time, and say how late they may be; windows behind it go by that.

        Args:
            timestamp: where a row's event time comes from, see `WatermarkStrategy`; left out where the strategy says it.
            strategy: how the watermark follows it.
            name: of the operator.
        """
        if strategy is None and isinstance(timestamp, WatermarkStrategy):
            given: Any = timestamp
        elif isinstance(strategy, WatermarkStrategy) and not isinstance(timestamp, WatermarkStrategy):
            given = strategy.with_timestamp_assigner(timestamp)
        else:
            given = timestamp if strategy is None else strategy
        next = 'write WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="timestamp_seconds(ts)")'
        check_object(given, "watermark strategy", (WatermarkStrategy,), next)
        given.check()
        check_places_known(self.node, given)
        return self.then(WatermarkNode(self.operator_id("watermark", name), [self.node], given))

    def key_by(self, *keys: str) -> KeyedStream:
        """Group rows by Spark SQL expressions, such as "user"; what follows happens for each key by itself."""
        return KeyedStream(self, checked_keys(keys, "key_by"))

    def rebalance(self, *, name: str | None = None) -> DataStream:
        """Spread rows evenly over all tasks, one after the other: before a slow step, where splits or keys are of unlike sizes.

        Rows behind it are in the order of their splits within each task, and no longer know where they were read: timestamps
        and watermarks are assigned before it, and refused behind it.
        """
        return self._partition("rebalance", name)

    def rescale(self, *, name: str | None = None) -> DataStream:
        """Spread the rows of each split over a few tasks: with S splits and T tasks each split has T / S tasks of its own, or a task S / T splits.

        What holds of rows behind `rebalance` holds here.
        """
        return self._partition("rescale", name)

    def partition_custom(
        self, partitioner: Callable[[Any, int], int], *keys: str, name: str | None = None
    ) -> DataStream:
        """Place each row in the task that a function names. What holds of rows behind `rebalance` holds here.

        Args:
            partitioner: given the key and how many tasks there are, returns the number of one, from 0: the same number in any
                process and at any time. One that gives another when it is asked again, as for the first keys of each batch,
                is refused. It is asked once for each other key of a batch; a key of several expressions is a tuple.
            keys: Spark SQL expressions, such as "user".
            name: of the operator.

        Raises:
            DefinitionError: it is no function, or a key is no SQL text.
        """
        check_function(partitioner, "partition_custom", "key", "tasks")
        return self._partition("partition_custom", name, checked_keys(keys, "partition_custom"), partitioner)

    def _partition(
        self,
        kind: Literal["rebalance", "rescale", "partition_custom"],
        name: str | None,
        keys: Sequence[str] = (),
        partitioner: Callable[[Any, int], int] | None = None,
    ) -> DataStream:
        return self.then(PartitionNode(self.operator_id(kind, name), [self.node], kind, keys, partitioner))

    def window_all(self, assigner: WindowAssigner) -> WindowedStream:
        """Put all rows, whatever their key, into windows."""
        return KeyedStream(self, []).window(assigner)

    def _inputs(self) -> ProcessInputs:
        return ProcessInputs(ProcessFunction, [self], [()])

    def broadcast(self, *descriptors: MapStateDescriptor) -> BroadcastStream:
        """Let every task see these records; give the result to `connect` of another stream.

        Args:
            descriptors: of the states that the records are kept in.

        Raises:
            DefinitionError: there is none, one is not of map state or has a time to live, or two have one name.
        """
        return BroadcastStream(self, descriptors)

    def join(self, other: DataStream) -> JoinedStreams:
        """Join with another stream: `.where("user").equal_to("id").window(…).apply(…)` gives each pair of a key and window."""
        return JoinedStreams("join", self, checked_stream(other, self, "join"))

    def co_group(self, other: DataStream) -> JoinedStreams:
        """As `join`, but the function sees all records of a key and window at once, also where one side has none."""
        return JoinedStreams("co_group", self, checked_stream(other, self, "co_group"))

    def operator_id(self, kind: str, name: str | None) -> str:
        """Return the stable id of a new operator of this stream's job; see `Job.operator_id`."""
        return self.job.operator_id(kind, name)

    def then(self, node: Node) -> DataStream:
        """Return the stream that comes out of a further step."""
        return DataStream(self.job, node)

    def preview(self, n: int = 20, **options: Any) -> list[dict[str, Any]]:
        """Return the first rows that this stream gives, at most `n`, without a sink; nothing is kept of it.

        Tasks stop reading when they have rows enough. Bad records are left out.

        Args:
            n: how many rows.
            options: `spark`, the session to run in; `timeout`, after which what has come is returned; default "60 s". See
                `poundlock.driver.interactive.preview.preview`.
        """
        return self.job.preview(self, n, **options)

    def sink_to(self, sink: Any, *, name: str | None = None) -> DataStream:
        """Send the rows to a sink; may be called several times. Returns this stream."""
        self.job.add_sink(SinkNode(self.operator_id("sink", name), [self.node], sink))
        return self
