"""The interval join: pairs of a key whose times are no further apart than two bounds, step for step as in Flink.

Each record is kept, sorted by time within its key, until the watermark says that nothing can join it any more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.group import MAX, MIN, KeyGroup
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk
from poundlock.operators.keyed.state import StateStore
from poundlock.operators.process.base import TimedOperator
from poundlock.operators.process.contexts import NO_KEY
from poundlock.operators.process.rows import RowCollector
from poundlock.stream.functions.join import ProcessJoinFunction

_Buffer = list[list[Any]]  # of a key: times, ascending, and the records that have them
_BUFFERS = ("left", "right")


@dataclass(frozen=True, kw_only=True)
class IntervalJoinSpec:
    """What is joined: a right record is of a pair if left time + lower <= right time <= left time + upper.

    Args:
        lower_ms: the lower bound, which is part of the interval; mostly negative.
        upper_ms: the upper bound, which is part of the interval.
        late_tags: side outputs of left and right records behind the watermark; None to drop and count them.
    """

    lower_ms: int
    upper_ms: int
    late_tags: tuple[str | None, str | None] = (None, None)

    def __post_init__(self) -> None:
        if self.lower_ms > self.upper_ms:
            raise DefinitionError(
                f"no time is between {self.lower_ms} ms and {self.upper_ms} ms",
                next="give a lower bound that is not above the upper one",
            )

    def bounds(self, side: int) -> tuple[int, int]:
        """Return from where to where, relative to a record of a side in ms, the other side's records are."""
        return (self.lower_ms, self.upper_ms) if side == 0 else (-self.upper_ms, -self.lower_ms)

    def cleanup_delay(self, side: int) -> int:
        """Return how long after its time a record of a side is kept, in ms."""
        return max(0, self.bounds(side)[1])


class _Pair:
    """Context of a pair."""

    left = right = 0

    def left_timestamp(self) -> int:
        return self.left

    def right_timestamp(self) -> int:
        return self.right

    def timestamp(self) -> int:
        return max(self.left, self.right)


class IntervalJoinOperator(TimedOperator):
    """Joins side 0, left, with side 1, right.

    Args:
        spec: which records are pairs.
        function: called with each pair; None to emit it as (left, right).
        tags: of the function's side outputs; None = any.
        chunk_rows: about how many rows come out at a time.
    """

    def __init__(
        self,
        spec: IntervalJoinSpec,
        function: ProcessJoinFunction | None = None,
        *,
        tags: Sequence[str] | None = None,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        super().__init__(chunk_rows=chunk_rows)
        self.spec = spec
        self.function = function
        self._rows = RowCollector(self.out, type(function).__name__, tags)
        self._pair = _Pair()
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
        (lower, upper), others = self.spec.bounds(side), self._buffers[1 - side]
        times = batch.timestamps or [None] * len(batch)
        for at, (key, value, time) in enumerate(zip(batch.keys, batch.values, times, strict=True)):
            if time is None or time == MIN:
                raise DefinitionError(
                    f"a record of the {_BUFFERS[side]} side of an interval join has no event time",
                    next="call assign_timestamps_and_watermarks(WatermarkStrategy…) on both streams",
                )
            # As in Flink: a record at the watermark itself is taken.
            if time < watermark:
                self._late(batch, at)
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
        self.group.event_timers.register(min(time + self.spec.cleanup_delay(side), MAX), key)

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

    def _late(self, batch: GroupBatch, at: int) -> None:
        tag = self.spec.late_tags[batch.side]
        if tag is None:
            self.late_dropped += 1
            return
        assert batch.timestamps is not None
        row = at if batch.rows is None else batch.rows[at]
        self.out.emit_row(batch.values[at], batch.keys[at], batch.timestamps[at], row, tag)

    def on_timer(self, time: int, entry: Any) -> None:
        watermark = self.group.watermark
        for side, buffer in enumerate(self._buffers):
            held = buffer.get(entry)
            if held is None:
                continue
            times, values = held
            limit = MAX if watermark == MAX else watermark - self.spec.cleanup_delay(side)
            over = bisect_right(times, limit)
            del times[:over], values[:over]
            if times:
                self._set_timer(side, entry, times[0])
            else:
                del buffer[entry]
