"""Session windows of one gap that fire at their end and need no evictor: a key's sessions are one short list.

A key has a timer at or before the next thing that happens to any of its sessions; one that comes early is set again. So an
element that extends its session touches no timer.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Any

from poundlock.operators.keyed.group import MAX, KeyGroup
from poundlock.operators.keyed.output import CHUNK_ROWS, Batch, OutputChunk
from poundlock.operators.keyed.timers import Timers
from poundlock.operators.windows.base import WindowOperatorBase
from poundlock.operators.windows.spec import WindowSpec
from poundlock.stream.assigners import require_time
from poundlock.stream.session_windows import ProcessingTimeSessionWindows
from poundlock.stream.windows import EventTimeSessionWindows

__all__ = ["SessionWindowOperator"]

SESSIONS = "contents"
_Session = list[Any]  # [start, end, accumulator]


class SessionWindowOperator(WindowOperatorBase):
    """Sessions of a fixed gap with the default trigger."""

    def __init__(self, spec: WindowSpec, *, chunk_rows: int = CHUNK_ROWS) -> None:
        super().__init__(spec, chunk_rows=chunk_rows)
        assert isinstance(spec.assigner, (EventTimeSessionWindows, ProcessingTimeSessionWindows))
        self._gap = spec.assigner.gap_ms
        self._table: dict[Any, list[_Session]] = {}

    def bind(self, group: KeyGroup) -> None:
        group.declare(SESSIONS, "sessions")
        self._table = group.table(SESSIONS)

    def _timers(self) -> Timers:
        return self.group.event_timers if self.event_time else self.group.processing_timers

    def work(self, batch: Batch) -> Iterator[OutputChunk]:
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

    def _begin(self, batch: Batch, at: int, key: Any, time: int, value: Any) -> None:
        """Begin a session with an element that touches none."""
        end = time + self._gap
        if not self.event_time:
            self.group.processing_timers.register(end - 1, key)
        elif end - 1 > self.group.watermark:
            self.group.event_timers.register(end - 1, key)
        else:
            cleanup = self.spec.cleanup_time(end - 1)
            if cleanup <= self.group.watermark:
                self.late(batch, at)
                return
            if cleanup < MAX:
                self.group.event_timers.register(cleanup, key)
        session = [time, end, self.fold.first(value)]
        held = self._table.get(key)
        if held is None:
            self._table[key] = [session]
        else:
            insort(held, session, key=_start)
        self._fire_late(key, session)

    def _join(self, batch: Batch, at: int, key: Any, time: int, value: Any) -> None:
        """Add an element to the sessions it touches, which become one."""
        end, held = time + self._gap, self._table[key]
        touching = [s for s in held if s[0] <= end and time <= s[1]]
        if not touching:
            self._begin(batch, at, key, time, value)
            return
        session, fired = self._merge(held, touching)
        session[0], session[1] = min(session[0], time), max(session[1], end)
        session[2] = self.fold.add(value, session[2])
        if self.event_time and fired and session[1] - 1 > self.group.watermark:
            self.group.event_timers.register(session[1] - 1, key)
        self._fire_late(key, session)

    def _fire_late(self, key: Any, session: _Session) -> None:
        if self.event_time and session[1] - 1 <= self.group.watermark:
            self._fire(key, session)

    def _merge(self, held: list[_Session], touching: list[_Session]) -> tuple[_Session, bool]:
        """Make one session of several that an element joins; return it, and whether any of them had fired."""
        session = touching[0]
        fired = any(s[1] - 1 <= self.group.watermark for s in touching)
        for other in touching[1:]:
            session[1] = max(session[1], other[1])
            session[2] = self.fold.merge(session[2], other[2])
            held.remove(other)
        return session, fired

    def _fire(self, key: Any, session: _Session) -> None:
        self.firing.fire(key, (session[0], session[1]), session[1] - 1, self.fold.result(session[2]))

    def on_timer(self, time: int, entry: Any, *, event: bool) -> None:
        key = entry
        timers, stays = self._timers(), []
        for session in self._table.get(key, ()):
            last = session[1] - 1
            cleanup = self.spec.cleanup_time(last)
            if last == time:
                self._fire(key, session)
            if cleanup <= time:
                self.firing.clear(key, (session[0], session[1]))
                continue
            stays.append(session)
            if last > time or cleanup < MAX:
                timers.register(last if last > time else cleanup, entry)
        if stays:
            self._table[key] = stays
        else:
            self._table.pop(key, None)


def _start(session: _Session) -> int:
    start: int = session[0]
    return start
