"""Eight bytes at a time: bytes from any position on as one number, the first in the lowest bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

SIZE = 8
"""Bytes of a word."""


def words_in(data: npt.NDArray[np.uint8]) -> Words:
    """Return the eight bytes from each position on, without a copy; the last position is that of the last eight bytes, if there are so many."""
    return np.ndarray((max(len(data) - SIZE + 1, 0),), "<u8", data, strides=(1,))


def words_at(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> Words:
    """Return the eight bytes from each of some positions on; behind the data are zeros.

    Args:
        data: of eight bytes at least.
        at: ascending.
    """
    words = words_in(data)
    last = len(words) - 1
    if int(at[-1]) <= last:
        return words[at]
    some = words[np.minimum(at, last)]
    for row in range(int(np.searchsorted(at, last, "right")), len(at)):
        some[row] = int.from_bytes(data[int(at[row]) :].tobytes(), "little")
    return some


if hasattr(np, "bitwise_count"):

    def byte_of_bit(bits: Words) -> npt.NDArray[np.int64]:
        """Return in which byte, counted from 1, each word has its only bit, which is the top one of the byte; 8 for no bit."""
        counts: npt.NDArray[np.int64] = ((np.bitwise_count(bits - np.uint64(1)) + np.uint8(1)) >> np.uint8(3)).astype(
            np.int64
        )
        return counts

else:  # numpy 1

    def byte_of_bit(bits: Words) -> npt.NDArray[np.int64]:
        """Return in which byte, counted from 1, each word has its only bit, which is the top one of the byte; 8 for no bit."""
        exponent = np.frexp(bits.astype(np.float64))[1].astype(np.int64)  # exact: a power of two, or zero
        counts: npt.NDArray[np.int64] = np.where(exponent == 0, 8, exponent >> 3)
        return counts
