"""What an operator works on: the state of some keys as tables, their timers, and the watermark and clock they have seen.

This one is in memory alone; that of a task comes from runs and goes into them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from poundlock.errors import TerminalError
from poundlock.operators.keyed.timers import Timers

MIN, MAX = -(1 << 63), (1 << 63) - 1
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
    """

    def __init__(
        self, number: int, *, watermark: int = MIN, processing_time: int = 0, timer_entries: TimerEntries = "keys"
    ) -> None:
        self.number = number
        self.watermark = watermark
        self.processing_time = processing_time
        self.timer_entries = timer_entries
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
        self, name: str, kind: str, ttl_ms: int | None = None, *, windowed: bool = False, broadcast: bool = False
    ) -> None:
        """Say what a table holds; entries with a time to live are kept as [last touched in ms, value].

        Args:
            kind: such as "value", "list", "map".
            ttl_ms: time to live, None for ever.
            windowed: whether its entries are (key, window) rather than keys.
            broadcast: whether it is the same for all tasks, so that one of them keeps it for all.

        Raises:
            TerminalError: the state on disk is of another kind.
        """
        known = self.meta.get(name)
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
        if known is None:
            self.meta[name] = {"kind": kind, "ttl_ms": ttl_ms, "windowed": windowed}
        else:
            known["ttl_ms"] = ttl_ms

    @property
    def event_timers(self) -> Timers:
        """The timers that fire when the watermark reaches them."""
        return self._event

    @property
    def processing_timers(self) -> Timers:
        """The timers that fire when the clock reaches them."""
        return self._processing

    def is_empty(self) -> bool:
        """Return whether there is neither an entry nor a timer."""
        filled = any(table for spaces in self._tables.values() for table in spaces.values())
        return not filled and not self.event_timers and not self.processing_timers
