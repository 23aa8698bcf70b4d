"""State as the operators of a task use it: the keys in use, tables, and timers.

A table is a dict of the entries of the keys in use. Entries are read when their key is prefetched, all of them when the table is gone
through. At the end an entry is written if its bytes are no longer what was read, so a value that was changed in place is not missed.
Timers that were registered in this checkpoint are in memory, the others in runs until they are due. They fire as `Timers` does: by
time, then as they were first registered, at whatever checkpoint that was.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Sequence, ValuesView
from dataclasses import dataclass
from itertools import filterfalse
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.errors import TerminalError
from poundlock.formats.arrays import binary_array
from poundlock.operators.keyed.codec import (
    canonical_key,
    decode,
    decode_each,
    encode,
    encode_each,
    encode_key,
    encode_keys,
    pack,
)
from poundlock.operators.keyed.group import TimerEntries, Timers
from poundlock.state.hashing import first_hash, groups_of, hashes_of
from poundlock.state.manifest import TableMeta
from poundlock.state.runs.columns import NO_TIME, Rows
from poundlock.state.runs.lookup import TableView
from poundlock.state.runs.merge import merge_rows
from poundlock.state.runs.timers import MAX_TIME, TimerView, timer_entries, timer_rows

_CHECKPOINT_BITS = (
    32  # of the order of registration; what was registered in one checkpoint is distinguished by the others
)


@dataclass(frozen=True, slots=True)
class KeyBatch:
    """Keys that were met together, in the order of their hashes."""

    keys: Sequence[Any]
    hashes: npt.NDArray[np.uint64]  # of each, ascending
    encoded: pa.Array  # the bytes of each, large_binary


class KeysInUse:
    """The keys of one operator in one task."""

    def __init__(self, first: int, stop: int, max_parallelism: int) -> None:
        self.batches: list[KeyBatch] = []
        self._first, self._stop, self._groups = first, stop, max_parallelism
        self._low, self._high = first_hash(first, max_parallelism), first_hash(stop, max_parallelism)
        self._places: dict[Any, int] = {}
        self._encoded: list[bytes] = []

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: Any) -> bool:
        return key in self._places

    def add(self, keys: Iterable[Any]) -> None:
        """Take note of keys.

        Raises:
            TerminalError: a key is in a group of another task.
            DefinitionError: a key is of a type that state cannot keep.
        """
        places = self._places
        new = list(filterfalse(places.__contains__, dict.fromkeys(keys)))
        if not new:
            return
        hashes = hashes_of(new)
        encoded = encode_keys(new)
        order = np.argsort(hashes, kind="stable")
        listed = order.tolist()
        ordered = hashes[order]
        self._check(int(ordered[0]), new[listed[0]])
        self._check(int(ordered[-1]), new[listed[-1]])
        self.batches.append(KeyBatch([new[i] for i in listed], ordered, binary_array([encoded[i] for i in listed])))
        places.update(zip(self.batches[-1].keys, range(len(places), len(places) + len(new)), strict=True))
        self._encoded += [encoded[i] for i in listed]

    def _check(self, hash_: int, key: Any) -> None:
        if not self._low <= hash_ < self._high:
            group = int(groups_of(np.array([hash_], np.uint64), self._groups)[0])
            raise TerminalError(
                f"the key {str(key)[:60]!r} of key group {group} came to the task of groups {self._first} to {self._stop - 1}",
                next="report this as a bug: its rows were sent to the wrong task",
            )

    def columns(self, keys: Sequence[Any]) -> tuple[npt.NDArray[np.uint64], list[bytes]]:
        """Return hash and bytes of keys that are in use.

        Raises:
            TerminalError: state was written for a key that was never asked for, so what it had is not known.
        """
        try:
            places = [self._places[key] for key in keys]
        except KeyError as error:
            raise TerminalError(
                f"state was written for the key {str(error.args[0])[:60]!r}, which is not one of the records or timers at work",
                next="report this as a bug",
            ) from None
        hashes = np.concatenate([batch.hashes for batch in self.batches]) if self.batches else np.empty(0, np.uint64)
        encoded = self._encoded
        return hashes[np.array(places, np.int64)], [encoded[place] for place in places]


@dataclass(slots=True)
class TableWork:
    """Counts of what was read and written, over all tables of a task."""

    decoded: int = 0
    encoded: int = 0


class StoredTable(dict[Any, Any]):
    """One table and namespace of an operator in one task; where it is windowed an entry is (key, window).

    Looking an entry up is what it is in a dict; its key must be in use. Going through the table reads the rest of it.
    """

    __slots__ = ("_keys", "_loaded", "_read", "_view", "_whole", "_windowed", "_work")

    def __init__(self, view: TableView | None, keys: KeysInUse, windowed: bool, work: TableWork) -> None:
        super().__init__()
        self._view = view
        self._keys = keys
        self._windowed = windowed
        self._work = work
        self._loaded = 0  # of the batches of keys
        self._whole = view is None
        self._read: dict[Any, bytes] = {}  # what runs have of the entries that were read

    def load(self) -> None:
        """Read the entries of the keys that have come into use since the last call."""
        batches = self._keys.batches
        if self._view is not None and not self._whole:
            for batch in batches[self._loaded :]:
                self._load(self._view, batch)
        self._loaded = len(batches)

    def _load(self, view: TableView, batch: KeyBatch) -> None:
        newest: dict[Any, bytes | None] = {}
        keys = batch.keys
        for result in view.find(batch.hashes, batch.encoded, several=self._windowed):
            values = result.values.to_pylist()
            if not self._windowed:
                newest.update(zip([keys[i] for i in result.places.tolist()], values, strict=True))
                continue
            subkeys = result.subkeys.to_pylist() if result.subkeys is not None else [b""] * len(values)
            for place, subkey, value in zip(result.places.tolist(), subkeys, values, strict=True):
                newest.setdefault((keys[place], canonical_key(decode(subkey))), value)
        self._keep(newest)

    def _keep(self, entries: dict[Any, bytes | None]) -> None:
        there = {entry: data for entry, data in entries.items() if data is not None}
        self._read.update(there)
        self.update(zip(there, decode_each(there.values()), strict=True))
        self._work.decoded += len(there)

    def load_whole(self) -> None:
        """Read every entry, those of keys that are not in use behind the others and by hash."""
        if self._whole:
            return
        self.load()
        self._whole = True
        assert self._view is not None
        rows = merge_rows(self._view.parts, drop_deleted=True)
        known = self._keys
        rest: dict[Any, bytes | None] = {}
        subkeys = rows.subkeys_or_none().to_pylist() if self._windowed else None
        values = rows.values.to_pylist()
        for place, data in enumerate(rows.keys.to_pylist()):
            key = canonical_key(decode(data))
            if key not in known:
                entry = key if subkeys is None else (key, canonical_key(decode(subkeys[place])))
                rest[entry] = values[place]
        # From here on an entry that is gone was deleted, whether its key was in use or not.
        known.add([entry[0] for entry in rest] if self._windowed else rest)
        self._keep(rest)

    def __iter__(self) -> Iterator[Any]:
        self.load_whole()
        return super().__iter__()

    def keys(self) -> KeysView[Any]:  # type: ignore[override]
        self.load_whole()
        return super().keys()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self.load_whole()
        return super().values()

    def items(self) -> ItemsView[Any, Any]:  # type: ignore[override]
        self.load_whole()
        return super().items()

    def __len__(self) -> int:
        self.load_whole()
        return super().__len__()

    def __bool__(self) -> bool:
        return super().__len__() > 0 or (not self._whole and len(self) > 0)

    def __eq__(self, other: object) -> bool:
        self.load_whole()
        return super().__eq__(other)

    def changes(self, meta: TableMeta) -> Rows | None:
        """Return what must be written, in no order: entries that are new or changed, and deletions; None if there is nothing."""
        entries = list(dict.keys(self))
        encoded = encode_each(list(dict.values(self)))
        self._work.encoded += len(encoded)
        read = self._read
        changed = [i for i, data in enumerate(encoded) if read.get(entries[i]) != data]
        deleted = [entry for entry in read if not dict.__contains__(self, entry)]
        if not changed and not deleted:
            return None
        if meta.merges:  # what is written is the whole, so it takes away the parts that older runs have
            deleted = [entries[i] for i in changed] + deleted
        written = [entries[i] for i in changed] + deleted
        values: list[bytes | None] = [encoded[i] for i in changed]
        values += [None] * len(deleted)
        hashes, keys = self._keys.columns([entry[0] for entry in written] if self._windowed else written)
        subkeys = binary_array([encode(pack(entry[1])) for entry in written]) if self._windowed else None
        times = None
        if meta.ttl_ms is not None:
            touched = [_touched(meta.kind, dict.__getitem__(self, entries[i])) for i in changed]
            times = np.array(touched + [NO_TIME] * len(deleted), np.int64)
        return Rows(hashes, binary_array(keys), subkeys, binary_array(values), times)


def _touched(kind: str, stored: Any) -> int:
    """Return when an entry with a time to live, or the newest of its items, was last touched, in ms."""
    items: Sequence[Any] = stored if kind == "list" else list(stored.values()) if kind == "map" else [stored]
    newest: int = max(item[0] for item in items)
    return newest


class StoredTimers(Timers):
    """The timers of one operator and kind in one task.

    Args:
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
