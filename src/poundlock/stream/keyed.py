"""A stream by key, and its windows: what stands between `key_by` and `aggregate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poundlock.errors import DefinitionError
from poundlock.stream.nodes import WatermarkNode, WindowNode, walk
from poundlock.stream.windows import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)

if TYPE_CHECKING:
    from poundlock.stream.stream import DataStream

__all__ = ["KeyedStream", "WindowedStream"]


@dataclass(frozen=True, eq=False)
class KeyedStream:
    """A stream whose rows belong to keys; made by `DataStream.key_by`.

    Args:
        stream: the stream.
        keys: Spark SQL expressions, such as "user" or "lower(word) as word".
    """

    stream: DataStream
    keys: Sequence[str]

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        """Put the rows of each key into event-time windows.

        Raises:
            DefinitionError: it is no window assigner, or the rows have no event time yet.
        """
        if not isinstance(assigner, (TumblingEventTimeWindows, SlidingEventTimeWindows, EventTimeSessionWindows)):
            raise DefinitionError(
                f"{assigner!r} is no window assigner", next='use one such as TumblingEventTimeWindows("1 min")'
            )
        marks = [node for node in walk([self.stream.node]) if isinstance(node, WatermarkNode)]
        if not marks:
            raise DefinitionError(
                "windows need event time, and no watermark is assigned before them",
                next="call assign_timestamps_and_watermarks(WatermarkStrategy…) on the stream first",
            )
        columns = {mark.strategy.column for mark in marks}
        if len(columns) > 1:
            raise DefinitionError(
                f"the streams before these windows keep their event time in different columns: {', '.join(sorted(columns))}",
                next="give their watermark strategies the same column=",
            )
        return WindowedStream(self, assigner, columns.pop())


@dataclass(frozen=True, eq=False)
class WindowedStream:
    """Windows of a keyed stream; made by `KeyedStream.window`."""

    keyed: KeyedStream
    assigner: WindowAssigner
    column: str

    def aggregate(self, *aggregates: str, name: str | None = None) -> DataStream:
        """Return one row for each key and window once the watermark has passed its end.

        Args:
            aggregates: Spark SQL aggregates with a name, such as "count(*) as n", "max(price) as price".
            name: of the operator. Name it: Spark keeps its state by its place in the plan.

        Returns:
            The columns of the key, `window_start` and `window_end` (timestamps; the end is exclusive), and the aggregates.
        """
        if not aggregates or not all(isinstance(a, str) and a.strip() for a in aggregates):
            raise DefinitionError("windows without an aggregate", next='write .aggregate("count(*) as n")')
        stream = self.keyed.stream
        return stream.then(
            WindowNode(
                stream.operator_id("window", name),
                [stream.node],
                list(self.keyed.keys),
                self.assigner,
                self.column,
                list(aggregates),
            )
        )
