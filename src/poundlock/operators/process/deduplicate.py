"""Deduplication by key: of the records of a key the first or the last one, by event time or as they arrived.

What Flink's SQL makes of ROW_NUMBER() = 1 over an order of time. The first is given once. By event time that is when the watermark
reaches it, since until then an earlier one may come, and a record behind the watermark is late. The last is given whenever it changes,
with the kind of the change, or at the end of the input where only final results are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.codec import encode_key
from poundlock.operators.keyed.group import MIN, KeyGroup, TimerEntries
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk

SEEN, WAITS, WAITING, LAST = "seen", "waits", "waiting", "last"
"""Tables: keys whose first record has come out, the time of the record of a key that waits for the watermark, these records by
time, the last record of each key."""
ROW_KIND = "row_kind"
"""The column with the kind of a change: +I, -U, +U or -D, as Flink writes them."""
BUCKET_MS = 60_000
"""How long a stretch of time is whose records wait in one table."""

Order = Literal["event_time", "arrival"]


def bucket_of(time: int) -> tuple[int, int]:
    """Return the stretch of time, in ms, whose records wait in one table."""
    start = time // BUCKET_MS * BUCKET_MS
    return start, start + BUCKET_MS


def check_event_time(time: int | None) -> int:
    """Return an event time.

    Raises:
        DefinitionError: there is none.
    """
    if time is None:
        raise DefinitionError(
            "a record without event time cannot be deduplicated by event time",
            next='assign timestamps to all records before it, or use order="arrival"',
        )
    return time


class LivingTable:
    """A table of one entry a key.

    Args:
        ttl_ms: how long an entry lives after it was put, by the clock; None for ever.
    """

    def __init__(self, ttl_ms: int | None) -> None:
        self._ttl_ms = ttl_ms
        self.group = KeyGroup(0)
        self._table: dict[Any, Any] = {}

    def use(self, group: KeyGroup, name: str, holds: tuple[str, ...] = ()) -> None:
        """Move to the table of a group; its name is also its kind."""
        group.declare(name, name, self._ttl_ms, holds=holds)
        self.group, self._table = group, group.table(name)

    def get(self, key: Any) -> Any:
        """Return the value of a key, None if it has none or its time is over."""
        held = self._table.get(key)
        if held is None or self._ttl_ms is None:
            return held
        return held[1] if held[0] + self._ttl_ms > self.group.processing_time else None

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        self._table[key] = value if self._ttl_ms is None else [self.group.processing_time, value]

    def remove(self, key: Any) -> None:
        """Forget a key."""
        del self._table[key]

    def drain(self) -> Iterator[tuple[Any, Any]]:
        """Take out and yield every key and its value."""
        for key in list(self._table):
            value = self.get(key)
            del self._table[key]
            if value is not None:
                yield key, value


class FirstRecordOperator(KeyedOperator):
    """The first record of each key."""

    timer_entries: ClassVar[TimerEntries] = "windows"
    opens_tables_first: ClassVar[bool] = True

    def __init__(self, order: Order, *, ttl_ms: int | None = None, chunk_rows: int = CHUNK_ROWS) -> None:
        super().__init__(chunk_rows=chunk_rows)
        self._by_time = order == "event_time"
        self._seen, self._waits = LivingTable(ttl_ms), LivingTable(None)

    def bind(self, group: KeyGroup) -> None:
        self._seen.use(group, SEEN)
        if self._by_time:
            self._waits.use(group, WAITS)
            group.declare(WAITING, WAITING)
            for bucket in group.namespaces(WAITING):
                group.event_timers.register(max(bucket[0], group.watermark + 1), bucket)

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        times = batch.timestamps or [None] * len(batch)
        for at, (key, value, time) in enumerate(zip(batch.keys, batch.values, times, strict=True)):
            if self._by_time:
                self._wait(batch, at, check_event_time(time))
            elif self._seen.get(key) is None:
                self._seen.put(key, True)
                self.out.emit(value, key, time)
                if self.out.full:
                    yield from self.out.drain()

    def _wait(self, batch: GroupBatch, at: int, time: int) -> None:
        """Keep a record until the watermark reaches it, unless an earlier one of its key is known."""
        key, group = batch.keys[at], self.group
        if time <= group.watermark:
            self.late(batch, at, None)
            return
        known = self._waits.get(key)
        if self._seen.get(key) is not None or (known is not None and known <= time):
            return
        if known is not None:
            group.table(WAITING, bucket_of(known)).pop(key, None)
        self._waits.put(key, time)
        bucket = bucket_of(time)
        group.table(WAITING, bucket)[key] = [time, batch.values[at]]
        group.event_timers.register(max(bucket[0], group.watermark + 1), bucket)

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[OutputChunk]:
        group = self.group
        waiting = group.table(WAITING, entry)
        due = [(held[0], encode_key(key), key) for key, held in waiting.items() if held[0] <= group.watermark]
        group.prefetch([key for _, _, key in due])
        for at, _, key in sorted(due, key=lambda each: each[:2]):
            self._seen.put(key, True)
            self._waits.remove(key)
            self.out.emit(waiting.pop(key)[1], key, at)
            if self.out.full:
                yield from self.out.drain()
        left = [held[0] for held in waiting.values()]
        if left:
            group.event_timers.register(min(left), entry)
        else:
            group.drop(WAITING, entry)


class LastRecordOperator(KeyedOperator):
    """The last record of each key: as it changes, or at the end of the input.

    Args:
        update_before: whether the record that is replaced is given before the one that replaces it.
        bounded: whether only the last of each key is wanted, at the end.
    """

    timer_entries: ClassVar[TimerEntries] = "windows"
    opens_tables_first: ClassVar[bool] = True

    def __init__(
        self,
        order: Order,
        *,
        ttl_ms: int | None = None,
        update_before: bool = False,
        bounded: bool = False,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        super().__init__(chunk_rows=chunk_rows)
        self._by_time, self._update_before, self._bounded = order == "event_time", update_before, bounded
        self._last = LivingTable(ttl_ms)

    def bind(self, group: KeyGroup) -> None:
        self._last.use(group, LAST)
        if self._bounded and group.namespaces(LAST):
            group.wake_at_end()

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        times = batch.timestamps or [None] * len(batch)
        if self._bounded and len(batch):
            self.group.wake_at_end()
        for key, value, time in zip(batch.keys, batch.values, times, strict=True):
            held = self._last.get(key)
            if self._by_time and check_event_time(time) < (MIN if held is None else held[0]):
                continue
            self._last.put(key, [time, value])
            if self._bounded:
                continue
            if held is not None and self._update_before:
                self.out.emit({**held[1], ROW_KIND: "-U"}, key, time)
            self.out.emit({**value, ROW_KIND: "+I" if held is None else "+U"}, key, time)
            if self.out.full:
                yield from self.out.drain()

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[OutputChunk]:
        for key, (at, value) in self._last.drain():
            self.out.emit({**value, ROW_KIND: "+I"}, key, at)
            if self.out.full:
                yield from self.out.drain()
