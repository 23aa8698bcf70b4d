"""A table of one entry a key, as operators by columns use it: what runs have, and what changed in this checkpoint.

With a time to live an entry is a list of when it was last touched, in ms, and the value, as it is in state of single records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags, Numbers, binary_array, column_of, ends_in, indices_of, joined
from poundlock.operators.columns.groups import grouped
from poundlock.operators.columns.keys import RowsByKey
from poundlock.operators.columns.operator import CHUNK_ROWS, EncodedRows
from poundlock.operators.columns.records import packed, packed_lists
from poundlock.operators.keyed.codec import decode
from poundlock.operators.keyed.group import KeyGroup

_BEHIND_TIME = 10  # bytes before the value: what begins the list, and a number of 64 bits


class KeyTable:
    """The entries of a table.

    Args:
        name: of the table.
        kind: what an entry is.
        ttl_ms: time to live, None for ever.
    """

    def __init__(self, name: str, kind: str, ttl_ms: int | None = None, holds: tuple[str, ...] = ()) -> None:
        self._name, self._kind, self._ttl_ms, self._holds = name, kind, ttl_ms, holds
        self._changed: EncodedRows | None = None

    def declare(self, group: KeyGroup) -> None:
        """Say what the table holds; called with each group."""
        group.declare(self._name, self._kind, self._ttl_ms, holds=self._holds)

    def is_empty(self, group: KeyGroup) -> bool:
        """Return whether runs have no entry and none has changed."""
        return self._changed is None and not group.namespaces(self._name)

    def look_up(self, store: Any, keys: RowsByKey) -> tuple[Numbers, pa.Array]:
        """Return the numbers of those keys that runs have an entry of, ascending, and the bytes of its value."""
        places, values = store.values_of(self._name, None, keys.hashes, keys.keys)
        alive, values = self._alive(store, values)
        return (places, values) if alive is None else (places[alive], values)

    def put(self, store: KeyGroup, keys: RowsByKey, values: pa.Array, which: Flags | None = None) -> None:
        """Set the values of keys; called once a checkpoint.

        Args:
            values: the bytes of each; null where an entry goes away.
            which: of the keys; None = all.
        """
        hashes, encoded = keys.hashes, keys.keys
        if which is not None:
            rows = np.flatnonzero(which)
            hashes, encoded, values = hashes[rows], encoded.take(indices_of(rows)), values.take(indices_of(rows))
        times = None
        if self._ttl_ms is not None:
            times = np.full(len(hashes), store.processing_time, np.int64)
            values = packed_lists([packed(column_of(times, pa.int64())), values])
        self._changed = EncodedRows(hashes, encoded, values, None, times)

    def store(self, store: Any) -> None:
        """Have what changed written with the checkpoint."""
        changed, self._changed = self._changed, None
        if changed is not None and len(changed.hashes):
            store.append(self._name, None, lambda: changed)

    def drain(self, store: Any) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield the bytes of the keys of all entries, and of their values, by hash; then there are none."""
        there = store.entries_of(self._name, None)
        hashes, keys, values = there.hashes, there.keys, there.values
        changed, self._changed = self._changed, None
        if changed is not None:
            hashes = np.concatenate([hashes, changed.hashes])
            keys, values = joined([keys, changed.keys]), joined([values, changed.values])
            groups = grouped(hashes, keys)
            newest = indices_of(groups.order[groups.starts + groups.counts - 1])
            keys, values = keys.take(newest), values.take(newest)
            keys, values = keys.filter(values.is_valid()), values.drop_null()
        alive, values = self._alive(store, values)
        keys = keys if alive is None else keys.take(indices_of(alive))
        for first in range(0, len(values), CHUNK_ROWS):
            yield keys.slice(first, CHUNK_ROWS), values.slice(first, CHUNK_ROWS)
        store.drop(self._name)

    def _alive(self, store: KeyGroup, values: pa.Array) -> tuple[Numbers | None, pa.Array]:
        """Return which entries are not over, None for all of them, and their values without the time."""
        if self._ttl_ms is None or not len(values):
            return None, values
        touched, values = _split(values)
        alive = np.flatnonzero(touched + self._ttl_ms > store.processing_time)
        return (None, values) if len(alive) == len(values) else (alive, values.take(indices_of(alive)))


def _split(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """Return when entries were last touched, in ms, and the bytes of their values."""
    starts = ends_in(values)[:-1]
    held = np.frombuffer(values.buffers()[2], np.uint8)
    if np.isin(held[starts + 1], (0xCF, 0xD3)).all():  # 64 bits, with a sign or without
        words = np.ndarray((len(held) - 7,), ">i8", held, strides=(1,))
        return words[starts + 2].astype(np.int64), pc.binary_slice(values, _BEHIND_TIME)
    sizes = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD3: 9}
    entries = values.to_pylist()
    touched = np.array([decode(entry)[0] for entry in entries], np.int64)
    return touched, binary_array([entry[1 + sizes.get(entry[1], 1) :] for entry in entries])
