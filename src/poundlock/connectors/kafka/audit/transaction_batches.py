"""Record batches as a broker keeps them: whose they are, which of them committed transactions wrote, and the messages in them.

Kafka's format 2 only, in which a batch names its producer; what is older has no transactions and counts as one message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from poundlock.connectors.kafka.wire.compression import decompress
from poundlock.errors import DefinitionError

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qi")
_MAGIC_AT = 16
_CODEC, _LOG_APPEND, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_ABORT = 0

RecordHeader = tuple[str, bytes | None]
RecordParts = tuple[int, int, bytes | None, bytes | None, list[RecordHeader]]
"""Offset, time in ms since the epoch, key, value, headers."""


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One batch.

    Args:
        first, last: offsets.
        pid, epoch: of the producer; -1 where it has none.
        transactional: whether it belongs to a transaction.
        control: whether it ends a transaction instead of holding messages.
        broker_time: whether the times are the broker's, not the producer's.
        count: messages in it.
        codec: number of the compression.
        times: first and greatest time, ms since the epoch.
        data: the messages, compressed.
    """

    first: int
    last: int
    pid: int
    epoch: int
    transactional: bool
    control: bool
    broker_time: bool
    count: int
    codec: int
    times: tuple[int, int]
    data: memoryview

    @property
    def aborts(self) -> bool:
        """Whether it ends a transaction by aborting it."""
        for _, _, key, _, _ in self.messages():
            return key is not None and int.from_bytes(key[2:4], "big") == _ABORT
        return False

    def messages(self) -> Iterator[RecordParts]:
        """Yield the messages.

        Raises:
            ValueError: it is damaged.
            DefinitionError: it is compressed in a way that cannot be undone here.
        """
        try:
            yield from _messages(self, decompress(self.codec, self.data) if self.codec else bytes(self.data))
        except DefinitionError:
            raise  # not the batch is at fault, but what is installed here
        except (IndexError, ValueError, struct.error) as error:
            raise ValueError(f"the batch at offset {self.first} is damaged: {error}") from error


def batches(data: bytes | memoryview) -> Iterator[RecordBatch]:
    """Yield the batches of what a broker answered to a fetch; one that is cut off at the end is left out."""
    view, at = memoryview(data), 0
    while len(view) - at > _MAGIC_AT:
        first, length = _PREFIX.unpack_from(view, at)
        end = at + _PREFIX.size + length
        if end > len(view):
            return
        if view[at + _MAGIC_AT] < 2:  # its offset is that of its last message
            yield RecordBatch(first, first, -1, -1, False, False, False, 1, 0, (-1, -1), view[end:end])
        else:
            yield _batch(view[at:end])
        at = end


def _batch(view: memoryview) -> RecordBatch:
    first, _, _, _, _, said, more, first_ms, last_ms, pid, epoch, _, count = _HEADER.unpack_from(view)
    return RecordBatch(
        first, first + more, pid, epoch, bool(said & _TRANSACTIONAL), bool(said & _CONTROL), bool(said & _LOG_APPEND),
        count, said & _CODEC, (first_ms, last_ms), view[_HEADER.size :],
    )  # fmt: skip


def committed(found: Iterable[RecordBatch], aborted: Iterable[tuple[int, int]]) -> Iterator[RecordBatch]:
    """Yield the batches that a read_committed reader takes.

    Args:
        found: batches in order, none of them past the last stable offset.
        aborted: what the broker says of them: per aborted transaction the producer and its first offset.
    """
    coming = sorted(aborted, key=lambda item: item[1], reverse=True)
    gone: set[int] = set()
    for batch in found:
        while coming and coming[-1][1] <= batch.last:
            gone.add(coming.pop()[0])
        if batch.control:
            if batch.pid in gone and batch.aborts:
                gone.discard(batch.pid)
        elif not (batch.transactional and batch.pid in gone):
            yield batch


def _messages(batch: RecordBatch, data: bytes) -> Iterator[RecordParts]:
    first_ms, last_ms = batch.times
    at = 0
    for _ in range(batch.count):
        length, at = _varint(data, at)
        end = at + length
        later, at = _varint(data, at + 1)
        further, at = _varint(data, at)
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
        count, at = _varint(data, at)
        headers = []
        for _ in range(count):
            name, at = _bytes(data, at)
            content, at = _bytes(data, at)
            headers.append(((name or b"").decode(), content))
        if at != end:
            raise IndexError(f"a message of {length} bytes ends {at - end} bytes behind its end")
        yield batch.first + further, last_ms if batch.broker_time else first_ms + later, key, value, headers


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    if length < 0:
        return None, at
    end = at + length
    if end > len(data):
        raise IndexError(f"it ends within a message of {length} bytes")
    return data[at:end], end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
