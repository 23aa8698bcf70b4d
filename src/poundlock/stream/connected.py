"""Two streams that one function sees, and streams that every task sees.

Both are values between two calls: only `process` adds a step to the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poundlock.errors import DefinitionError
from poundlock.stream.definitions import (
    checked_keys,
    checked_schema,
    checked_sides,
    checked_stream,
    event_time_column,
    same_number,
)
from poundlock.stream.functions.base import Function
from poundlock.stream.functions.process import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from poundlock.stream.functions.state import MapStateDescriptor
from poundlock.stream.nodes import ProcessNode

if TYPE_CHECKING:
    from poundlock.stream.stream import DataStream


_PLACES: Mapping[type[Function], str] = {
    ProcessFunction: "stream.process(…)",
    KeyedProcessFunction: "stream.key_by(…).process(…)",
    CoProcessFunction: "stream.connect(other).process(…)",
    KeyedCoProcessFunction: "stream.connect(other).key_by(…, …).process(…)",
    BroadcastProcessFunction: "stream.connect(rules.broadcast(…)).process(…)",
    KeyedBroadcastProcessFunction: "stream.key_by(…).connect(rules.broadcast(…)).process(…)",
}


def add_process(
    function: Any,
    wanted: type[Function],
    streams: Sequence[DataStream],
    keys: Sequence[Sequence[str]],
    *,
    schema: Any,
    side_outputs: Mapping[str, str] | None,
    name: str | None,
    broadcast: Sequence[MapStateDescriptor] = (),
) -> DataStream:
    """Return the stream of what a process function gives; `keys` are of each input.

    Raises:
        DefinitionError: the function is not of the wanted kind, or the schema cannot be read.
    """
    _check_kind(function, wanted)
    first = streams[0]
    return first.then(
        ProcessNode(
            first.operator_id("process", name),
            [stream.node for stream in streams],
            [list(key) for key in keys],
            [event_time_column(stream.node, "this process function") for stream in streams],
            checked_schema(schema, "process"),
            checked_sides(side_outputs),
            function=function,
            broadcast=list(broadcast),
        )
    )


def _check_kind(function: Any, wanted: type[Function]) -> None:
    if isinstance(function, wanted):
        return
    if isinstance(function, type) and issubclass(function, Function):
        raise DefinitionError(
            f"process was given the class {function.__name__}, not an object of it", next=f"write {function.__name__}()"
        )
    kind = next((kind for kind in _PLACES if isinstance(function, kind)), None)
    if kind is None:
        raise DefinitionError(
            f"{function!r} is no {wanted.__name__}",
            next=f"derive a class from {wanted.__name__} and give an object of it",
        )
    raise DefinitionError(
        f"{type(function).__name__} is a {kind.__name__}, and a {wanted.__name__} is needed here",
        next=f"derive it from {wanted.__name__}, or call {_PLACES[kind]}",
    )


@dataclass(frozen=True, eq=False)
class ConnectedStreams:
    """Two streams for one function; made by `connect`. `keys` has the key of each, or nothing."""

    first: DataStream
    second: DataStream
    keys: tuple[Sequence[str], Sequence[str]] = ((), ())

    def key_by(self, first: str | Sequence[str], second: str | Sequence[str]) -> ConnectedStreams:
        """Key both streams, so that records of one key share state and timers.

        Args:
            first: Spark SQL expression of the first stream's key, or several.
            second: of the second stream's; as many, of the same types.

        Raises:
            DefinitionError: one is no SQL text, or there are more of one than of the other.
        """
        if any(self.keys):
            raise DefinitionError("key_by on streams that are keyed", next="leave out one of the two key_by(…)")
        one, two = checked_keys(first, "key_by"), checked_keys(second, "key_by")
        same_number(one, two, "key_by")
        return ConnectedStreams(self.first, self.second, (one, two))

    def process(
        self,
        function: CoProcessFunction | KeyedCoProcessFunction,
        *,
        schema: str,
        side_outputs: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Return what a function makes of the records of both streams.

        Args:
            function: a KeyedCoProcessFunction where the streams are keyed, otherwise a CoProcessFunction.
            schema: DDL of the records it yields.
            side_outputs: tags to their DDL; it yields Side(tag, record) for those.
            name: of the operator. Name it: its state is found again by that.

        Raises:
            DefinitionError: it is of another kind, or the schema cannot be read.
        """
        return add_process(
            function,
            KeyedCoProcessFunction if any(self.keys) else CoProcessFunction,
            [self.first, self.second],
            self.keys,
            schema=schema,
            side_outputs=side_outputs,
            name=name,
        )


@dataclass(frozen=True, eq=False)
class BroadcastStream:
    """A stream whose records every task sees, and the states it writes; made by `DataStream.broadcast`. Give it to `connect`."""

    stream: DataStream
    descriptors: Sequence[MapStateDescriptor]

    def __post_init__(self) -> None:
        if not self.descriptors:
            raise DefinitionError(
                "broadcast without a state", next='write rules.broadcast(MapStateDescriptor("rules"))'
            )
        for descriptor in self.descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise DefinitionError(
                    f"{descriptor!r} cannot be broadcast state", next='give a MapStateDescriptor("rules")'
                )
            if descriptor.ttl is not None:
                raise DefinitionError(
                    f"broadcast state {descriptor.name!r} with a time to live",
                    next="leave out ttl=; remove entries in process_broadcast_element",
                )
        names = [descriptor.name for descriptor in self.descriptors]
        if len(set(names)) < len(names):
            raise DefinitionError(f"two broadcast states have one name: {', '.join(names)}", next="name them apart")


@dataclass(frozen=True, eq=False)
class BroadcastConnectedStream:
    """A stream, keyed or not, with a broadcast one; made by `connect`."""

    stream: DataStream
    keys: Sequence[str]
    rules: BroadcastStream

    def process(
        self,
        function: BroadcastProcessFunction | KeyedBroadcastProcessFunction,
        *,
        schema: str,
        side_outputs: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Return what a function makes of the records of both streams.

        Args:
            function: a KeyedBroadcastProcessFunction where the stream is keyed, otherwise a BroadcastProcessFunction.
            schema: DDL of the records it yields.
            side_outputs: tags to their DDL; it yields Side(tag, record) for those.
            name: of the operator. Name it: its state is found again by that.

        Raises:
            DefinitionError: it is of another kind, or the schema cannot be read.
        """
        return add_process(
            function,
            KeyedBroadcastProcessFunction if self.keys else BroadcastProcessFunction,
            [self.stream, self.rules.stream],
            [self.keys, ()],
            schema=schema,
            side_outputs=side_outputs,
            name=name,
            broadcast=self.rules.descriptors,
        )


def connect(own: DataStream, keys: Sequence[str], other: Any) -> ConnectedStreams | BroadcastConnectedStream:
    """Return a stream, keyed or not, together with another one.

    Raises:
        DefinitionError: the other is no stream, of another job, or only one of the two is keyed.
    """
    from poundlock.stream.keyed import KeyedStream

    if isinstance(other, BroadcastStream):
        checked_stream(other.stream, own, "connect")
        return BroadcastConnectedStream(own, keys, other)
    other_keys = other.keys if isinstance(other, KeyedStream) else ()
    second = checked_stream(other.stream if isinstance(other, KeyedStream) else other, own, "connect")
    if bool(keys) != bool(other_keys):
        raise DefinitionError(
            "connect of a keyed stream and one without key",
            next='write a.connect(b).key_by("user", "user"), or key both before',
        )
    same_number(keys, other_keys, "connect")
    return ConnectedStreams(own, second, (keys, other_keys))
