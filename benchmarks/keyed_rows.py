"""The rows of the keyed cases, as columns: time, key and value by the row's number alone, so that every engine gets the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["BASE_MS", "columns_of"]

BASE_MS = 1_545_184_224_000


def columns_of(js: npt.NDArray[np.uint64], half: int, keys: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Return time (ms), number of the key and value, below 1,000, of the rows j and j + half, the two of each j side by side."""
    i = np.ravel(np.column_stack([js, js + np.uint64(half)]))
    j = (i % np.uint64(half)).astype(np.int64)
    key = ((i * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)) % np.uint64(keys)
    return BASE_MS + j // 50 - (j * 7919) % 4000, key.astype(np.int64), (i % np.uint64(1000)).astype(np.int64)
