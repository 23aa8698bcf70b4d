"""Windows of which a key has one entry: sessions of one gap that fire at their end, and counts; neither with an evictor.

A key's sessions are one short list. It has a timer at or before the next thing that happens to any of them; one that comes early
is set again. So an element that extends its session touches no timer, and a key with many sessions needs one. Of a key with count
windows there is the number of its elements so far and what they add up to, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from poundlock.operators.keyed.group import MAX, KeyGroup
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk
from poundlock.operators.windows.base import CONTENTS, WindowOperatorBase, WindowSpec
from poundlock.stream.windows.assigners import require_time
from poundlock.stream.windows.builtin_assigners import CountTumblingWindows, FixedSessions

_Session = list[Any]  # [start, end, accumulator]


class SessionWindowOperator(WindowOperatorBase):
    """Sessions of a fixed gap with the default trigger."""

    def __init__(self, spec: WindowSpec, *, chunk_rows: int = CHUNK_ROWS) -> None:
        super().__init__(spec, chunk_rows=chunk_rows)
        assert isinstance(spec.assigner, FixedSessions)
        self._gap = spec.assigner.gap_ms
        self._lateness = spec.allowed_lateness_ms if self.event_time else 0
        self._table: dict[Any, list[_Session]] = {}

    def bind(self, group: KeyGroup) -> None:
        group.declare(CONTENTS, "sessions")
        self._table = group.table(CONTENTS)

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        table, gap, add, out = self._table, self._gap, self.fold.add, self.out
        mark = self.group.watermark if self.event_time else self.group.processing_time
        times = batch.timestamps if self.event_time else [mark] * len(batch)
        if times is None:
            require_time(None, self.spec.assigner)
        for at, (key, value, time) in enumerate(zip(batch.keys, batch.values, times, strict=True)):  # type: ignore[arg-type]
            held = table.get(key)
            if held is None:
                self._begin(batch, at, key, require_time(time, self.spec.assigner), value)
            elif time is not None:
                session = held[-1]
                # Within or at the end of the key's latest session, which has not fired: nearly all elements.
                if session[0] <= time <= session[1] and session[1] > mark + 1:
                    if time + gap > session[1]:
                        session[1] = time + gap
                    session[2] = add(value, session[2])
                    continue
                self._join(batch, at, key, time, value)
            else:
                require_time(time, self.spec.assigner)
            if out.full:
                yield from out.drain()

    def _begin(self, batch: GroupBatch, at: int, key: Any, time: int, value: Any, place: int = 0) -> None:
        """Begin a session with an element that touches none; `place` is where it belongs among those of the key."""
        end = time + self._gap
        due = end - 1
        if self.event_time and due <= self.group.watermark:
            due = self.spec.cleanup_time(due)
            if due <= self.group.watermark:
                self.late(batch, at, self.spec.late_tag)
                return
        session = [time, end, self.fold.first(value)]
        held = self._table.get(key)
        if held is None:
            self._table[key] = [session]
        else:
            held.insert(place, session)
        # With lateness the first session may have fired, and what it waits for may come after the end of a later one.
        if (place == 0 or self._lateness) and due < MAX:
            self.timers.register(due, key)
        self._fire_late(key, session)

    def _join(self, batch: GroupBatch, at: int, key: Any, time: int, value: Any) -> None:
        """Add an element to the sessions it touches, which become one."""
        end, held = time + self._gap, self._table[key]
        stop = len(held)
        while stop and held[stop - 1][0] > end:
            stop -= 1
        first = stop
        while first and held[first - 1][1] >= time:
            first -= 1
        if first == stop:
            self._begin(batch, at, key, time, value, stop)
            return
        session = held[first]
        fired = session[1] - 1 <= self.group.watermark
        for other in held[first + 1 : stop]:
            session[1] = other[1]
            session[2] = self.fold.merge(session[2], other[2])
        del held[first + 1 : stop]
        session[0], session[1] = min(session[0], time), max(session[1], end)
        session[2] = self.fold.add(value, session[2])
        if self.event_time and fired and session[1] - 1 > self.group.watermark:
            self.group.event_timers.register(session[1] - 1, key)
        self._fire_late(key, session)

    def _fire_late(self, key: Any, session: _Session) -> None:
        if self.event_time and session[1] - 1 <= self.group.watermark:
            self._fire(key, session)

    def _fire(self, key: Any, session: _Session) -> None:
        self.firing.fire(key, (session[0], session[1]), session[1] - 1, self.fold.result(session[2]))

    def on_timer(self, time: int, entry: Any, *, event: bool) -> None:
        held = self._table.get(entry)
        if held is None:
            return
        stays, due = [], MAX
        for place, session in enumerate(held):
            last = session[1] - 1
            if last > time:
                stays += held[place:]  # they are in order of their ends
                due = min(due, last)
                break
            if last == time:
                self._fire(entry, session)
            cleanup = self.spec.cleanup_time(last)
            if cleanup <= time:
                self.firing.clear(entry, (session[0], session[1]))
            else:
                stays.append(session)
                due = min(due, cleanup)
        if due < MAX:
            self.timers.register(due, entry)
        if stays:
            self._table[entry] = stays
        else:
            del self._table[entry]


class CountWindowOperator(WindowOperatorBase):
    """Tumbling count windows."""

    def __init__(self, spec: WindowSpec, *, chunk_rows: int = CHUNK_ROWS) -> None:
        super().__init__(spec, chunk_rows=chunk_rows)
        assert isinstance(spec.assigner, CountTumblingWindows)
        self._n = spec.assigner.n
        self._table: dict[Any, list[Any]] = {}

    def bind(self, group: KeyGroup) -> None:
        group.declare(CONTENTS, "counted")
        self._table = group.table(CONTENTS)

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        table, fold, n, out = self._table, self.fold, self._n, self.out
        for key, value in zip(batch.keys, batch.values, strict=True):
            held = table.get(key)
            if held is None:
                held = table[key] = [1, fold.first(value)]
            else:
                held[0] += 1
                held[1] = fold.add(value, held[1])
            if held[0] >= n:
                del table[key]
                self.firing.fire(key, None, MAX, fold.result(held[1]))
                if out.full:
                    yield from out.drain()
