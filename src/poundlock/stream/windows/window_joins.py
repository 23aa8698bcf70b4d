"""Window joins and co-groups as a user says them: `a.join(b).where("user").equal_to("id").window(…).apply(…)`.

Every method returns a new value; only `apply` adds a step to the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from poundlock.errors import DefinitionError
from poundlock.stream.definitions import checked_keys, checked_schema, checked_sides, event_time_column, same_number
from poundlock.stream.functions.join import CoGroupFunction, JoinFunction
from poundlock.stream.process_nodes import WindowJoinNode
from poundlock.stream.windows.assigners import MergingWindowAssigner, WindowAssigner
from poundlock.stream.windows.evictors import Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.values import duration

if TYPE_CHECKING:
    from poundlock.stream.stream import DataStream


@dataclass(frozen=True, eq=False)
class JoinedStreams:
    """Two streams to be joined by key and window: `.where("user").equal_to("id").window(…).apply(…)`."""

    kind: Literal["join", "co_group"]
    left: DataStream
    right: DataStream
    left_keys: Sequence[str] = ()
    right_keys: Sequence[str] = ()

    def where(self, *keys: str) -> JoinedStreams:
        """Key the first stream by Spark SQL expressions."""
        return replace(self, left_keys=checked_keys(keys, "where"))

    def equal_to(self, *keys: str) -> JoinedStreams:
        """Key the second stream by as many expressions."""
        return replace(self, right_keys=checked_keys(keys, "equal_to"))

    def window(self, assigner: WindowAssigner) -> JoinedWindows:
        """Put the records of both streams into windows.

        Raises:
            DefinitionError: `where` or `equal_to` is missing, it is no assigner, or windows of event time lack one.
        """
        for keys, word in ((self.left_keys, "where"), (self.right_keys, "equal_to")):
            if not keys:
                raise DefinitionError(
                    f"{self.kind} without {word}", next=f'write a.{self.kind}(b).where("user").equal_to("id").window(…)'
                )
        same_number(self.left_keys, self.right_keys, self.kind)
        if not isinstance(assigner, WindowAssigner):
            raise DefinitionError(
                f"{assigner!r} is no window assigner", next='use one such as TumblingEventTimeWindows("1 min")'
            )
        for stream in (self.left, self.right):
            event_time_column(stream.node, f"a {self.kind} in windows", needed=assigner.is_event_time())
        return JoinedWindows(self, assigner)


@dataclass(frozen=True, eq=False)
class JoinedWindows:
    """A join or co-group in windows; ends with `apply`. Trigger and evictor see elements as [0 or 1, record]."""

    streams: JoinedStreams
    assigner: WindowAssigner
    _trigger: Trigger | None = None
    _evictor: Evictor | None = None
    _lateness: timedelta = timedelta(0)

    def trigger(self, trigger: Trigger) -> JoinedWindows:
        """Fire when this trigger says so; see `WindowedStream.trigger`."""
        if not isinstance(trigger, Trigger):
            raise DefinitionError(f"{trigger!r} is no trigger", next="use one such as CountTrigger(100)")
        if isinstance(self.assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise DefinitionError(
                f"{type(trigger).__name__} does not know what to do when {self.assigner.describe()} merge",
                next="use a trigger that can merge, or one of your own with can_merge() and on_merge()",
            )
        return replace(self, _trigger=trigger)

    def evictor(self, evictor: Evictor) -> JoinedWindows:
        """Take elements out before or after each firing."""
        if not isinstance(evictor, Evictor):
            raise DefinitionError(f"{evictor!r} is no evictor", next="use one such as CountEvictor(100)")
        return replace(self, _evictor=evictor)

    def allowed_lateness(self, lateness: str | timedelta) -> JoinedWindows:
        """Keep windows for a time after their end: a record that comes then makes its window fire again."""
        if not self.assigner.is_event_time():
            raise DefinitionError(
                f"allowed_lateness on {self.assigner.describe()}, in which nothing is late",
                next="leave out .allowed_lateness(…)",
            )
        return replace(self, _lateness=duration(lateness))

    def apply(
        self,
        function: JoinFunction | CoGroupFunction | Callable[[Any, Any], Any],
        *,
        schema: str,
        side_outputs: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Return what a function makes of each pair, or of a co-group of both sides' records.

        Args:
            function: an object of a class derived from JoinFunction (or CoGroupFunction), or a plain function of left and
                right that returns a record or yields several.
            schema: DDL of the records it gives.
            side_outputs: tags to their DDL; it yields Side(tag, record) for those.
            name: of the operator. Name it: its state is found again by that.

        Raises:
            DefinitionError: it is no such function, or the schema cannot be read.
        """
        kind, wanted = self.streams.kind, JoinFunction if self.streams.kind == "join" else CoGroupFunction
        fits = isinstance(function, wanted)
        if not fits and (isinstance(function, (type, JoinFunction, CoGroupFunction)) or not callable(function)):
            raise DefinitionError(
                f"{function!r} is no {wanted.__name__}",
                next=f"give an object of a class derived from {wanted.__name__}, or a function of left and right",
            )
        stream = self.streams.left
        nodes = [stream.node, self.streams.right.node]
        return stream.then(
            WindowJoinNode(
                stream.operator_id(kind.replace("_", "-"), name),
                nodes,
                [list(self.streams.left_keys), list(self.streams.right_keys)],
                [event_time_column(node, f"a {kind} in windows") for node in nodes],
                checked_schema(schema, "apply"),
                checked_sides(side_outputs),
                kind=kind,
                assigner=self.assigner,
                function=function,
                trigger=self._trigger,
                evictor=self._evictor,
                allowed_lateness=self._lateness,
            )
        )
