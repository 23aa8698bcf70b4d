"""The windows of a keyed stream: what stands between `window` and `aggregate`, `reduce` or `process`.

Every method returns a new value; what cannot be meant is refused where it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from poundlock.arguments import check_object
from poundlock.calls import check_methods
from poundlock.errors import DefinitionError
from poundlock.stream.definitions import checked_schema, checked_sides, event_time_column, tag_name
from poundlock.stream.functions.arrow import ArrowAggregateFunction
from poundlock.stream.functions.base import AggregateFunction
from poundlock.stream.functions.process import (
    AggregateWindow,
    ArrowAggregateWindow,
    ProcessWindow,
    ProcessWindowFunction,
    ReduceWindow,
    WindowFunction,
)
from poundlock.stream.nodes import WindowNode
from poundlock.stream.windows.assigners import MergingWindowAssigner, WindowAssigner
from poundlock.stream.windows.evictors import Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.values import duration

if TYPE_CHECKING:
    from poundlock.stream.keyed import KeyedStream
    from poundlock.stream.stream import DataStream


def windowed_time(assigner: Any, streams: Sequence[DataStream], what: str) -> list[str | None]:
    """Return the column of event time of each stream that is put into windows, None where no watermark is assigned before.

    Raises:
        DefinitionError: it is no window assigner, or its windows are of event time and a stream has none.
    """
    check_object(assigner, "window assigner", (WindowAssigner,), 'use one such as TumblingEventTimeWindows("1 min")')
    kind = MergingWindowAssigner if isinstance(assigner, MergingWindowAssigner) else WindowAssigner
    check_methods(assigner, kind, "window")
    return [event_time_column(stream.node, what, needed=assigner.is_event_time()) for stream in streams]


@dataclass(frozen=True, eq=False)
class WindowsOfStreams:
    """Windows, and when they fire: what windows of one stream and of two joined ones have in common."""

    assigner: WindowAssigner
    _trigger: Trigger | None = field(default=None, kw_only=True)
    _evictor: Evictor | None = field(default=None, kw_only=True)
    _lateness: timedelta = field(default=timedelta(0), kw_only=True)

    def trigger(self, trigger: Trigger) -> Self:
        """Fire when this trigger says so, instead of when the assigner's own does.

        Raises:
            DefinitionError: it is no trigger, or the windows merge and the trigger cannot.
        """
        check_object(trigger, "trigger", (Trigger,), "use one such as CountTrigger(100)")
        check_methods(trigger, Trigger, "trigger")
        merges = trigger.can_merge() and type(trigger).on_merge is not Trigger.on_merge
        if isinstance(self.assigner, MergingWindowAssigner) and not merges:
            raise DefinitionError(
                f"{type(trigger).__name__} does not know what to do when {self.assigner.describe()} merge",
                next="use a trigger that can merge, or one of your own with can_merge() and on_merge()",
            )
        return replace(self, _trigger=trigger)

    def _check_trigger(self) -> None:
        own = type(self.assigner)
        if self._trigger is None and own.default_trigger is WindowAssigner.default_trigger:
            raise DefinitionError(
                f"window: {own.__name__} has no default_trigger",
                next="write def default_trigger(self), or give .trigger(…)",
            )

    def evictor(self, evictor: Evictor) -> Self:
        """Take elements out before or after each firing. Windows then keep every element, whatever the function.

        Raises:
            DefinitionError: it is no evictor.
        """
        check_object(evictor, "evictor", (Evictor,), "use one such as CountEvictor(100)")
        check_methods(evictor, Evictor, "evictor")
        return replace(self, _evictor=evictor)

    def allowed_lateness(self, lateness: str | timedelta) -> Self:
        """Keep windows for a time after their end: an element that comes then makes its window fire again.

        Raises:
            DefinitionError: the windows do not go by event time.
        """
        self._only_event_time("allowed_lateness")
        return replace(self, _lateness=duration(lateness))

    def _only_event_time(self, what: str) -> None:
        if not self.assigner.is_event_time():
            raise DefinitionError(
                f"{what} on {self.assigner.describe()}, in which nothing is late", next=f"leave out .{what}(…)"
            )


@dataclass(frozen=True, eq=False)
class WindowedStream(WindowsOfStreams):
    """Windows of a keyed stream; made by `KeyedStream.window`. Ends with `aggregate`, `reduce` or `process`."""

    keyed: KeyedStream
    column: str | None
    _late_tag: str | None = None

    def side_output_late_data(self, tag: str) -> WindowedStream:
        """Send rows whose windows are all gone to a side output, `result.side_output(tag)`; otherwise they are counted and dropped.

        Raises:
            DefinitionError: the windows do not go by event time, or the tag is empty.
        """
        self._only_event_time("side_output_late_data")
        return replace(self, _late_tag=tag_name(tag, "give late rows a name"))

    def aggregate(
        self,
        *aggregates: str | AggregateFunction | ArrowAggregateFunction,
        process: ProcessWindowFunction | None = None,
        schema: str | None = None,
        side_outputs: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Return what elements add up to, one row for each firing of a key's window.

        Args:
            aggregates: Spark SQL aggregates with a name, such as "count(*) as n", "max(price) as price"; or one AggregateFunction,
                or one ArrowAggregateFunction, which adds up whole columns.
            process: of an AggregateFunction: a function that is given the one result and the window.
            schema: of a function: DDL of the records it, or `process`, gives; of an ArrowAggregateFunction that of its results.
            side_outputs: of `process`: tags to their DDL.
            name: of the operator. Name it: its state is kept under that name.

        Returns:
            For SQL and an ArrowAggregateFunction the columns of the key, `window_start` and `window_end` (timestamps; the end is
            exclusive), and the aggregates; for an AggregateFunction its records.

        Raises:
            DefinitionError: aggregates of both kinds or none, a function without a schema, one that cannot merge for sessions.
        """
        if len(aggregates) == 1 and isinstance(aggregates[0], AggregateFunction):
            function = AggregateWindow(aggregates[0], process)
            self._check_merge(aggregates[0])
            return self._end(function, checked_schema(schema, "aggregate"), side_outputs, name)
        if len(aggregates) == 1 and isinstance(aggregates[0], ArrowAggregateFunction):
            if process is not None or side_outputs:
                raise DefinitionError(
                    f"{type(aggregates[0]).__name__} takes no process function or side outputs: its results are columns",
                    next="write a step behind it, or give an AggregateFunction instead",
                )
            checked_schema(aggregates[0].accumulator, f"{type(aggregates[0]).__name__}.accumulator")
            return self._end(ArrowAggregateWindow(aggregates[0]), checked_schema(schema, "aggregate"), None, name)
        if len(aggregates) == 1 and not isinstance(aggregates[0], str):
            next = 'write .aggregate("count(*) as n"), or derive a class from AggregateFunction'
            check_object(aggregates[0], "aggregate", (AggregateFunction, ArrowAggregateFunction), next)
        texts = [a for a in aggregates if isinstance(a, str) and a.strip()]
        if not texts or len(texts) != len(aggregates):
            raise DefinitionError("windows without an aggregate", next='write .aggregate("count(*) as n")')
        if process is not None or schema is not None or side_outputs:
            raise DefinitionError(
                "SQL aggregates take no process function, schema or side outputs",
                next="give an AggregateFunction instead",
            )
        return self._end(None, None, None, name, texts)

    def _check_merge(self, function: AggregateFunction) -> None:
        if isinstance(self.assigner, MergingWindowAssigner) and type(function).merge is AggregateFunction.merge:
            raise DefinitionError(
                f"{type(function).__name__} has no merge, and {self.assigner.describe()} merge",
                next="write merge(self, a, b), which makes one accumulator of two",
            )

    def reduce(
        self,
        function: Callable[[Any, Any], Any],
        *,
        process: ProcessWindowFunction | None = None,
        schema: str | None = None,
        side_outputs: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Return the records of each firing reduced to one.

        Args:
            function: of two records to one with the same columns; it must not change them.
            process: a function that is given the one record and the window.
            schema: DDL of what `process` gives; without it the columns are those of the input.
            side_outputs: of `process`: tags to their DDL.
            name: of the operator.

        Raises:
            DefinitionError: it is no function, or `process` comes without a schema.
        """
        if schema is not None or process is not None:
            schema = checked_schema(schema, "reduce with process")
        return self._end(ReduceWindow(function, process), schema, side_outputs, name)

    def process(
        self,
        function: ProcessWindowFunction,
        *,
        schema: str,
        side_outputs: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Return what a function makes of all elements of a window at each firing. The elements are kept until the window goes.

        Args:
            function: derived from ProcessWindowFunction.
            schema: DDL of the records it gives.
            side_outputs: tags to their DDL.
            name: of the operator.
        """
        return self._end(ProcessWindow(function), checked_schema(schema, "process"), side_outputs, name)

    def _end(
        self,
        function: WindowFunction | None,
        schema: str | None,
        sides: Mapping[str, str] | None,
        name: str | None,
        aggregates: Sequence[str] = (),
    ) -> DataStream:
        self._check_trigger()
        checked = checked_sides(sides)
        if sides and function is not None and function.process is None:
            raise DefinitionError("side outputs without a process function", next="yield Side(tag, record) in process=")
        if self._late_tag in checked:
            raise DefinitionError(
                f"the side output {self._late_tag!r} is of late rows and of the function", next="name them apart"
            )
        stream = self.keyed.stream
        return stream.then(
            WindowNode(
                stream.operator_id("window", name),
                [stream.node],
                list(self.keyed.keys),
                self.assigner,
                self.column,
                list(aggregates),
                function=function,
                schema=schema,
                trigger=self._trigger,
                evictor=self._evictor,
                allowed_lateness=self._lateness,
                late_tag=self._late_tag,
                side_outputs=checked,
            )
        )
