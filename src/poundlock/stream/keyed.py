"""A stream by key: windows, process functions, rolling aggregates, connecting, interval joins.

Every method returns a new value; what cannot be meant is refused where it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from poundlock.errors import DefinitionError
from poundlock.stream.connected import Connectable, ProcessInputs
from poundlock.stream.definitions import checked_stream, event_time_column, same_number
from poundlock.stream.functions.process import KeyedProcessFunction
from poundlock.stream.joins import IntervalJoin
from poundlock.stream.nodes import RollingNode
from poundlock.stream.windows.assigners import WindowAssigner
from poundlock.stream.windows.builtin_assigners import CountSlidingWindows, CountTumblingWindows
from poundlock.stream.windows.windowed import WindowedStream, windowed_time

if TYPE_CHECKING:
    from poundlock.stream.stream import DataStream


@dataclass(frozen=True, eq=False)
class KeyedStream(Connectable[KeyedProcessFunction]):
    """A stream whose rows belong to keys; made by `DataStream.key_by`.

    Args:
        stream: the stream.
        keys: Spark SQL expressions, such as "user" or "lower(word) as word".
    """

    stream: DataStream
    keys: Sequence[str]

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        """Put the rows of each key into windows.

        Raises:
            DefinitionError: it is no window assigner, or windows of event time are asked for and the rows have none yet.
        """
        (column,) = windowed_time(assigner, [self.stream], "a window")
        return WindowedStream(assigner, self, column)

    def count_window(self, n: int, slide: int | None = None) -> WindowedStream:
        """Put each `n` rows of a key into a window, or at every `slide`-th row the last `n`; see CountSlidingWindows."""
        return self.window(CountTumblingWindows(n) if slide is None else CountSlidingWindows(n, slide))

    def _inputs(self) -> ProcessInputs:
        return ProcessInputs(KeyedProcessFunction, [self.stream], [self.keys])

    def sum(self, column: str, *, name: str | None = None) -> DataStream:
        """Return for each record the first one of its key, with the sum of a column so far. Nulls are passed over.

        A bounded job gives one record for each key, at the end, unless its `runtime_mode` is "streaming". All rolling aggregates keep the columns of the input.
        """
        return self._rolling("sum", name, column=column)

    def min(self, column: str, *, name: str | None = None) -> DataStream:
        """Return for each record the first one of its key, with the least of a column so far. NaN is greater than all."""
        return self._rolling("min", name, column=column)

    def max(self, column: str, *, name: str | None = None) -> DataStream:
        """Return for each record the first one of its key, with the greatest of a column so far."""
        return self._rolling("max", name, column=column)

    def min_by(self, column: str, *, first: bool = True, name: str | None = None) -> DataStream:
        """Return for each record the one of its key that has the least of a column so far.

        Args:
            column: to compare.
            first: of equal ones, whether the first or the last is taken.
            name: of the operator.
        """
        return self._rolling("min_by", name, column=column, first=first)

    def max_by(self, column: str, *, first: bool = True, name: str | None = None) -> DataStream:
        """Return for each record the one of its key that has the greatest of a column so far; see `min_by`."""
        return self._rolling("max_by", name, column=column, first=first)

    def reduce(self, function: Callable[[Any, Any], Any], *, name: str | None = None) -> DataStream:
        """Return for each record all of its key so far, reduced to one.

        Args:
            function: of two records to one with the same columns; it must not change them.
            name: of the operator.
        """
        if not callable(function):
            raise DefinitionError(f"reduce needs a function, got {function!r}", next="write reduce(lambda a, b: …)")
        return self._rolling("reduce", name, function=function)

    def _rolling(
        self,
        kind: Literal["sum", "min", "max", "min_by", "max_by", "reduce"],
        name: str | None,
        *,
        column: str | None = None,
        function: Callable[[Any, Any], Any] | None = None,
        first: bool = True,
    ) -> DataStream:
        if function is None and (not isinstance(column, str) or not column.strip()):
            raise DefinitionError(f"{kind} needs the name of a column, got {column!r}", next=f'write {kind}("n")')
        stream = self.stream
        return stream.then(
            RollingNode(
                stream.operator_id(kind, name),
                [stream.node],
                [list(self.keys)],
                [event_time_column(stream.node, f"this {kind}")],
                None,
                {},
                kind=kind,
                column=column,
                function=function,
                first=first,
            )
        )

    def interval_join(self, other: KeyedStream) -> IntervalJoin:
        """Join with records of another keyed stream whose event time is near; `between` says how near.

        Raises:
            DefinitionError: the other is not keyed alike, or one of them has no event time.
        """
        if not isinstance(other, KeyedStream):
            raise DefinitionError(
                f"interval_join with {type(other).__name__}, which has no key",
                next="write a.key_by(…).interval_join(b.key_by(…))",
            )
        checked_stream(other.stream, self.stream, "interval_join")
        same_number(self.keys, other.keys, "interval_join")
        for side in (self, other):
            event_time_column(side.stream.node, "an interval join", needed=True)
        return IntervalJoin(self, other)
