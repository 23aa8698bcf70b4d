"""Record batches made by kafka-python's own builders are read as they were written, and aborted ones are left out."""

from __future__ import annotations

import gzip
import struct
from typing import Any

import pyarrow as pa
import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecordsBuilder

from poundlock.connectors.kafka.audit.transaction_batches import RecordBatch, batches, committed
from poundlock.connectors.kafka.partition_ranges import from_places, to_places
from poundlock.errors import DefinitionError

Message = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

MESSAGES: list[Message] = [
    (1_545_184_226_432, None, b"plain", []),
    (1_545_184_226_000, b"", b"", [("a", b"1"), ("a", None), ("", b"")]),
    (1_545_184_229_999, b"k" * 200, None, [("naïve", b"\xff" * 70)]),
    (0, b"\0", b"v" * 40_000, []),
]
HEAD = 61


def built(
    messages: list[Message],
    *,
    offset: int = 0,
    pid: int = -1,
    epoch: int = -1,
    transactional: bool = False,
    codec: int = 0,
) -> bytes:
    """Return a batch as a producer sends it."""
    builder = MemoryRecordsBuilder(
        2, 0, 1 << 20, offset=0, transactional=transactional, producer_id=pid, producer_epoch=epoch,
        base_sequence=0 if pid >= 0 else -1,
    )  # fmt: skip
    for time_ms, key, value, headers in messages:
        assert builder.append(time_ms, key, value, headers) is not None
    builder.close()
    data = bytearray(builder.buffer())
    data[:8] = struct.pack(">q", offset)
    return packed(bytes(data), codec)


def packed(data: bytes, codec: int) -> bytes:
    """Compress a batch as a producer does."""
    body = data[HEAD:]
    compressed = {
        0: lambda: body,
        1: lambda: gzip.compress(body),
        2: lambda: pa.Codec("snappy").compress(body, asbytes=True),
        3: lambda: pa.Codec("lz4").compress(body, asbytes=True),
        4: lambda: pa.Codec("zstd").compress(body, asbytes=True),
        -2: lambda: xerial(body),
    }[codec]()
    head = bytearray(data[:HEAD])
    head[8:12] = struct.pack(">i", HEAD - 12 + len(compressed))
    (attributes,) = struct.unpack(">h", head[21:23])
    head[21:23] = struct.pack(">h", attributes | abs(codec))
    return bytes(head) + compressed


def xerial(body: bytes) -> bytes:
    """Return snappy as Java's clients write it: a head, and blocks of at most 32 KB."""
    parts = [b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)]
    for start in range(0, len(body), 1 << 15):
        block = pa.Codec("snappy").compress(body[start : start + (1 << 15)], asbytes=True)
        parts.append(struct.pack(">i", len(block)) + block)
    return b"".join(parts)


def ended(offset: int, pid: int, *, abort: bool) -> bytes:
    """Return the batch that ends a transaction."""
    key = struct.pack(">hh", 0, 0 if abort else 1)
    data = bytearray(built([(0, key, b"\0" * 6, [])], offset=offset, pid=pid, epoch=0, transactional=True))
    (attributes,) = struct.unpack(">h", data[21:23])
    data[21:23] = struct.pack(">h", attributes | 0x20)
    return bytes(data)


@pytest.mark.parametrize("codec", [0, 1, 2, -2, 3, 4])
def test_messages_are_read_as_they_were_written(codec: int) -> None:
    (batch,) = batches(built(MESSAGES, offset=700, pid=5, epoch=3, transactional=True, codec=codec))
    assert (batch.first, batch.last, batch.pid, batch.epoch, batch.count) == (700, 703, 5, 3, 4)
    assert (batch.transactional, batch.control, batch.broker_time) == (True, False, False)
    found = list(batch.messages())
    assert found == [(700 + i, *message) for i, message in enumerate(MESSAGES)]


@pytest.mark.parametrize("kind", [1, 4])
def test_what_the_client_itself_packs_is_read(kind: int) -> None:
    builder = DefaultRecordBatchBuilder(2, kind, True, 7, 1, 0, 1 << 20)
    if kind == 4:
        pytest.importorskip("zstandard")
    for i, (time_ms, key, value, headers) in enumerate(MESSAGES):
        builder.append(i, time_ms, key, value, headers)
    (batch,) = batches(bytes(builder.build()))
    assert [message[1:] for message in batch.messages()] == MESSAGES


def test_a_batch_that_is_cut_off_is_left_for_the_next_answer() -> None:
    data = built(MESSAGES[:1], offset=0) + built(MESSAGES[:2], offset=1)
    assert [(b.first, b.last) for b in batches(data)] == [(0, 0), (1, 2)]
    for cut in range(1, len(data)):
        assert [b.first for b in batches(data[:-cut])] == ([0] if len(data) - cut >= len(built(MESSAGES[:1])) else [])


def test_times_of_the_broker_are_told() -> None:
    data = bytearray(built(MESSAGES))
    (attributes,) = struct.unpack(">h", data[21:23])
    data[21:23] = struct.pack(">h", attributes | 0x08)
    (batch,) = batches(bytes(data))
    assert batch.broker_time
    assert {time_ms for _, time_ms, _, _, _ in batch.messages()} == {max(m[0] for m in MESSAGES)}


def firsts(found: list[bytes], aborted: list[tuple[int, int]]) -> list[int]:
    return [batch.first for batch in committed(batches(b"".join(found)), aborted)]


def data_of(offset: int, pid: int) -> bytes:
    return built(MESSAGES[:1], offset=offset, pid=pid, epoch=0, transactional=pid >= 0)


def test_aborted_transactions_are_left_out_and_nothing_else() -> None:
    log = [
        data_of(0, 1),  # aborted
        data_of(1, 2),  # committed
        data_of(2, -1),  # of no transaction
        data_of(3, 1),
        ended(4, 1, abort=True),
        data_of(5, 1),  # the same producer once more: committed
        ended(6, 2, abort=False),
        ended(7, 1, abort=False),
        data_of(8, 2),  # aborted, and ended in what comes next
    ]
    aborted = [(2, 8), (1, 0)]
    assert firsts(log, aborted) == [1, 2, 5]
    # an answer may begin in the middle of an aborted transaction
    assert firsts(log[3:], aborted) == [5]
    assert firsts(log, []) == [0, 1, 2, 3, 5, 8]


def test_a_transaction_committed_by_a_producer_is_not_hidden_by_a_later_aborted_one() -> None:
    log = [data_of(0, 1), ended(1, 1, abort=False), data_of(2, 1), ended(3, 1, abort=True), data_of(4, 1)]
    assert firsts(log, [(1, 2)]) == [0, 4]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_damaged_batch_is_an_error_and_not_other_messages(codec: int) -> None:
    data = bytearray(built(MESSAGES, codec=codec))
    data[HEAD + 3 :] = bytes(len(data) - HEAD - 3)
    with pytest.raises(ValueError, match="the batch at offset 0 is damaged"):
        list(next(batches(bytes(data))).messages())


def test_messages_of_an_old_format_are_counted_as_those_of_others() -> None:
    old = struct.pack(">qiIbb", 41, 22, 0, 1, 0) + bytes(16)
    first, second = batches(old + built(MESSAGES, offset=42) + b"\0" * 3)
    assert (first.last, first.pid, first.transactional, first.count) == (41, -1, False, 1)
    assert second.first == 42


def test_a_compression_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Codec:
        @staticmethod
        def is_available(name: str) -> bool:
            return False

    monkeypatch.setattr(pa, "Codec", Codec)
    batch = RecordBatch(0, 0, -1, -1, False, False, False, 1, 2, (0, 0), memoryview(b"x"))
    with pytest.raises(DefinitionError, match="cannot read snappy") as refused:
        list(batch.messages())
    assert "pip install" in refused.value.next


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ({}, {}),
        ({"a": [0]}, {"a": "0"}),
        ({"a": [3, 1, 2, 7], "b": [0, 2]}, {"a": "1-3,7", "b": "0,2"}),
    ],
)
def test_places_are_said_in_short_and_understood(places: dict[str, Any], said: dict[str, str]) -> None:
    assert from_places(places) == said
    assert to_places(said) == {(topic, number) for topic, numbers in places.items() for number in numbers}
