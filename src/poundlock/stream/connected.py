"""Two streams that one function sees, and streams that every task sees.

Both are values between two calls: only `process` adds a step to the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from poundlock.arguments import check_object
from poundlock.calls import check_methods
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
    element_calls,
)
from poundlock.stream.functions.records import requested_record
from poundlock.stream.functions.state import MapStateDescriptor
from poundlock.stream.nodes import ProcessNode

if TYPE_CHECKING:
    from poundlock.stream.stream import DataStream


F = TypeVar("F", bound=Function)

_PLACES: Mapping[type[Function], str] = {
    ProcessFunction: "stream.process(…)",
    KeyedProcessFunction: "stream.key_by(…).process(…)",
    CoProcessFunction: "stream.connect(other).process(…)",
    KeyedCoProcessFunction: "stream.connect(other).key_by(…, …).process(…)",
    BroadcastProcessFunction: "stream.connect(rules.broadcast(…)).process(…)",
    KeyedBroadcastProcessFunction: "stream.key_by(…).connect(rules.broadcast(…)).process(…)",
}


@dataclass(frozen=True, eq=False)
class ProcessInputs:
    """What a process function works on: the kind of function that fits, its streams, and the keys of each.

    Args:
        broadcast: descriptors of the state that the second stream writes, where that is broadcast.
    """

    kind: type[Function]
    streams: Sequence[DataStream]
    keys: Sequence[Sequence[str]]
    broadcast: Sequence[MapStateDescriptor] = ()


class Processed(Generic[F]):
    """Streams that a process function may work on; `F` is the kind of function that fits."""

    def _inputs(self) -> ProcessInputs:
        raise NotImplementedError

    def process(
        self, function: F, *, schema: str, side_outputs: Mapping[str, str] | None = None, name: str | None = None
    ) -> DataStream:
        """Return what a function makes of the records. It has state and timers of their keys where there are keys.

        Args:
            function: an object of a class derived from ProcessFunction, from CoProcessFunction for two connected streams, or from
                BroadcastProcessFunction where the second one is broadcast; where there are keys, from the Keyed… of these.
            schema: DDL of the records it yields, such as "user string, n bigint".
            side_outputs: tags to their DDL; it yields Side(tag, record) for those.
            name: of the operator. Name it: its state is kept under that name.

        Raises:
            DefinitionError: it is of another kind, or the schema cannot be read.
        """
        inputs = self._inputs()
        _check_kind(function, inputs.kind)
        check_methods(function, inputs.kind, "process")
        first = inputs.streams[0]
        records = [requested_record(call, "process") for call in element_calls(function)]
        return first.then(
            ProcessNode(
                first.operator_id("process", name),
                [stream.node for stream in inputs.streams],
                [list(key) for key in inputs.keys],
                [event_time_column(stream.node, "this process function") for stream in inputs.streams],
                checked_schema(schema, "process"),
                checked_sides(side_outputs),
                function=function,
                broadcast=list(inputs.broadcast),
                records=records,
            )
        )


class Connectable(Processed[F]):
    """A stream that may stand beside another one of its kind, or a broadcast one."""

    @overload
    def connect(self, other: Self) -> ConnectedStreams: ...

    @overload
    def connect(self, other: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, other: Self | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """Put another stream, keyed as this one is, or a broadcast one, beside this; `process` on the result gives both to one function.

        Raises:
            DefinitionError: the other is no stream, of another job, or one of the two has no key or another number of keys.
        """
        inputs = self._inputs()
        return _connected(inputs.streams[0], inputs.keys[0], other)


def _check_kind(function: Any, wanted: type[Function]) -> None:
    if isinstance(function, wanted):
        return
    kind = next((kind for kind in _PLACES if isinstance(function, kind)), None)
    if kind is None:
        name = wanted.__name__
        check_object(function, name, (wanted,), f"derive a class from {name} and give an object of it")
    else:
        raise DefinitionError(
            f"{type(function).__name__} is a {kind.__name__}, and a {wanted.__name__} is needed here",
            next=f"derive it from {wanted.__name__}, or call {_PLACES[kind]}",
        )


@dataclass(frozen=True, eq=False)
class ConnectedStreams(Processed[CoProcessFunction | KeyedCoProcessFunction]):
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

    def _inputs(self) -> ProcessInputs:
        kind = KeyedCoProcessFunction if any(self.keys) else CoProcessFunction
        return ProcessInputs(kind, [self.first, self.second], self.keys)


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
class BroadcastConnectedStream(Processed[BroadcastProcessFunction | KeyedBroadcastProcessFunction]):
    """A stream, keyed or not, with a broadcast one; made by `connect`."""

    stream: DataStream
    keys: Sequence[str]
    rules: BroadcastStream

    def _inputs(self) -> ProcessInputs:
        kind = KeyedBroadcastProcessFunction if self.keys else BroadcastProcessFunction
        return ProcessInputs(kind, [self.stream, self.rules.stream], [self.keys, ()], self.rules.descriptors)


def _connected(own: DataStream, keys: Sequence[str], other: Any) -> ConnectedStreams | BroadcastConnectedStream:
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
