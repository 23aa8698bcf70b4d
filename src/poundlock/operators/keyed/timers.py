"""Timers: each entry fires once for a time, however often it was registered, in the order of time.

Entries of one time fire in the order they were first registered, so that restored timers fire as the lost one would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import Any


class Timers:
    """Entries (a key, or a tuple that begins with one) by time in ms."""

    __slots__ = ("_at", "_due", "_due_time", "_heap")

    def __init__(self) -> None:
        # time -> the only entry, in a tuple of its own, or a dict of several: most event-time timers are alone.
        self._at: dict[int, Any] = {}
        self._heap: list[int] = []
        self._due: dict[Any, None] | None = None
        self._due_time = 0

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._at.values()) + len(self._due or ())

    def __bool__(self) -> bool:
        return bool(self._at) or bool(self._due)

    def register(self, time: int, entry: Any) -> None:
        """Make an entry fire when `time` (ms) is reached; once, even if this is called again."""
        if self._due is not None and time == self._due_time and entry in self._due:
            return
        at = self._at
        entries = at.get(time)
        if entries is None:
            at[time] = (entry,)
            heappush(self._heap, time)
        elif type(entries) is dict:
            entries[entry] = None
        elif entries != (entry,):  # unlike !=, tuples know a NaN that is the very same
            at[time] = {entries[0]: None, entry: None}

    def delete(self, time: int, entry: Any) -> None:
        """Forget a timer; nothing happens if there is none."""
        if self._due is not None and time == self._due_time:
            self._due.pop(entry, None)
        entries = self._at.get(time)
        if entries is None:
            return
        if type(entries) is dict:
            entries.pop(entry, None)
            if entries:
                return
        elif entries != (entry,):
            return
        del self._at[time]  # its place in the heap is passed over

    def next_time(self) -> int | None:
        """Return the time of the earliest timer, None if there is none."""
        heap = self._heap
        while heap and heap[0] not in self._at:
            heappop(heap)
        return heap[0] if heap else None

    def due(self, limit: int) -> Iterator[tuple[int, Any]]:
        """Take out and yield every timer up to a time, those included that are registered meanwhile."""
        at, heap = self._at, self._heap
        while heap and heap[0] <= limit:
            time = heappop(heap)
            entries = at.pop(time, None)
            if entries is None:
                continue
            if type(entries) is tuple:
                yield time, entries[0]
                continue
            self._due, self._due_time = entries, time
            for entry in list(entries):
                if entry in entries:  # it may have been deleted by one that fired before it
                    del entries[entry]
                    yield time, entry
            self._due = None

    def _put_first(self, time: int, entries: dict[Any, None]) -> None:
        """Make entries fire at a time before those that are registered for it already."""
        known = self._at.get(time)
        if known is None:
            heappush(self._heap, time)
        else:
            entries = {**entries, **dict.fromkeys(known)}
        self._at[time] = entries if len(entries) > 1 else tuple(entries)

    def content(self) -> tuple[list[int], list[int], list[Any]]:
        """Return the times in order, how many entries each has, and the entries in the order they will fire."""
        at = self._at
        times = sorted(at)
        return times, [len(at[time]) for time in times], list(chain.from_iterable(map(at.__getitem__, times)))

    def listed(self) -> Iterator[tuple[int, Any]]:
        """Yield time and entry of each timer in the order they will fire."""
        times, counts, entries = self.content()
        return zip(chain.from_iterable(map(repeat, times, counts)), entries, strict=True)
