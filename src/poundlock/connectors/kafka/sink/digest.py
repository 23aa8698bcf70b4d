"""The digest of messages, by columns: what writes them and what reads them back make the same.

It does not depend on the order of messages and is the same in every process and version, so that what is produced again can be compared
with what was lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from poundlock.connectors.kafka.wire.byte_strings import ByteStrings, Integers, of_list
from poundlock.connectors.reconcile import SumDigest
from poundlock.state.hashing import KeyKind, combined_hashes, hashes_of_numbers

NO_TIME = -(1 << 63)
"""Stands for the time of a message whose row gives none."""
_TOMBSTONE = np.uint64(0x9E3779B97F4A7C15)  # the hash of null: that of no bytes is 0
_Hashes = npt.NDArray[np.uint64]


class Digest(SumDigest):
    """The sum of a hash of each message."""

    __slots__ = ()

    def add(
        self,
        values: ByteStrings,
        *,
        keys: ByteStrings | None = None,
        headers: ByteStrings | None = None,
        topics: str | Sequence[str] | None = None,
        partitions: Integers | None = None,
        times_ms: Integers | None = None,
    ) -> None:
        """Add messages: their values, and what else is to count. A part that a message does not have does not change its hash.

        Args:
            values: null for a tombstone.
            keys: null where there is none.
            headers: as `encode_headers` gives them.
            topics: the topic of all, or of each.
            partitions: -1 where it does not count.
            times_ms: NO_TIME where it does not count.
        """
        hashes = values.hashes()
        if values.null is not None:
            hashes[values.null] = _TOMBSTONE
        if keys is not None:
            hashes = _with(hashes, keys.hashes(), keys.null)
        if headers is not None:
            hashes = _with(hashes, headers.hashes(KeyKind.OTHER), headers.length <= 1)
        if topics is not None:
            names = [topics] if isinstance(topics, str) else topics
            hashes = _with(hashes, of_list([name.encode() for name in names]).hashes(KeyKind.TEXT), None)
        if partitions is not None:
            hashes = _with(hashes, hashes_of_numbers(partitions, KeyKind.INT), partitions < 0)
        if times_ms is not None:
            hashes = _with(hashes, hashes_of_numbers(times_ms, KeyKind.TIMESTAMP), times_ms == NO_TIME)
        self._sum += int(hashes.sum(dtype=np.uint64))  # that it wraps is what the digest is
        self.rows += len(values)
        self.bytes += int(values.length.sum())


def _with(hashes: _Hashes, part: _Hashes, missing: npt.NDArray[np.bool_] | None) -> _Hashes:
    both = combined_hashes([hashes, np.broadcast_to(part, hashes.shape)])
    return both if missing is None else np.where(missing, hashes, both)
