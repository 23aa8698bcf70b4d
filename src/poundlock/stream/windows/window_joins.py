"""Window joins and co-groups as a user says them: `a.join(b).where("user").equal_to("id").window(…).apply(…)`.

Every method returns a new value; only `apply` adds a step to the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from poundlock.errors import DefinitionError
from poundlock.stream.definitions import checked_keys, checked_schema, checked_sides, same_number
from poundlock.stream.functions.join import CoGroupFunction, JoinFunction
from poundlock.stream.nodes import WindowJoinNode
from poundlock.stream.windows.assigners import WindowAssigner
from poundlock.stream.windows.windowed import WindowsOfStreams, windowed_time

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
        columns = windowed_time(assigner, [self.left, self.right], f"a {self.kind} in windows")
        return JoinedWindows(assigner, self, columns)


@dataclass(frozen=True, eq=False)
class JoinedWindows(WindowsOfStreams):
    """A join or co-group in windows; ends with `apply`. Trigger and evictor see elements as [0 or 1, record]."""

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
                self.columns,
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
