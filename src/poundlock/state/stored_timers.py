"""Timers of a task: those that were registered in this checkpoint in memory, the others in runs until they are due.

They fire as `Timers` does: by time, then as they were first registered, at whatever checkpoint that was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from poundlock.operators.keyed.codec import canonical_key, decode, encode, encode_key, pack
from poundlock.operators.keyed.group import TimerEntries, Timers
from poundlock.state.keys_in_use import KeysInUse
from poundlock.state.runs.columns import Rows, binary_array
from poundlock.state.runs.timers import MAX_TIME, TimerView, timer_entries, timer_rows

_CHECKPOINT_BITS = 32  # of the order of registration; what was registered in one checkpoint is told apart by the others


class StoredTimers(Timers):
    """The timers of one operator and kind in one task.

    Args:
        view: the timers in runs.
        prefetch: is given the keys whose timers are about to fire.
        entries: returns what timers are registered for; asked when it is needed, as the operator sets it when it begins.
    """

    __slots__ = ("_deleted", "_entries", "_fired", "_prefetch", "_view")

    def __init__(
        self, view: TimerView, prefetch: Callable[[Sequence[Any]], None], entries: Callable[[], TimerEntries]
    ) -> None:
        super().__init__()
        self._view = view
        self._prefetch = prefetch
        self._entries = entries
        self._fired: int | None = None  # up to which time the timers in runs were taken out
        self._deleted: dict[tuple[int, Any], None] = {}

    def delete(self, time: int, entry: Any) -> None:
        """Remove a timer; nothing happens if there is none."""
        super().delete(time, entry)
        if self._view and (self._fired is None or time > self._fired):
            self._deleted[time, entry] = None

    def due(self, limit: int) -> Iterator[tuple[int, Any]]:
        """Take out and yield every timer up to a time, those included that are registered meanwhile."""
        if self._view and (self._fired is None or limit > self._fired):
            self._take_out(limit)
        waiting = [entry for time, entries in self._at.items() if time <= limit for entry in entries]
        if waiting and self._entries() != "windows":
            self._prefetch([entry[0] for entry in waiting] if self._windowed() else waiting)
        return super().due(limit)

    def _windowed(self) -> bool:
        return self._entries() == "keys and windows"

    def _take_out(self, limit: int) -> None:
        """Put the timers in runs up to a time before those in memory that have the same time."""
        stored: dict[int, dict[Any, None]] = {}
        for time, entry in self._listed_in_runs(self._fired, limit):
            stored.setdefault(time, {})[entry] = None
        self._fired = limit
        for time, entries in stored.items():
            self._put_first(time, entries)

    def next_time(self) -> int | None:
        """Return the time of the earliest timer, None if there is none."""
        stored = self._view.first_time(self._fired, self._deleted_bytes()) if self._view else None
        known = super().next_time()
        return known if stored is None else stored if known is None else min(stored, known)

    def __len__(self) -> int:
        return sum(1 for _ in self.listed())

    def __bool__(self) -> bool:
        return super().__bool__() or self.next_time() is not None

    def listed(self) -> Iterator[tuple[int, Any]]:
        """Yield time and entry of each timer in the order they will fire."""
        stored = list(self._listed_in_runs(self._fired, MAX_TIME)) if self._view else []
        there = set(stored)
        both = stored + [timer for timer in super().listed() if timer not in there]
        yield from sorted(both, key=lambda timer: timer[0])

    def _listed_in_runs(self, after: int | None, limit: int) -> Iterator[tuple[int, Any]]:
        windowed = self._windowed()
        for time, data, subkey in timer_entries(self._view.due(after, limit)):
            key = canonical_key(decode(data))
            entry = (key, canonical_key(decode(subkey))) if windowed else key
            if (time, entry) not in self._deleted:
                yield time, entry

    def _deleted_bytes(self) -> set[tuple[int, bytes, bytes]]:
        return {(time, *self._entry_bytes(entry)) for time, entry in self._deleted}

    def _entry_bytes(self, entry: Any) -> tuple[bytes, bytes]:
        return (encode_key(entry[0]), encode(pack(entry[1]))) if self._windowed() else (encode_key(entry), b"")

    def fired_up_to(self) -> int | None:
        """Return up to what time in ms the timers in runs are gone; None if they are all there."""
        return self._fired

    def changes(self, keys: KeysInUse, checkpoint: int) -> Rows | None:
        """Return the timers that were registered or deleted, as rows in order; None if there are none.

        Args:
            keys: those in use.
            checkpoint: its number, which begins the order of registration.
        """
        times, counts, entries = self.content()
        deleted = list(self._deleted)
        if not entries and not deleted:
            return None
        written = entries + [entry for _, entry in deleted]
        windowed = self._windowed()
        hashes, encoded = keys.columns([entry[0] for entry in written] if windowed else written)
        subkeys = binary_array([encode(pack(entry[1])) for entry in written]) if windowed else None
        of_deleted = np.array([time for time, _ in deleted], np.int64)
        whole = np.concatenate([np.repeat(np.array(times, np.int64), counts), of_deleted])
        first = checkpoint << _CHECKPOINT_BITS
        registered: list[int | None] = list(range(first, first + len(entries)))
        registered += [None] * len(deleted)
        return timer_rows(hashes, binary_array(encoded), subkeys, whole, registered)
