"""Matches of a pattern in the rows of each key: rows wait for the watermark, and go through the pattern in the order of their time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cmp_to_key
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk
from poundlock.operators.matching.key_matches import KeyMatches, Matching
from poundlock.operators.value_order import compare
from poundlock.stream.matching import MatchNode, Row
from poundlock.stream.nodes import SortColumn

WAITING, BEGUN = "waiting rows", "begun matches"
"""Tables, by key: rows that the watermark has not reached, with their times, in the order they came; what may become a match."""


class MatchOperator(KeyedOperator):
    """Matches of a pattern."""

    def __init__(self, node: MatchNode, *, chunk_rows: int = CHUNK_ROWS) -> None:
        super().__init__(chunk_rows=chunk_rows)
        program = node.program
        self._matching = Matching(node.pattern, node.after, program.conditions(), node.within_ms)
        self._result, self._by_clock = program.result(), node.columns[0] is None
        self._columns = tuple(program.columns)
        self._pattern = tuple(map(str, node.pattern))
        self._order = [(self._columns.index(each.column), each) for each in node.order]
        self._waiting: dict[Any, list[Any]] = {}
        self._begun: dict[Any, list[Any]] = {}

    def bind(self, group: KeyGroup) -> None:
        group.declare(WAITING, WAITING, holds=self._columns)
        group.declare(BEGUN, BEGUN, holds=(*self._pattern, *self._columns))
        self._waiting, self._begun = group.table(WAITING), group.table(BEGUN)

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        came: dict[Any, list[Any]] = {}
        if self._by_clock:
            now = self.group.processing_time
            for key, row in zip(batch.keys, batch.values, strict=True):
                came.setdefault(key, []).append([now, list(row)])
            for key, rows in came.items():
                yield from self._match(key, rows, now)
            return
        watermark = self.group.watermark
        for at, (key, row, time) in enumerate(zip(batch.keys, batch.values, _times(batch), strict=True)):
            if time <= watermark:
                self.late(batch, at, None)
            else:
                came.setdefault(key, []).append([time, list(row)])
        for key, rows in came.items():
            self._waiting[key] = [*self._waiting.get(key, ()), *rows]
            self.group.event_timers.register(min(time for time, _ in rows), key)

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[OutputChunk]:
        if not event:
            yield from self._match(entry, [], self.group.processing_time)
            return
        watermark = self.group.watermark
        waiting = self._waiting.get(entry, ())
        due = [each for each in waiting if each[0] <= watermark]
        left = [each for each in waiting if each[0] > watermark]
        yield from self._match(entry, due, watermark)
        if left:
            self._waiting[entry] = left
            self.group.event_timers.register(min(time for time, _ in left), entry)
        else:
            self._waiting.pop(entry, None)

    def _match(self, key: Any, rows: Sequence[Any], until: int) -> Iterator[OutputChunk]:
        """Let the rows of a key go through the pattern; the time, ms, is over that far."""
        matches = KeyMatches(self._matching, self._begun.get(key))
        timers = self.group.processing_timers if self._by_clock else self.group.event_timers
        was_over = matches.over_at()
        for time, row in self._ordered(rows):
            for match in (*matches.advance(time), *matches.add(time, row)):
                yield from self._give(key, *match)
        for match in matches.advance(until):
            yield from self._give(key, *match)
        kept, over = matches.kept(), matches.over_at()
        if kept is None:
            self._begun.pop(key, None)
        else:
            self._begun[key] = kept
        if was_over is not None and was_over != over:
            timers.delete(was_over, key)
        if over is not None:
            timers.register(over, key)

    def _give(self, key: Any, match: Any, time: int) -> Iterator[OutputChunk]:
        self.out.emit(self._result(match, time), key, None if self._by_clock else time)
        if self.out.full:
            yield from self.out.drain()

    def _ordered(self, rows: Sequence[Any]) -> list[Any]:
        """Return rows by time, those of one time by the other columns of the order, and else as they came."""
        ordered = list(rows)
        for place, column in reversed(self._order):
            ordered.sort(key=cmp_to_key(_by(place, column)))
        return sorted(ordered, key=lambda each: each[0])


def _by(place: int, column: SortColumn) -> Any:
    """Return what compares rows by a column."""

    def compared(one: tuple[int, Row], other: tuple[int, Row]) -> int:
        a, b = one[1][place], other[1][place]
        if a is None or b is None:
            sign = int(b is None) - int(a is None)
            return sign if column.nulls_first else -sign
        return -compare(a, b) if column.descending else compare(a, b)

    return compared


def _times(batch: GroupBatch) -> Sequence[int]:
    """Return the event time of each row.

    Raises:
        DefinitionError: one has none.
    """
    times = batch.timestamps
    if times is None or None in times:
        raise DefinitionError(
            "a row without event time has no place among those that a pattern is looked for in",
            next="leave such rows out: … WHERE time IS NOT NULL",
        )
    return [time for time in times if time is not None]
