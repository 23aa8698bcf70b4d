"""A table of one entry a key, as operators by columns use it: what runs have, and what changed in this checkpoint.

With a time to live an entry is a list of when it was last touched, in ms, and the value, as it is in state of single records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Numbers, column_of, flags_in, indices_of, joined, numbers_in, ranges, valid_in
from poundlock.operators.columns.groups import Hashes, grouped
from poundlock.operators.columns.msgpack.cursor import Cursor
from poundlock.operators.columns.msgpack.values import packed_timed
from poundlock.operators.columns.msgpack.writing import list_head
from poundlock.operators.columns.operator import EncodedRows, Slice
from poundlock.operators.columns.rows.keys import RowsByKey
from poundlock.operators.keyed.group import KeyGroup


class KeyTable:
    """The entries of a table.

    Args:
        name: of the table.
        kind: what an entry is.
        ttl_ms: time to live, None for ever.
        holds: what an entry is of, where it does not say so itself.
        namespace: the stretch of time that the entries belong to; None where there is none.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        ttl_ms: int | None = None,
        holds: tuple[str, ...] = (),
        namespace: Slice | None = None,
    ) -> None:
        self._name, self._kind, self._ttl_ms, self._holds, self._namespace = name, kind, ttl_ms, holds, namespace
        self._changes: list[EncodedRows] = []

    def declare(self, group: KeyGroup) -> None:
        """Say what the table holds; called with each group."""
        group.declare(self._name, self._kind, self._ttl_ms, holds=self._holds)

    def is_empty(self, group: KeyGroup) -> bool:
        """Return whether runs have no entry and none has changed."""
        return not self._changes and not group.namespaces(self._name)

    def look_up(self, store: Any, keys: RowsByKey) -> tuple[Numbers, pa.Array]:
        """Return the numbers of those keys that have an entry, ascending, and the bytes of its value.

        Of a key that rows of this checkpoint had before, what was put then is true.
        """
        places, values = store.values_of(self._name, self._namespace, keys.hashes, keys.keys)
        if self._changes:
            places, values = self._changed(keys, places, values)
        alive, values = self._alive(store, values)
        return (places, values) if alive is None else (places[alive], values)

    def _changed(self, keys: RowsByKey, places: Numbers, values: pa.Array) -> tuple[Numbers, pa.Array]:
        """Return the entries of keys, where some that runs have are no longer what they were."""
        newest = np.full(len(keys), -1)
        newest[places] = np.arange(len(places))
        parts, behind = [values], len(values)
        for change in self._changes:
            own, rows = _same_keys(keys, change)
            newest[own] = behind + rows
            parts.append(change.values)
            behind += len(change.values)
        every = joined(parts)
        there = newest >= 0
        alive = valid_in(every)
        if alive is not None:
            there &= alive[newest]
        places = np.flatnonzero(there)
        return places, every.take(indices_of(newest[places]))

    def put(self, store: KeyGroup, hashes: Hashes, keys: pa.Array, values: pa.Array) -> None:
        """Set the values of keys.

        Args:
            hashes: of the keys; each key is there once.
            keys: the bytes of each.
            values: the bytes of each; null where an entry goes away, which one with a time to live does by itself.
        """
        if not len(hashes):
            return
        times = None
        if self._ttl_ms is not None:
            times = np.full(len(hashes), store.processing_time, np.int64)
            values = packed_timed(column_of(times, pa.int64()), values)
        self._changes.append(EncodedRows(hashes, keys, values, None, times))

    def store(self, store: Any) -> None:
        """Have what changed written with the checkpoint."""
        changes, self._changes = self._changes, []
        if changes:
            changed = _newest(changes)
            store.append(self._name, self._namespace, lambda: changed)

    def entries(self, store: Any) -> EncodedRows:
        """Return all entries, by hash."""
        there = store.entries_of(self._name, self._namespace)
        rows = EncodedRows(there.hashes, there.keys, there.values)
        if self._changes:
            rows = _newest([rows, *self._changes])
            there = valid_in(rows.values)
            rows = rows if there is None else _rows(rows, np.flatnonzero(there))
        alive, values = self._alive(store, rows.values)
        return (rows if alive is None else _rows(rows, alive))._replace(values=values)

    def drop(self, store: KeyGroup) -> None:
        """Remove all entries."""
        self._changes = []
        store.drop(self._name, self._namespace)

    def _alive(self, store: KeyGroup, values: pa.Array) -> tuple[Numbers | None, pa.Array]:
        """Return which entries are not over, None for all of them, and their values without the time."""
        if self._ttl_ms is None or not len(values):
            return None, values
        touched, values = when_touched(values)
        alive = np.flatnonzero(touched + self._ttl_ms > store.processing_time)
        return (None, values) if len(alive) == len(values) else (alive, values.take(indices_of(alive)))


def _same_keys(keys: RowsByKey, rows: EncodedRows) -> tuple[Numbers, Numbers]:
    """Return which keys have a row, and which row: each has one at most, and both are by hash."""
    starts, stops = (np.searchsorted(rows.hashes, keys.hashes, side) for side in ("left", "right"))
    counts = stops - starts  # more than one where keys share a hash
    own, places = np.repeat(np.arange(len(keys)), counts), ranges(starts, counts)
    same = flags_in(pc.equal(keys.keys.take(indices_of(own)), rows.keys.take(indices_of(places))))
    return own[same], places[same]


def when_touched(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """Return when entries were last touched, in ms, and the bytes of their values."""
    cursor = Cursor(values)
    cursor.skip(list_head(2))
    return numbers_in(cursor.integers()), cursor.rest()


def _newest(parts: list[EncodedRows]) -> EncodedRows:
    """Return of each key the row that stands last, by hash."""
    if len(parts) == 1:
        return parts[0]
    hashes, keys = np.concatenate([part.hashes for part in parts]), joined([part.keys for part in parts])
    known = [part.times for part in parts if part.times is not None]
    times = np.concatenate(known) if len(known) == len(parts) else None
    rows = EncodedRows(hashes, keys, joined([part.values for part in parts]), None, times)
    groups = grouped(hashes, keys)
    return _rows(rows, groups.order[groups.starts + groups.counts - 1])


def _rows(rows: EncodedRows, places: Numbers) -> EncodedRows:
    indices = indices_of(places)
    times = None if rows.times is None else rows.times[places]
    return EncodedRows(rows.hashes[places], rows.keys.take(indices), rows.values.take(indices), None, times)
