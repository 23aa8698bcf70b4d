"""A stream by key: windows, process functions, rolling aggregates, deduplication, top-n, connecting, interval joins.

Every method returns a new value; what cannot be meant is refused where it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from poundlock.calls import check_function
from poundlock.errors import DefinitionError
from poundlock.stream.connected import Connectable, ProcessInputs
from poundlock.stream.definitions import checked_stream, event_time_column, same_number, sort_columns
from poundlock.stream.functions.process import KeyedProcessFunction
from poundlock.stream.functions.state import StateTtlConfig
from poundlock.stream.joins import IntervalJoin
from poundlock.stream.nodes import DeduplicateNode, RollingNode, TopNNode
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
        check_function(function, "reduce", "a", "b")
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

    def deduplicate(
        self,
        keep: Literal["first", "last"] = "first",
        *,
        order: Literal["event_time", "arrival"] = "arrival",
        ttl: str | timedelta | None = None,
        update_before: bool = False,
        name: str | None = None,
    ) -> DataStream:
        """Return one record for each key, as Flink's SQL does with ROW_NUMBER() = 1 over an order of time.

        Args:
            keep: "first" gives the first record of a key once, and its others never: as it arrives, or by event time when the
                watermark reaches it; then a record behind the watermark is late, and counted. Of equal times the first that
                arrived counts. "last" gives each record that becomes the last of its key, of equal times the last that arrived,
                with a column `row_kind`: "+I" where it is the first one, "+U" where it stands for the one before. A bounded job
                gives the last of each key, at the end, unless its `runtime_mode` is "streaming".
            order: what is first and last: the event time, or when records arrived.
            ttl: how long a key is known after its first record came out, or its last one changed, by the clock, such as "1 day";
                afterwards it begins again. None for ever.
            update_before: of "last", whether the record that is replaced is given too, with "-U", before the one that replaces it.
            name: of the operator. Name it: its state is kept under that name.

        Raises:
            DefinitionError: there is no such choice, or the records have no event time and it is asked for.
        """
        _one_of("keep", keep, ("first", "last"))
        _one_of("order", order, ("event_time", "arrival"))
        if keep == "first" and update_before:
            raise DefinitionError(
                "update_before with the first records, which nothing replaces", next="leave out update_before"
            )
        stream = self.stream
        column = event_time_column(stream.node, "deduplicate by event time", needed=order == "event_time")
        return stream.then(
            DeduplicateNode(
                stream.operator_id("deduplicate", name),
                [stream.node],
                [list(self.keys)],
                [column],
                None,
                {},
                keep=keep,
                order=order,
                ttl_ms=_ttl_ms(ttl),
                update_before=update_before,
            )
        )

    def top_n(
        self,
        n: int,
        order_by: str | Sequence[str],
        *,
        rank: str | None = None,
        ttl: str | timedelta | None = None,
        update_before: bool = False,
        name: str | None = None,
    ) -> DataStream:
        """Return the first `n` records of each key in an order, as Flink's SQL does with ROW_NUMBER() <= n.

        What comes out are changes, with a column `row_kind`. Without `rank`: "+I" for a record that is among the first, before it "-D"
        for the one that no longer is. With `rank`: for each place whose record is another one now "+U", or "+I" where there was
        none. A bounded job gives the records of each key, at the end, unless its `runtime_mode` is "streaming".

        Args:
            n: how many.
            order_by: columns such as "price desc", "id", "at desc nulls first". Without more being asked for, nulls are less than
                all values, as in Flink and Spark. Of records that are equal in all of them the one that arrived first is before.
            rank: the name of a column with the place of a record, from 1.
            ttl: how long the records of a key are kept after their last change, by the clock. None for ever.
            update_before: with `rank`, whether the record that had a place is given too, with "-U", before the one that takes it.
            name: of the operator. Name it: its state is kept under that name.

        Raises:
            DefinitionError: `n` is less than 1, or the order is none.
        """
        if type(n) is not int or n < 1:
            raise DefinitionError(f"the first {n!r} records", next="give a whole number from 1 on")
        if update_before and rank is None:
            raise DefinitionError("update_before without rank, where nothing is updated", next='write rank="place"')
        stream = self.stream
        return stream.then(
            TopNNode(
                stream.operator_id("top-n", name),
                [stream.node],
                [list(self.keys)],
                [event_time_column(stream.node, "top_n")],
                None,
                {},
                n=n,
                order_by=sort_columns([order_by] if isinstance(order_by, str) else order_by),
                rank=rank,
                ttl_ms=_ttl_ms(ttl),
                update_before=update_before,
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


def _one_of(name: str, given: Any, known: Sequence[str]) -> None:
    if given not in known:
        raise DefinitionError(f"{name}={given!r} is not known", next=f"use {' or '.join(map(repr, known))}")


def _ttl_ms(ttl: str | timedelta | None) -> int | None:
    return None if ttl is None else StateTtlConfig(ttl=ttl).ttl_ms
