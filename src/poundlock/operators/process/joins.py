"""Joins. The interval join: pairs of a key whose times are no further apart than two bounds, step for step as in Flink; each record
is kept, sorted by time within its key, until the watermark says that nothing can join it any more.

Window joins and co-groups: both streams' records go into one window operator as [side, record]; the function sees them apart again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from poundlock.arguments import function_name
from poundlock.errors import DefinitionError
from poundlock.operators.keyed.group import MAX, MIN, KeyGroup
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk, RowCollector, check_rows, check_tag
from poundlock.operators.keyed.state import StateStore
from poundlock.operators.process.contexts import NO_KEY
from poundlock.stream.functions.base import Function, RuntimeContext
from poundlock.stream.functions.process import (
    CoGroupFunction,
    JoinFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    WindowContext,
)
from poundlock.stream.nodes import WindowJoinNode
from poundlock.stream.stream import Side

_Buffer = list[list[Any]]  # of a key: times, ascending, and the records that have them
_BUFFERS = ("left", "right")


class PairContext:
    """Context of a pair: what the function of an interval join is given with it."""

    left = right = 0

    def left_timestamp(self) -> int:
        return self.left

    def right_timestamp(self) -> int:
        return self.right

    def timestamp(self) -> int:
        return max(self.left, self.right)


class IntervalJoinOperator(KeyedOperator):
    """Joins side 0, left, with side 1, right: a right record is of a pair if left time + lower <= right time <= left time + upper.

    Args:
        function: called with each pair; None to emit it as (left, right).
        late_tags: side outputs of left and right records behind the watermark; None to drop and count them.
        tags: of the function's side outputs; None = any.
    """

    def __init__(
        self,
        lower_ms: int,
        upper_ms: int,
        function: ProcessJoinFunction | None = None,
        *,
        late_tags: tuple[str | None, str | None] = (None, None),
        tags: Sequence[str] | None = None,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        super().__init__(chunk_rows=chunk_rows)
        # From where to where, relative to a record of a side, the other side's records are; and how long it is kept.
        self._bounds = (lower_ms, upper_ms), (-upper_ms, -lower_ms)
        self._kept_ms = max(0, upper_ms), max(0, -lower_ms)
        self._late_tags = late_tags
        self.function = function
        self._rows = RowCollector(self.out, type(function).__name__, tags)
        self._pair = PairContext()
        self._store = StateStore("state:")
        self._buffers: list[dict[Any, _Buffer]] = [{}, {}]

    def open(self) -> None:
        if self.function is not None:
            self._store.entry = NO_KEY
            self.function.open(self._store)

    def close(self) -> None:
        if self.function is not None:
            self.function.close()

    def bind(self, group: KeyGroup) -> None:
        for name in _BUFFERS:
            group.declare(name, "interval join")
        self._buffers = [group.table(name) for name in _BUFFERS]

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        side, watermark, out = batch.side, self.group.watermark, self.out
        self._store.use(self.group)
        (lower, upper), others = self._bounds[side], self._buffers[1 - side]
        times = batch.timestamps or [None] * len(batch)
        for at, (key, value, time) in enumerate(zip(batch.keys, batch.values, times, strict=True)):
            if time is None or time == MIN:
                raise DefinitionError(
                    f"a record of the {_BUFFERS[side]} side of an interval join has no event time",
                    next="call assign_timestamps_and_watermarks(WatermarkStrategy…) on both streams",
                )
            # As in Flink: a record at the watermark itself is taken.
            if time < watermark:
                self.late(batch, at, self._late_tags[side])
                continue
            self._keep(side, key, value, time)
            other = others.get(key)
            if other is None:
                continue
            matches = range(bisect_left(other[0], time + lower), bisect_right(other[0], time + upper))
            for i in matches:
                self._join(side, key, (time, value), (other[0][i], other[1][i]))
                if out.full:
                    yield from out.drain()

    def _keep(self, side: int, key: Any, value: Any, time: int) -> None:
        held = self._buffers[side].get(key)
        if held is None:
            held = self._buffers[side][key] = [[], []]
        times, values = held
        place = len(times) if not times or time >= times[-1] else bisect_right(times, time)
        times.insert(place, time)
        values.insert(place, value)
        if place == 0:
            # The key's timer is at the clean-up of its earliest record, or before.
            self._set_timer(side, key, time)

    def _set_timer(self, side: int, key: Any, time: int) -> None:
        self.group.event_timers.register(min(time + self._kept_ms[side], MAX), key)

    def _join(self, side: int, key: Any, own: tuple[int, Any], other: tuple[int, Any]) -> None:
        (left_time, left), (right_time, right) = (own, other) if side == 0 else (other, own)
        if self.function is None:
            self.out.emit((left, right), key, max(left_time, right_time))
            return
        pair = self._pair
        pair.left, pair.right = left_time, right_time
        self._store.entry = key
        rows = self.function.process_element(left, right, pair)
        if rows is not None:
            self._rows.collect(rows, key, max(left_time, right_time))

    def on_timer(self, time: int, entry: Any, *, event: bool) -> None:
        watermark = self.group.watermark
        for side, buffer in enumerate(self._buffers):
            held = buffer.get(entry)
            if held is None:
                continue
            times, values = held
            limit = MAX if watermark == MAX else watermark - self._kept_ms[side]
            over = bisect_right(times, limit)
            del times[:over], values[:over]
            if times:
                self._set_timer(side, entry, times[0])
            else:
                del buffer[entry]


class JoinedSides(ProcessWindowFunction):
    """Gives the elements of a window to the user's function, by side: each pair of a join, all of both sides of a co-group.

    A join without a function gives pairs as they are.
    """

    def __init__(self, node: WindowJoinNode, tags: Iterable[str]) -> None:
        function = node.function
        self._pairs = node.kind == "join"
        self._tags = frozenset(tags)
        self._opened = function if isinstance(function, Function) else None
        self._who = function_name(function)
        self._call: Callable[[Any, Any], Any]
        if function is None:
            self._call = _as_they_are
        elif isinstance(function, JoinFunction):
            self._call = function.join
        elif isinstance(function, CoGroupFunction):
            self._call = function.co_group
        else:
            self._call = function

    def open(self, context: RuntimeContext) -> None:
        if self._opened is not None:
            self._opened.open(context)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def process(self, key: Any, context: WindowContext, elements: Sequence[Any]) -> Iterable[Any]:
        left = [value for side, value in elements if side == 0]
        right = [value for side, value in elements if side == 1]
        if not self._pairs:
            yield from self._rows(self._call(left, right))
            return
        for one in left:
            for other in right:
                yield from self._rows(self._call(one, other))

    @staticmethod
    def one_or_several(returned: Any) -> Any:
        """Return what a function of a pair returned as several records, or nothing."""
        return [returned] if isinstance(returned, dict) else returned

    def _rows(self, given: Any) -> Iterator[Any]:
        """Yield what a function gave: nothing, one record, or several."""
        if given is None:
            return
        for row in check_rows(self.one_or_several(given), self._who):
            if isinstance(row, Side):
                check_tag(row.tag, self._tags, self._who)
            yield row


def _as_they_are(left: Any, right: Any) -> list[Any]:
    return [(left, right)]
