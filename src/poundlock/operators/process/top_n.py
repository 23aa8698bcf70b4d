"""The first records of each key in an order, as they change; step for step what Flink's SQL makes of ROW_NUMBER() <= n.

A key's records are one list in that order. A record that comes where the list is full takes the place of the last one, unless it is
behind it or equal to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any, ClassVar

from poundlock.operators.keyed.group import MAX, KeyGroup, TimerEntries
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk
from poundlock.operators.process.deduplicate import ROW_KIND, LivingTable
from poundlock.operators.value_order import compare
from poundlock.stream.nodes import SortColumn, TopNNode, places_text

TOP = "top"


@dataclass(frozen=True)
class TopN:
    """How many records, in which order, and what comes of a change; see `TopNNode`."""

    n: int
    order_by: Sequence[SortColumn]
    rank: str | None = None
    ttl_ms: int | None = None
    update_before: bool = False
    first: int = 1

    @property
    def holds(self) -> tuple[str, ...]:
        """What state is of: records of another order, or fewer of them, are of no use."""
        return (places_text(self.first, self.n, self.order_by),)

    @classmethod
    def of(cls, node: TopNNode) -> TopN:
        """Return what a node says."""
        return cls(node.n, node.order_by, node.rank, node.ttl_ms, node.update_before, node.first)


def _comparable(order_by: Sequence[SortColumn]) -> Callable[[dict[str, Any]], Any]:
    """Return what makes records comparable."""

    def compared(a: dict[str, Any], b: dict[str, Any]) -> int:
        for each in order_by:
            one, other = a.get(each.column), b.get(each.column)
            if one is None or other is None:
                if (one is None) is not (other is None):
                    return -1 if (one is None) is each.nulls_first else 1
                continue
            sign = compare(one, other)
            if sign:
                return -sign if each.descending else sign
        return 0

    return cmp_to_key(compared)


class TopNOperator(KeyedOperator):
    """The first records of each key.

    Args:
        bounded: whether only the last state of each key is wanted, at the end of the input.
    """

    timer_entries: ClassVar[TimerEntries] = "windows"
    opens_tables_first: ClassVar[bool] = True

    def __init__(self, top: TopN, *, bounded: bool = False, chunk_rows: int = CHUNK_ROWS) -> None:
        super().__init__(chunk_rows=chunk_rows)
        self._top, self._bounded = top, bounded
        self._comparable = _comparable(top.order_by)
        self._table = LivingTable(top.ttl_ms)

    def bind(self, group: KeyGroup) -> None:
        self._table.use(group, TOP, self._top.holds)
        if self._bounded and group.namespaces(TOP):
            group.wake_at_end()

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        times = batch.timestamps or [None] * len(batch)
        if self._bounded and len(batch):
            self.group.wake_at_end()
        for key, value, time in zip(batch.keys, batch.values, times, strict=True):
            held = self._table.get(key) or []
            at = bisect_right(held, self._comparable(value), key=self._comparable)
            if at == self._top.n:
                continue
            now = [*held[:at], value, *held[at:]][: self._top.n]
            self._table.put(key, now)
            if not self._bounded:
                self._emit_change(key, time, held, now, at)
                if self.out.full:
                    yield from self.out.drain()

    def _emit_change(self, key: Any, time: int | None, held: list[Any], now: list[Any], at: int) -> None:
        """Emit what changed with a record that stands at a place now."""
        if self._top.rank is None:
            if len(now) == len(held):
                self.out.emit({**held[-1], ROW_KIND: "-D"}, key, time)
            shown = max(at, self._top.first - 1)
            if shown < len(now):
                self.out.emit({**now[shown], ROW_KIND: "+I"}, key, time)
            return
        for place in range(max(at, self._top.first - 1), len(now)):
            is_new = place == len(held)
            if self._top.update_before and not is_new:
                self._emit_ranked(held[place], place, "-U", key, time)
            self._emit_ranked(now[place], place, "+I" if is_new else "+U", key, time)

    def _emit_ranked(self, record: dict[str, Any], place: int, kind: str, key: Any, time: int | None) -> None:
        rank = {} if self._top.rank is None else {self._top.rank: place + 1}
        self.out.emit({**record, **rank, ROW_KIND: kind}, key, time)

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[OutputChunk]:
        for key, held in self._table.drain():
            for place, record in enumerate(held):
                if place >= self._top.first - 1:
                    self._emit_ranked(record, place, "+I", key, MAX)
            if self.out.full:
                yield from self.out.drain()
