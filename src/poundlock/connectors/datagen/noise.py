"""Numbers that look random and are a function of (seed, stream, row) alone, for many rows at once.

There is no state: any row can be made by any task in any order, and comes out the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def words(seed: int, stream: int, start: int, stop: int) -> Words:
    """Return 64 random bits for each row from `start` to `stop`. Streams of one seed do not resemble each other."""
    key = _mix((_mix(seed & _MASK) + stream * _GOLDEN + 1) & _MASK)
    x = np.arange(start, stop, dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = x * np.uint64(_GOLDEN) + np.uint64(key)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
