"""What can be done with streams beside rows one by one: process functions, connecting, broadcasting, window joins.

`DataStream` has these methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast, overload

from poundlock.stream.connected import BroadcastConnectedStream, BroadcastStream, ConnectedStreams, add_process, connect
from poundlock.stream.definitions import checked_stream
from poundlock.stream.functions.process import ProcessFunction
from poundlock.stream.functions.state import MapStateDescriptor
from poundlock.stream.windows.window_joins import JoinedStreams

if TYPE_CHECKING:
    from poundlock.stream.stream import DataStream


class StreamMethods:
    """Methods of a stream."""

    def process(
        self,
        function: ProcessFunction,
        *,
        schema: str,
        side_outputs: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Return what a function makes of the records. For state and timers call `key_by` before.

        Args:
            function: an object of a class derived from ProcessFunction.
            schema: DDL of the records it yields.
            side_outputs: tags to their DDL; it yields Side(tag, record) for those.
            name: of the operator.

        Raises:
            DefinitionError: it is no such function, or the schema cannot be read.
        """
        return add_process(
            function,
            ProcessFunction,
            [cast("DataStream", self)],
            [()],
            schema=schema,
            side_outputs=side_outputs,
            name=name,
        )

    @overload
    def connect(self, other: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, other: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, other: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """Put another stream, or a broadcast one, beside this; `process` on the result gives both to one function.

        Raises:
            DefinitionError: the other is no stream, keyed, or of another job.
        """
        return connect(cast("DataStream", self), (), other)

    def broadcast(self, *descriptors: MapStateDescriptor) -> BroadcastStream:
        """Let every task see these records; give the result to `connect` of another stream.

        Args:
            descriptors: of the states that the records are kept in.

        Raises:
            DefinitionError: there is none, one is not of map state or has a time to live, or two have one name.
        """
        return BroadcastStream.of(cast("DataStream", self), descriptors)

    def join(self, other: DataStream) -> JoinedStreams:
        """Join with another stream: `.where("user").equal_to("id").window(…).apply(…)` gives each pair of a key and window."""
        own = cast("DataStream", self)
        return JoinedStreams("join", own, checked_stream(other, own, "join"))

    def co_group(self, other: DataStream) -> JoinedStreams:
        """As `join`, but the function sees all records of a key and window at once, also where one side has none."""
        own = cast("DataStream", self)
        return JoinedStreams("co_group", own, checked_stream(other, own, "co_group"))
