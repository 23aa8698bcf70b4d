"""Kafka's Fetch request for one partition, as bytes, and its answer, without a copy of the records in it.

Versions 11 (Kafka 2.3), 12 (2.7, compact fields) and 13 (3.1, topics by id) are spoken; the answer is read field by field, and
what does not fit into it is a ValueError.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from poundlock.connectors.kafka.wire.record_batches import AbortedTransaction
from poundlock.connectors.kafka.wire.varints import SPARE

FETCH = 1
"""The number of this request."""
_LOWEST, _HIGHEST = 11, 13
_HEADER, _FETCH, _PART = struct.Struct(">hhih"), struct.Struct(">iiiibii"), struct.Struct(">iiqqi")
_ERROR = struct.Struct(">hi")
_PARTITION = struct.Struct(">ihqqq")


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What is asked for."""

    topic: str
    topic_id: uuid.UUID | None  # needed from version 13 on
    partition: int
    offset: int
    max_bytes: int  # about; a larger first batch comes whole
    min_bytes: int  # to wait for, up to `max_wait_ms`
    max_wait_ms: int
    committed: bool  # whether to see nothing of transactions that are open


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """What a broker answered."""

    error: int  # of the request or of the partition; 0 for none
    high_watermark: int  # offset after the last record that every replica has; -1 with some errors
    last_stable_offset: int  # offset before which every transaction has ended
    log_start_offset: int  # the first offset that is there
    aborted: Sequence[AbortedTransaction]  # among the records
    records: memoryview  # the record batches
    padded: memoryview  # the same with SPARE bytes behind them


def version_for(broker: tuple[int, int], topic_id: uuid.UUID | None) -> int | None:
    """Return the version to speak with a broker that knows those from the one to the other; None if there is none."""
    version = min(broker[1], _HIGHEST if topic_id is not None else 12)
    return version if version >= max(_LOWEST, broker[0]) else None


def encode_request(request: FetchRequest, version: int, correlation: int, client_id: str) -> bytes:
    """Return the request with its length in front, for a version that `version_for` gave; brokers log `client_id`."""
    r, compact, client = request, version >= 12, client_id.encode()
    head = _HEADER.pack(FETCH, version, correlation, len(client)) + client + (b"\0" if compact else b"")
    # No session: every request stands for itself, so that any connection may take up where another ended.
    fetch = _FETCH.pack(-1, r.max_wait_ms, r.min_bytes, r.max_bytes, int(r.committed), 0, -1)
    name = r.topic.encode()
    if compact:
        topic = r.topic_id.bytes if version >= 13 and r.topic_id is not None else _uvarint(len(name) + 1) + name
        part = struct.pack(">iiqiqi", r.partition, -1, r.offset, -1, -1, r.max_bytes)
        body = b"\x02" + topic + b"\x02" + part + b"\0\0" + b"\x01" + b"\x01" + b"\0"
    else:
        topic = struct.pack(">h", len(name)) + name
        body = struct.pack(">i", 1) + topic + struct.pack(">i", 1)
        body += _PART.pack(r.partition, -1, r.offset, -1, r.max_bytes) + struct.pack(">ih", 0, 0)
    frame = head + fetch + body
    return struct.pack(">i", len(frame)) + frame


def decode_answer(answer: memoryview, version: int) -> FetchAnswer:
    """Return what is in an answer that was received with SPARE bytes behind it; `records` points into it.

    Raises:
        ValueError: it is none that the request's version can have.
    """
    try:
        return _Answer(answer, version >= 12, version >= 13).read()
    except (struct.error, IndexError) as error:
        raise ValueError(f"the answer to a fetch ends early: {error}") from error


class _Answer:
    """Reads an answer from its first byte on."""

    def __init__(self, data: memoryview, compact: bool, by_id: bool) -> None:
        self._data, self._compact, self._by_id, self._at = data, compact, by_id, 4  # behind the correlation id

    def read(self) -> FetchAnswer:
        self._tags()
        self._skip(4)  # how long the broker has throttled us
        error, _ = self._unpack(_ERROR)
        answer_end = self._data[len(self._data) :]
        if error or not self._count():
            return FetchAnswer(int(error), -1, -1, -1, (), answer_end, answer_end)
        self._skip(16 if self._by_id else self._length(2))
        if not self._count():
            raise ValueError("the answer to a fetch names a topic without a partition")
        _, error, high, stable, start = self._unpack(_PARTITION)
        aborted = [AbortedTransaction(*self._aborted()) for _ in range(max(self._count(), 0))]
        self._skip(4)  # the replica that would be nearer
        size = max(self._count(), 0)
        if self._at + size + SPARE > len(self._data):
            raise ValueError("the answer to a fetch holds less records than it says")
        padded = self._data[self._at : self._at + size + SPARE]
        return FetchAnswer(error, high, stable, start, aborted, padded[:size], padded)

    def _aborted(self) -> tuple[int, int]:
        producer, first = self._unpack(struct.Struct(">qq"))
        self._tags()
        return producer, first

    def _unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return values

    def _skip(self, size: int) -> None:
        self._at += size

    def _count(self) -> int:
        """Return a number of elements, or of bytes; -1 for null."""
        return self._length(4)

    def _length(self, size: int) -> int:
        if self._compact:
            return self._read_uvarint() - 1
        (value,) = self._unpack(struct.Struct(">h" if size == 2 else ">i"))
        return value

    def _read_uvarint(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    def _tags(self) -> None:
        """Skip fields that later versions added in passing."""
        if self._compact:
            for _ in range(self._read_uvarint()):
                self._read_uvarint()
                self._skip(self._read_uvarint())


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
