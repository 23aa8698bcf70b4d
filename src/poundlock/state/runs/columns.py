"""Rows of state as Arrow columns: built from lists, cut, joined, put in order, without a look at what they mean.

A row is a hash, an encoded key, an encoded subkey (a window, or nothing), an encoded value (null: it was deleted) and a time in ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, binary_array, indices_of, valid_in

Hashes = npt.NDArray[np.uint64]
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
        indices = indices_of(places)
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


def is_valid(column: pa.Array) -> Flags:
    """Return which values are not null."""
    flags = valid_in(column)
    return np.ones(len(column), np.bool_) if flags is None else flags
