"""Joins as a user says them: `a.key_by("user").interval_join(b.key_by("id")).between("-5 min", "5 min")`, and in windows
`a.join(b).where("user").equal_to("id").window(…).select("left.user", "right.n")`.

Every method returns a new value; only `process`, `select` and `apply` add a step to the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from poundlock.calls import check_function, check_methods
from poundlock.errors import DefinitionError
from poundlock.stream.definitions import (
    checked_keys,
    checked_schema,
    checked_sides,
    event_time_column,
    same_number,
    tag_name,
)
from poundlock.stream.functions.process import CoGroupFunction, JoinFunction, ProcessJoinFunction
from poundlock.stream.nodes import IntervalJoinNode, WindowJoinNode
from poundlock.stream.windows.assigners import WindowAssigner
from poundlock.stream.windows.windowed import WindowsOfStreams, windowed_time
from poundlock.values import signed_duration

if TYPE_CHECKING:
    from poundlock.stream.keyed import KeyedStream
    from poundlock.stream.stream import DataStream


_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, eq=False)
class IntervalJoin:
    """Two keyed streams to be joined by time; made by `KeyedStream.interval_join`."""

    left: KeyedStream
    right: KeyedStream

    def between(self, lower: str | timedelta, upper: str | timedelta) -> IntervalJoined:
        """Join a left record with the right ones from `lower` to `upper` after it, both included.

        Args:
            lower: such as "-5 min"; negative for right records that are earlier.
            upper: such as "5 min".

        Raises:
            DefinitionError: the lower bound is above the upper one.
        """
        return IntervalJoined(self.left, self.right, signed_duration(lower) // _MS, signed_duration(upper) // _MS)


@dataclass(frozen=True, eq=False)
class IntervalJoined:
    """An interval join; ends with `process` or `select`. Bounds are in ms and part of the interval."""

    left: KeyedStream
    right: KeyedStream
    lower_ms: int
    upper_ms: int
    late_tags: tuple[str | None, str | None] = (None, None)
    exclusive: tuple[bool, bool] = (False, False)

    def __post_init__(self) -> None:
        if self.lower_ms > self.upper_ms:
            raise DefinitionError(
                f"an interval from {self.lower_ms} ms to {self.upper_ms} ms holds no time",
                next='give the lower bound first, such as between("-5 min", "5 min")',
            )

    def lower_bound_exclusive(self) -> IntervalJoined:
        """Leave out records exactly at the lower bound."""
        if self.exclusive[0]:
            return self
        return replace(self, lower_ms=self.lower_ms + 1, exclusive=(True, self.exclusive[1]))

    def upper_bound_exclusive(self) -> IntervalJoined:
        """Leave out records exactly at the upper bound."""
        if self.exclusive[1]:
            return self
        return replace(self, upper_ms=self.upper_ms - 1, exclusive=(self.exclusive[0], True))

    def side_output_left_late_data(self, tag: str) -> IntervalJoined:
        """Send left rows behind the watermark to a side output; otherwise they are counted and dropped."""
        return replace(self, late_tags=(tag_name(tag, "give late rows a name"), self.late_tags[1]))

    def side_output_right_late_data(self, tag: str) -> IntervalJoined:
        """Send right rows behind the watermark to a side output; otherwise they are counted and dropped."""
        return replace(self, late_tags=(self.late_tags[0], tag_name(tag, "give late rows a name")))

    def process(
        self,
        function: ProcessJoinFunction,
        *,
        schema: str,
        side_outputs: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Return what a function makes of each pair.

        Args:
            function: an object of a class derived from ProcessJoinFunction.
            schema: DDL of the records it yields.
            side_outputs: tags to their DDL; it yields Side(tag, record) for those.
            name: of the operator. Name it: its state is kept under that name.
        """
        if not isinstance(function, ProcessJoinFunction):
            raise DefinitionError(
                f"{function!r} is no ProcessJoinFunction",
                next='derive a class from it and give an object of it, or write .select("left.user", "right.price")',
            )
        check_methods(function, ProcessJoinFunction, "process")
        return self._add(checked_schema(schema, "process"), checked_sides(side_outputs), name, function=function)

    def select(self, *expressions: str, name: str | None = None) -> DataStream:
        """Return columns of each pair: Spark SQL expressions such as "left.user", "right.price * 2 as twice"."""
        chosen = checked_keys(list(expressions), "select")
        return self._add(None, {}, name, select=chosen)

    def _add(
        self,
        schema: str | None,
        sides: Mapping[str, str],
        name: str | None,
        *,
        function: ProcessJoinFunction | None = None,
        select: Sequence[str] = (),
    ) -> DataStream:
        late = [tag for tag in self.late_tags if tag is not None]
        if len({*late, *sides}) < len(late) + len(sides):
            raise DefinitionError(
                f"two side outputs have one name: {', '.join([*late, *sides])}", next="name them apart"
            )
        stream = self.left.stream
        nodes = [stream.node, self.right.stream.node]
        return stream.then(
            IntervalJoinNode(
                stream.operator_id("interval-join", name),
                nodes,
                [list(self.left.keys), list(self.right.keys)],
                [event_time_column(node, "an interval join", needed=True) for node in nodes],
                schema,
                {**sides, **dict.fromkeys(late)},
                lower_ms=self.lower_ms,
                upper_ms=self.upper_ms,
                function=function,
                select=list(select),
                late_tags=self.late_tags,
            )
        )


@dataclass(frozen=True, eq=False)
class JoinedStreams:
    """Two streams to be joined by key and window: `.where("user").equal_to("id").window(…)`, then `select(…)` or `apply(…)`."""

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
        columns = windowed_time(assigner, [self.left, self.right], f"a {self.kind} in windows")
        return JoinedWindows(assigner, self, columns)


@dataclass(frozen=True, eq=False)
class JoinedWindows(WindowsOfStreams):
    """A join in windows, which ends with `apply` or `select`, or a co-group, which ends with `apply`.

    Trigger and evictor see elements as [0 or 1, record].
    """

    streams: JoinedStreams
    columns: Sequence[str | None]

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
            name: of the operator. Name it: its state is kept under that name.

        Raises:
            DefinitionError: it is no such function, or the schema cannot be read.
        """
        kind = self.streams.kind
        wanted = JoinFunction if kind == "join" else CoGroupFunction
        fits = isinstance(function, wanted)
        if not fits and (isinstance(function, (type, JoinFunction, CoGroupFunction)) or not callable(function)):
            raise DefinitionError(
                f"{function!r} is no {wanted.__name__}",
                next=f"give an object of a class derived from {wanted.__name__}, or a function of left and right",
            )
        if fits:
            check_methods(function, wanted, kind)
        else:
            check_function(function, kind, *(("left", "right") if kind == "join" else ("lefts", "rights")))
        return self._add(checked_schema(schema, "apply"), checked_sides(side_outputs), name, function=function)

    def select(self, *expressions: str, name: str | None = None) -> DataStream:
        """Return columns of each pair: Spark SQL expressions such as "left.user", "right.price * 2 as twice".

        Raises:
            DefinitionError: there is no expression, or it is a co-group, which has no pairs.
        """
        if self.streams.kind == "co_group":
            raise DefinitionError(
                "select of a co_group, whose sides come as lists and not in pairs",
                next="write a.join(b)… for pairs, or apply(…) a function of both lists",
            )
        return self._add(None, {}, name, select=checked_keys(list(expressions), "select"))

    def _add(
        self,
        schema: str | None,
        sides: Mapping[str, str],
        name: str | None,
        *,
        function: JoinFunction | CoGroupFunction | Callable[[Any, Any], Any] | None = None,
        select: Sequence[str] = (),
    ) -> DataStream:
        self._check_trigger()
        stream, kind = self.streams.left, self.streams.kind
        return stream.then(
            WindowJoinNode(
                stream.operator_id(kind.replace("_", "-"), name),
                [stream.node, self.streams.right.node],
                [list(self.streams.left_keys), list(self.streams.right_keys)],
                self.columns,
                schema,
                sides,
                kind=kind,
                assigner=self.assigner,
                function=function,
                select=list(select),
                trigger=self._trigger,
                evictor=self._evictor,
                allowed_lateness=self._lateness,
            )
        )
