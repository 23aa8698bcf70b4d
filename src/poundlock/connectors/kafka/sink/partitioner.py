"""Which partition a message goes to: the one its row names, that of its key's hash, or one in turn for many messages at a time."""

from __future__ import annotations

import random
import zlib

import numpy as np
import numpy.typing as npt

from poundlock.connectors.kafka.wire.byte_strings import ByteStrings, Integers

_SEED, _M = 0x9747B28C, np.uint32(0x5BD1E995)
_AT_ONCE = 1 << 14
_Words = npt.NDArray[np.uint32]


class Partitioner:
    """Chooses among the partitions of one topic; `kind` is as the option `partitioner` of librdkafka has it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._turn = random.randrange(1 << 20)

    def choose(
        self, keys: ByteStrings | None, given: Integers | None, sizes: Integers, count: int, led: Integers, at_once: int
    ) -> Integers:
        """Return the partition of each message.

        Args:
            keys: of the messages; None: no message has one.
            given: the partitions that rows name, -1 where one names none; None: no row does.
            sizes: the bytes of each message.
            count: how many partitions the topic has.
            led: those that have a leader.
            at_once: about how many bytes go to one partition before it is the turn of the next.
        """
        if keys is None and given is None:
            return self._in_turn(sizes, led, at_once)
        partition = np.full(len(sizes), -1, np.int64) if given is None else given.copy()
        if keys is not None and self._kind != "random":
            by_key = partition < 0
            if self._kind.endswith("_random") and keys.null is not None:
                by_key &= ~keys.null
            if self._kind == "consistent_random":
                by_key &= keys.length > 0
            rows = np.flatnonzero(by_key)
            if len(rows):
                partition[rows] = self._hashes(keys.take(rows)) % count
        rows = np.flatnonzero(partition < 0)
        if len(rows):
            partition[rows] = self._in_turn(sizes[rows], led, at_once)
        return partition

    def _hashes(self, keys: ByteStrings) -> Integers:
        if self._kind.startswith("consistent"):
            return np.array([zlib.crc32(keys.at(row) or b"") for row in range(len(keys))], np.int64)
        return murmur2(keys).astype(np.int64) & 0x7FFFFFFF

    def _in_turn(self, sizes: Integers, led: Integers, at_once: int) -> Integers:
        before = np.cumsum(sizes) - sizes
        total = int(before[-1] + sizes[-1])
        turns = -(-total // at_once)
        cuts = np.searchsorted(before, np.arange(turns) * total // turns)
        chosen = led[(self._turn + np.arange(turns)) % len(led)]
        self._turn += turns
        partitions: Integers = np.repeat(chosen, np.diff(cuts, append=len(sizes)))
        return partitions


def murmur2(keys: ByteStrings) -> _Words:
    """Return the hash that Java's clients choose partitions by, of each key; null is as empty."""
    start, length = keys.start, keys.length
    data = np.concatenate([keys.data, np.zeros(4, np.uint8)])
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    out = np.empty(len(length), np.uint32)
    for first in range(0, len(length), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        out[some] = _of_some(words, start[some], length[some])
    return out


def _of_some(words: _Words, start: Integers, length: Integers) -> _Words:
    h = length.astype(np.uint32) ^ np.uint32(_SEED)
    whole = length >> 2
    live = np.arange(len(length))
    for k in range(int(whole.max(initial=0))):
        if k >= int(whole[live].min()):
            live = live[whole[live] > k]
        x = words[start[live] + 4 * k] * _M
        x ^= x >> np.uint32(24)
        h[live] = (h[live] * _M) ^ (x * _M)
    rest = np.flatnonzero(length & 3)
    tail = words[start[rest] + (whole[rest] << 2)] & (
        (np.uint32(1) << ((length[rest] & 3) << 3).astype(np.uint32)) - np.uint32(1)
    )
    h[rest] = (h[rest] ^ tail) * _M
    h ^= h >> np.uint32(13)
    h *= _M
    return h ^ (h >> np.uint32(15))
