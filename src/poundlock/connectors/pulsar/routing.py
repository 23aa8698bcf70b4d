"""Which partition a message goes to: by its number where it has no key, else by the hash that Java's clients use."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_MOST_POSITIVE = 0x7FFF_FFFF


def partitions_for(keys: pa.Array, first: int, count: int) -> npt.NDArray[np.int64]:
    """Return the partition of each message.

    Args:
        keys: texts; null where a message has none.
        first: number of the first message; the others follow.
        count: of partitions.
    """
    chosen = (first + np.arange(len(keys), dtype=np.int64)) % count
    if count == 1 or keys.null_count == len(keys):
        return chosen
    distinct = keys.dictionary_encode()
    hashes = np.array([java_hash(text) & _MOST_POSITIVE for text in distinct.dictionary.to_pylist()], np.int64)
    has = np.asarray(keys.is_valid())
    codes = distinct.indices.fill_null(0).to_numpy().astype(np.int64)
    keyed: npt.NDArray[np.int64] = np.where(has, hashes[codes] % count, chosen)
    return keyed


def java_hash(text: str) -> int:
    """Return String.hashCode of Java's: a polynomial in 31 over UTF-16, of 32 bits."""
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2").astype(np.uint32)
    hashed = 0
    for unit in units.tolist():
        hashed = (31 * hashed + unit) & 0xFFFF_FFFF
    return hashed
