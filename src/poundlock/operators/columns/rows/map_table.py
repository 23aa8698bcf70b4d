"""A table of several entries a key, told apart by subkeys: what runs have, and what changed in this checkpoint.

State is sorted by hash, and all rows of a key that has very many would have its hash. So an entry has the upper half of its key's hash,
which is what its key group follows from, and as the lower half a hash of the subkey: one entry is found without a look at the others,
and all entries of a key lie in one range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import (
    Flags,
    Numbers,
    binary_array,
    column_of,
    flags_in,
    indices_of,
    joined,
    numbers_in,
    ranges,
    valid_in,
)
from poundlock.operators.columns.groups import Hashes
from poundlock.operators.columns.msgpack.values import packed_timed
from poundlock.operators.columns.operator import EncodedRows
from poundlock.operators.columns.rows.keys import HashKeys
from poundlock.operators.columns.rows.table import when_touched
from poundlock.operators.keyed.group import KeyGroup

MAP = "map of "
"""What the kind of such a table begins with."""
LOWER_HALF = np.uint64((1 << 32) - 1)
"""The bits of an entry's hash that follow from its subkey."""


@dataclass(frozen=True, slots=True)
class MapEntries:
    """Entries, or what to look for: each key and subkey once.

    Args:
        hashes: of the entries, ascending, as `entries_of` made them.
        keys: the bytes of each one's key, large_binary.
        subkeys: those of each one's subkey.
    """

    hashes: Hashes
    keys: pa.Array
    subkeys: pa.Array

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, places: Numbers) -> MapEntries:
        """Return entries by their places, ascending."""
        indices = indices_of(places)
        return MapEntries(self.hashes[places], self.keys.take(indices), self.subkeys.take(indices))


def no_entries() -> MapEntries:
    """Return no entries."""
    return MapEntries(np.empty(0, np.uint64), binary_array([]), binary_array([]))


def hashes_within(keys: Hashes) -> tuple[Hashes, Hashes]:
    """Return the least and the greatest hash that entries of each key may have."""
    return keys & ~LOWER_HALF, keys | LOWER_HALF


def entry_hashes(keys: Hashes, subkeys: Hashes) -> Hashes:
    """Return the hashes of entries, given those of their keys and of their subkeys."""
    return (keys & ~LOWER_HALF) | (subkeys & LOWER_HALF)


def entries_of(
    hashes: Hashes, keys: pa.Array, subkeys: pa.Array, hash_keys: HashKeys
) -> tuple[MapEntries, Numbers, Numbers]:
    """Return the different entries of some rows, the first row of each, and which entry each row is of.

    Args:
        hashes: of the rows' keys.
        keys: the bytes of each, large_binary.
        subkeys: the bytes of each row's subkey, likewise.
        hash_keys: the hash of columns.
    """
    codes, different = _numbered(subkeys)
    key_codes, _ = _numbered(keys)
    whole = entry_hashes(hashes, hash_keys([different])[codes])
    _, first, which = np.unique(key_codes * max(len(different), 1) + codes, return_index=True, return_inverse=True)
    order = np.argsort(whole[first], kind="stable")
    at = np.empty(len(order), np.int64)
    at[order] = np.arange(len(order))
    first = first[order]
    rows = indices_of(first)
    return MapEntries(whole[first], keys.take(rows), subkeys.take(rows)), first, at[which]


class MapTable:
    """The entries of a table.

    Args:
        name: of the table.
        kind: what an entry is; it begins with MAP.
        holds: what the bytes of subkeys and values are of.
        ttl_ms: time to live of an entry after it was put, None for ever.
    """

    def __init__(self, name: str, kind: str, holds: tuple[str, ...], ttl_ms: int | None = None) -> None:
        self._name, self._kind, self._holds, self._ttl_ms = name, kind, holds, ttl_ms
        self._changes: list[EncodedRows] = []

    def declare(self, group: KeyGroup) -> None:
        """Say what the table holds; called with each group."""
        group.declare(self._name, self._kind, self._ttl_ms, windowed=True, holds=self._holds)

    def look_up(self, store: Any, wanted: MapEntries) -> tuple[Numbers, pa.Array]:
        """Return the places of those entries that there are, ascending, and the bytes of their values."""
        places, rows = store.look_up(self._name, None, wanted.hashes, wanted.keys)
        same = np.zeros(0, np.int64)
        if len(places):
            same = np.flatnonzero(flags_in(pc.equal(rows.subkeys, wanted.subkeys.take(indices_of(places)))))
        values = rows.values.take(indices_of(same))
        newest = np.full(len(wanted), -1)
        newest[places[same]] = np.arange(len(same))
        parts, behind = [values], len(values)
        for change in self._changes:
            starts, stops = (np.searchsorted(change.hashes, wanted.hashes, side) for side in ("left", "right"))
            own, changed = np.repeat(np.arange(len(wanted)), stops - starts), ranges(starts, stops - starts)
            alike = _same(wanted, own, change, changed)
            newest[own[alike]] = behind + changed[alike]
            parts.append(change.values)
            behind += len(change.values)
        there = np.flatnonzero(newest >= 0)
        return self._alive(store, there, joined(parts).take(indices_of(newest[there])))

    def entries_within(self, store: Any, hashes: Hashes, keys: pa.Array) -> tuple[Numbers, pa.Array, pa.Array]:
        """Return all entries of some keys: the place of each one's key, its subkey, and the bytes of its value.

        Args:
            hashes: of the keys, each of which is there once; in any order.
            keys: the bytes of each, large_binary.
        """
        first, last = hashes_within(hashes)
        places, rows = store.look_up_between(self._name, None, first, last, keys)
        subkeys = rows.subkeys_or_none()
        values = rows.values
        if self._changes:
            all_places, all_subkeys, all_values = [places], [subkeys], [values]
            for change in self._changes:
                starts, stops = np.searchsorted(change.hashes, first), np.searchsorted(change.hashes, last, "right")
                own, changed = np.repeat(np.arange(len(hashes)), stops - starts), ranges(starts, stops - starts)
                alike = flags_in(pc.equal(keys.take(indices_of(own)), change.keys.take(indices_of(changed))))
                indices = indices_of(changed[alike])
                assert change.subkeys is not None
                all_places.append(own[alike])
                all_subkeys.append(change.subkeys.take(indices))
                all_values.append(change.values.take(indices))
            places, subkeys, values = np.concatenate(all_places), joined(all_subkeys), joined(all_values)
            newest = _last_of_each(places, subkeys)
            valid = valid_in(values)
            newest = newest if valid is None else newest[valid[newest]]
            indices = indices_of(newest)
            places, subkeys, values = places[newest], subkeys.take(indices), values.take(indices)
        at, values = self._alive(store, np.arange(len(places)), values)
        return places[at], subkeys.take(indices_of(at)), values

    def is_empty(self, group: KeyGroup) -> bool:
        """Return whether runs have no entry and none has changed."""
        return not self._changes and not group.namespaces(self._name)

    def entries(self, store: Any) -> tuple[MapEntries, pa.Array]:
        """Return all entries, by hash, and the bytes of their values."""
        there = store.entries_of(self._name, None)
        rows = _newest([EncodedRows(there.hashes, there.keys, there.values, there.subkeys_or_none()), *self._changes])
        places, values = self._alive(store, np.arange(len(rows.hashes)), rows.values)
        assert rows.subkeys is not None
        return MapEntries(rows.hashes, rows.keys, rows.subkeys).take(places), values

    def put(self, store: KeyGroup, entries: MapEntries, values: pa.Array) -> None:
        """Set the values of entries; null where one goes away."""
        if not len(entries):
            return
        times = None
        if self._ttl_ms is not None:
            times = np.full(len(entries), store.processing_time, np.int64)
            values = packed_timed(column_of(times, pa.int64()), values)
        self._changes.append(EncodedRows(entries.hashes, entries.keys, values, entries.subkeys, times))

    def store(self, store: Any) -> None:
        """Have what changed written with the checkpoint."""
        changes, self._changes = self._changes, []
        if changes:
            changed = _newest(changes)
            store.append(self._name, None, lambda: changed)

    def drop(self, store: KeyGroup) -> None:
        """Remove all entries."""
        self._changes = []
        store.drop(self._name, None)

    def _alive(self, store: KeyGroup, places: Numbers, values: pa.Array) -> tuple[Numbers, pa.Array]:
        """Return the places of entries that were not removed and are not over, and their values without the time."""
        valid = valid_in(values)
        if valid is not None:
            places, values = places[valid], values.take(indices_of(np.flatnonzero(valid)))
        if self._ttl_ms is None or not len(values):
            return places, values
        touched, values = when_touched(values)
        alive = np.flatnonzero(touched + self._ttl_ms > store.processing_time)
        return places[alive], values.take(indices_of(alive))


def _same(wanted: MapEntries, own: Numbers, rows: EncodedRows, places: Numbers) -> Flags:
    """Return where entries and rows of one hash have one key and subkey."""
    one, other = indices_of(own), indices_of(places)
    assert rows.subkeys is not None
    same = pc.equal(wanted.keys.take(one), rows.keys.take(other))
    return flags_in(pc.and_(same, pc.equal(wanted.subkeys.take(one), rows.subkeys.take(other))))


def _last_of_each(of: Numbers, subkeys: pa.Array) -> Numbers:
    """Return the last place of each number and subkey."""
    codes, different = _numbered(subkeys)
    words = (of * max(len(different), 1) + codes)[::-1]
    last: Numbers = len(words) - 1 - np.unique(words, return_index=True)[1]
    return last


def _newest(parts: list[EncodedRows]) -> EncodedRows:
    """Return of each entry the row that stands last, by hash."""
    if len(parts) == 1:
        return parts[0]
    hashes, keys = np.concatenate([part.hashes for part in parts]), joined([part.keys for part in parts])
    subkeys = joined([part.subkeys for part in parts])
    known = [part.times for part in parts if part.times is not None]
    last = _last_of_each(_numbered(keys)[0], subkeys)
    last = last[np.argsort(hashes[last], kind="stable")]
    rows = indices_of(last)
    times = np.concatenate(known)[last] if len(known) == len(parts) else None
    return EncodedRows(
        hashes[last], keys.take(rows), joined([part.values for part in parts]).take(rows), subkeys.take(rows), times
    )


def _numbered(texts: pa.Array) -> tuple[Numbers, pa.Array]:
    """Return the number of each byte string among the different ones, and those."""
    encoded = texts.dictionary_encode()
    return numbers_in(encoded.indices).astype(np.int64), encoded.dictionary
