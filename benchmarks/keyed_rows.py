"""The rows of the keyed cases, as columns: time, key and value by the row's number alone, so that every engine gets the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["BASE_MS", "VALUES", "columns_of"]

BASE_MS, VALUES = 1_545_184_224_000, 1000


def columns_of(rows: int, keys: int, part: int = 0, parts: int = 1) -> tuple[npt.NDArray[np.int64], ...]:
    """Return time in ms, number of the key and value, below VALUES, of rows in the order in which they come.

    Args:
        rows: how many there are, an even number.
        keys: how many keys they have.
        part: which of the parts is returned, 0 the first.
        parts: into how many equal parts all event time is cut.
    """
    half = rows // 2
    js = np.arange(half * part // parts, half * (part + 1) // parts, dtype=np.uint64)
    i = np.ravel(np.column_stack([js, js + np.uint64(half)]))
    j = (i % np.uint64(half)).astype(np.int64)
    key = ((i * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)) % np.uint64(keys)
    return BASE_MS + j // 50 - (j * 7919) % 4000, key.astype(np.int64), (i % np.uint64(VALUES)).astype(np.int64)
