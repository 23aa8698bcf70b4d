"""What an operator works on: the state of some keys as tables, their timers, and the watermark and clock they have seen.

Each timer fires once for a time, however often it was registered, in the order of time; those of one time fire in the order they
were first registered, so that restored timers fire as the lost one would have. A group here is in memory alone; that of a task
comes from runs and goes into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import Any, Literal

from poundlock.errors import TerminalError


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


MIN, MAX = -(1 << 63), (1 << 63) - 1
_ALL_KEYS = (MAX, MAX)
"""The entry of a timer that is of all keys: that of the end of the input."""
Table = dict[Any, Any]
TimerEntries = Literal["keys", "windows", "keys and windows"]


class KeyGroup:
    """State of one key group.

    A table is named by a text and, where its content belongs to a window as a whole, by that window as its namespace. Within
    it an entry is a key, or (key, window). A window is (start, end) in ms, None for
    the global one, or the number of a count window.

    Args:
        watermark: event time in ms that the group's elements are judged by.
        processing_time: the clock in ms as of the last call.
        timer_entries: what timers are registered for: keys, windows of all keys, or (key, window).
        arrived: how many places in the order of rows are taken, where rows are numbered as they come.
    """

    def __init__(
        self, number: int, *, watermark: int = MIN, processing_time: int = 0, timer_entries: TimerEntries = "keys"
    ) -> None:
        self.number = number
        self.watermark = watermark
        self.processing_time = processing_time
        self.clock_before = MIN
        """The clock in ms as of the last checkpoint in which the group was worked on; MIN where there was none."""
        self.timer_entries = timer_entries
        self.arrived = 0
        self.meta: dict[str, dict[str, Any]] = {}
        self._tables: dict[str, dict[Any, Table]] = {}
        self._event, self._processing = Timers(), Timers()

    def table(self, name: str, namespace: Any = None) -> Table:
        """Return a table, an empty one if there is none yet. It may be changed."""
        return self._tables.setdefault(name, {}).setdefault(namespace, {})

    def prefetch(self, keys: Iterable[Any]) -> None:
        """Make the entries of some keys ready to be looked up; called before a key's entries are read. Here all of them are."""

    def namespaces(self, name: str) -> list[Any]:
        """Return the namespaces of a table's name."""
        return list(self._tables.get(name, ()))

    def drop(self, name: str, namespace: Any = None) -> None:
        """Forget a table."""
        self._tables.get(name, {}).pop(namespace, None)

    def declare(
        self,
        name: str,
        kind: str,
        ttl_ms: int | None = None,
        *,
        windowed: bool = False,
        broadcast: bool = False,
        merges: tuple[str, ...] = (),
        holds: tuple[str, ...] = (),
        replaces: tuple[str, ...] = (),
    ) -> None:
        """Say what a table holds; entries with a time to live are kept as [last touched in ms, value].

        Args:
            kind: such as "value", "list", "map".
            ttl_ms: time to live, None for ever.
            windowed: whether its entries are (key, window) rather than keys.
            broadcast: whether it is the same for all tasks, so that one of them keeps it for all.
            merges: where each checkpoint puts rows beside those before it, the aggregates that the rows of a key are parts of, or
                the columns of rows that all count.
            holds: what an entry is of, where it does not say so itself: aggregates, or an order.
            replaces: kinds that the table may have been of: whoever declares it knows what to do with their entries.

        Raises:
            TerminalError: the state on disk is of another kind.
        """
        known = self.meta.get(name)
        if known is not None and known["kind"] in replaces:
            known = None
        if known is not None and known["kind"] != kind:
            raise TerminalError(
                f"state {name!r} is kept as {known['kind']} state and asked for as {kind} state",
                next="give the new state another name, or start from an empty checkpoint",
            )
        if known is not None and (known["ttl_ms"] is None) != (ttl_ms is None):
            raise TerminalError(
                f"state {name!r} was written {'with' if ttl_ms is None else 'without'} a time to live",
                next="keep its ttl as it was, or give the new state another name",
            )
        for of, asked in (("merges", merges), ("holds", holds)):
            if known is not None and tuple(known[of]) != asked:
                raise TerminalError(
                    f"state {name!r} holds {', '.join(known[of]) or 'others'}, and {', '.join(asked) or 'others'} are asked for",
                    next="give the step another name, which begins with no state, or let it compute what it did",
                )
        if known is None:
            self.meta[name] = {
                "kind": kind,
                "ttl_ms": ttl_ms,
                "windowed": windowed,
                "merges": merges,
                "holds": holds,
            }
        else:
            known["ttl_ms"] = ttl_ms

    def merging(self, kind: str) -> dict[str, tuple[str, ...]]:
        """Return the tables of a kind that there are and what their rows are parts of, see `declare`."""
        return {name: tuple(meta["merges"]) for name, meta in self.meta.items() if meta["kind"] == kind}

    @property
    def event_timers(self) -> Timers:
        """The timers that fire when the watermark reaches them."""
        return self._event

    @property
    def processing_timers(self) -> Timers:
        """The timers that fire when the clock reaches them."""
        return self._processing

    def wake_at_end(self, entry: Any = _ALL_KEYS) -> None:
        """Have the group worked on at the end of a bounded input, even if none of its keys has a record by then.

        Args:
            entry: one of those that its timers are registered for.
        """
        self.event_timers.register(MAX, entry)

    def is_empty(self) -> bool:
        """Return whether there is neither an entry nor a timer."""
        filled = any(table for spaces in self._tables.values() for table in spaces.values())
        return not filled and not self.event_timers and not self.processing_timers
