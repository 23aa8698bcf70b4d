"""Rows of state as Arrow columns: built from lists, cut, joined, put in order, without a look at what they mean.

A row is a hash, an encoded key, an encoded subkey (a window, or nothing), an encoded value (null: it was deleted) and a time in ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import binary_array

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NO_TIME = -(1 << 63)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of state."""

    hashes: Hashes  # of the keys
    keys: pa.Array  # the encoded keys, large_binary
    subkeys: pa.Array | None  # what tells the entries of a key apart, large_binary; None: every key has one entry
    values: pa.Array  # the encoded values, large_binary; null where an entry was deleted
    # in ms: of a timer, or when state with a time to live was last touched; None: there are none
    times: Numbers | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        """About how long they are in a file."""
        texts = self.keys.nbytes + self.values.nbytes + (0 if self.subkeys is None else self.subkeys.nbytes)
        return int(texts) + len(self) * (8 if self.times is None else 16)

    def slice(self, start: int, stop: int) -> Rows:
        """Return some of the rows, without a copy."""
        return Rows(
            self.hashes[start:stop],
            self.keys.slice(start, stop - start),
            None if self.subkeys is None else self.subkeys.slice(start, stop - start),
            self.values.slice(start, stop - start),
            None if self.times is None else self.times[start:stop],
        )

    def take(self, places: Numbers) -> Rows:
        """Return rows by their places."""
        indices = as_indices(places)
        return Rows(
            self.hashes[places],
            self.keys.take(indices),
            None if self.subkeys is None else self.subkeys.take(indices),
            self.values.take(indices),
            None if self.times is None else self.times[places],
        )

    def with_values(self, values: pa.Array) -> Rows:
        """Return the rows with other values."""
        return Rows(self.hashes, self.keys, self.subkeys, values, self.times)

    def without_deleted(self) -> Rows:
        """Return the rows that have a value."""
        return self.take(np.flatnonzero(is_valid(self.values))) if self.values.null_count else self

    def subkeys_or_none(self) -> pa.Array:
        """Return the subkeys; empty ones where there are none."""
        return _blank(len(self)) if self.subkeys is None else self.subkeys

    def times_or_none(self) -> Numbers:
        """Return the times; NO_TIME where there are none."""
        return np.full(len(self), NO_TIME, np.int64) if self.times is None else self.times


def empty_rows() -> Rows:
    """Return no rows."""
    return Rows(np.empty(0, np.uint64), binary_array([]), None, binary_array([]))


def concat(parts: Sequence[Rows]) -> Rows:
    """Return the rows of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return empty_rows()
    return Rows(
        np.concatenate([part.hashes for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        None if all(p.subkeys is None for p in parts) else pa.concat_arrays([p.subkeys_or_none() for p in parts]),
        pa.concat_arrays([part.values for part in parts]),
        None if all(p.times is None for p in parts) else np.concatenate([p.times_or_none() for p in parts]),
    )


def _blank(n: int) -> pa.Array:
    """Return n empty byte strings."""
    return pa.Array.from_buffers(
        pa.large_binary(), n, [None, pa.py_buffer(np.zeros(n + 1, np.int64)), pa.py_buffer(b"")], 0
    )


def as_array(numbers: Any, kind: pa.DataType) -> pa.Array:
    """Return numbers of an Arrow type as an Arrow array, without pandas being imported."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))], 0)


def as_indices(places: Any) -> pa.Array:
    """Return places as an Arrow array."""
    return as_array(np.asarray(places, np.int64), pa.int64())


def as_numbers(column: pa.Array, kind: Any) -> Any:
    """Return the fixed-width values of a column as they lie in memory, those at nulls included."""
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column), kind)
    return np.frombuffer(data, kind)[column.offset : column.offset + len(column)]


def as_flags(column: pa.Array) -> Flags:
    """Return an Arrow column of truth values without nulls as numpy's, without pandas being imported."""
    return as_numbers(pc.cast(column, pa.uint8()), np.uint8).astype(np.bool_)  # type: ignore[no-any-return]


def is_valid(column: pa.Array) -> Flags:
    """Return which values are not null."""
    return as_flags(column.is_valid()) if column.null_count else np.ones(len(column), np.bool_)


def byte_order(column: pa.Array) -> Numbers:
    """Return a number for each byte string: equal for equal ones, and in their order."""
    if not len(column):
        return np.empty(0, np.int64)
    encoded = column.dictionary_encode()
    order = as_numbers(pc.sort_indices(encoded.dictionary), np.uint64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    result: Numbers = rank[as_numbers(encoded.indices, np.int32)]
    return result
