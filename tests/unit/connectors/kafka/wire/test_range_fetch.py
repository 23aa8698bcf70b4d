"""The fetch of a range against a scripted broker: what each answer and each error makes it do next, without a network."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import kafka.errors  # noqa: F401 - loaded before any patience begins: it takes a second
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.connectors.kafka.source.client_properties import FetchSettings
from poundlock.connectors.kafka.wire import range_fetch
from poundlock.connectors.kafka.wire.connection import ConnectionLost
from poundlock.connectors.kafka.wire.fetch_client import TopicMetadata
from poundlock.connectors.kafka.wire.fetch_protocol import (
    FetchAnswer,
    FetchRequest,
    decode_answer,
    encode_request,
    version_for,
)
from poundlock.connectors.kafka.wire.range_fetch import OffsetRange, fetch_range, kafka_id, parse_kafka_id
from poundlock.connectors.kafka.wire.varints import SPARE
from poundlock.errors import PoundlockError, SourceGoneError, TerminalError, TransientError
from support.examples import examples
from support.kafka_batches import Made, batch

ID = uuid.UUID("d726efee-2510-4a19-a8cb-870651584cd1")
OLD, NEW = ("old", 1), ("new", 2)


def uvarint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def encoded(
    version: int, records: bytes, *, error: int = 0, stable: int = 100, high: int = 100, aborted: Any = (), top: int = 0
) -> bytes:
    """Return an answer as a broker of a version sends it, with tagged fields where there may be some."""
    compact = version >= 12
    tags = b"\x01\x63\x03abc" if compact else b""

    def count(n: int) -> bytes:
        return uvarint(n + 1) if compact else struct.pack(">i", n)

    out = struct.pack(">i", 1) + tags + struct.pack(">ihi", 0, top, 0)
    if top:
        return out + count(0) + tags
    name = ID.bytes if version >= 13 else (uvarint(2) + b"t" if compact else struct.pack(">h", 1) + b"t")
    out += count(1) + name + count(1) + struct.pack(">ihqqq", 0, error, high, stable, 0)
    out += count(len(aborted)) + b"".join(struct.pack(">qq", *one) + tags for one in aborted)
    out += struct.pack(">i", -1) + (count(len(records)) + records) + tags + tags + tags
    return out


@pytest.mark.parametrize("version", [11, 12, 13])
def test_answers_of_each_version(version: int) -> None:
    records = batch([Made(0, 0, None, b"v")])
    data = encoded(version, records, stable=7, high=9, aborted=[(5, 3), (6, 4)]) + bytes(SPARE)
    answer = decode_answer(memoryview(data), version)
    assert (answer.error, answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (0, 9, 7, 0)
    assert [tuple(one) for one in answer.aborted] == [(5, 3), (6, 4)]
    assert bytes(answer.records) == records
    assert len(answer.padded) == len(records) + SPARE
    assert decode_answer(memoryview(encoded(version, b"", top=70) + bytes(SPARE)), version).error == 70
    for cut in range(4, len(data) - SPARE - 6 * (version >= 12)):
        try:
            found = decode_answer(memoryview(data[:cut] + bytes(SPARE)), version)
        except ValueError:
            continue
        assert bytes(found.records) in (b"", records)


def test_versions() -> None:
    assert version_for((4, 17), ID) == 13
    assert version_for((4, 17), None) == 12
    assert version_for((0, 11), ID) == 11
    assert version_for((0, 10), None) is None
    assert version_for((13, 20), None) is None


def test_topic_ids_as_kafkas_tools_write_them() -> None:
    assert kafka_id(ID) == "1ybv7iUQShmoy4cGUVhM0Q"
    assert parse_kafka_id(kafka_id(ID)) == ID


class Broker:
    """Answers by a script: each step is bytes of batches, a FetchAnswer, or an exception."""

    def __init__(self, *script: Any, leaders: list[TopicMetadata] | None = None, **settings: Any) -> None:
        self.script = list(script)
        self.settings = FetchSettings(
            backoff_s=0.001, backoff_max_s=0.002, max_wait_ms=0, **{"patience_s": 0.3} | settings
        )
        self.servers = "scripted:1"
        self.asked: list[FetchRequest] = []
        self.events: list[str] = []
        self.forgotten: list[Any] = []
        self.leaders = leaders or [TopicMetadata(ID, {0: OLD}, 1)]
        self.lent_to: list[Any] = []
        self.awaits_answer = False

    # the client

    def topic(self, name: str, *, again: bool = False) -> TopicMetadata:
        if again and len(self.leaders) > 1:
            self.leaders.pop(0)
        return self.leaders[0]

    @contextmanager
    def lent(self, address: Any) -> Iterator[Any]:
        self.lent_to.append(address)
        yield self

    def forget(self, address: Any) -> None:
        self.forgotten.append(address)

    # its connection

    def versions_of(self, api: int) -> tuple[int, int]:
        return 4, 17

    def next_correlation(self) -> int:
        return 1

    def send(self, request: Any) -> None:
        self.asked.append(request)
        self.events.append(f"ask {request.offset}")

    def receive(self) -> Any:
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, Exception):
            raise step
        if callable(step):
            step = step(self.asked[-1])
        return step if isinstance(step, FetchAnswer) else answer(step)

    def read(
        self, first: int = 0, after: int = 100, *, committed: bool = True, topic_id: uuid.UUID | None = ID
    ) -> list[int]:
        found = []
        for records in fetch_range(self, OffsetRange("t", 0, first, after, topic_id), committed=committed):  # type: ignore[arg-type]
            offsets = records.offset.tolist()
            self.events.append(f"got {offsets[0]}")
            found += offsets
        return found


def answer(records: bytes = b"", *, error: int = 0, stable: int = 100, high: int = 100) -> FetchAnswer:
    data = bytearray(records + bytes(SPARE))
    return FetchAnswer(error, high, stable, 0, (), memoryview(data)[: len(records)], memoryview(data))


def some(base: int, count: int = 10, **more: Any) -> bytes:
    return batch([Made(i, 0, None, b"v") for i in range(count)], base=base, **more)


@pytest.fixture(autouse=True)
def _unencoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests and answers go over as what they mean."""
    monkeypatch.setattr(range_fetch, "encode_request", lambda request, *rest: request)
    monkeypatch.setattr(range_fetch, "decode_answer", lambda answer, version: answer)


def test_the_next_answer_is_asked_for_before_the_last_is_decoded() -> None:
    broker = Broker(some(0), some(10), some(20))
    assert broker.read(0, 30) == list(range(30))
    assert broker.events == ["ask 0", "ask 10", "got 0", "ask 20", "got 10", "got 20"]


def test_a_range_within_a_batch_and_behind_gaps() -> None:
    assert Broker(some(0, 100)).read(40, 43) == [40, 41, 42]
    assert Broker(some(50) + some(70)).read(0, 55) == [50, 51, 52, 53, 54]
    assert Broker(some(50)).read(3, 50) == []  # the next batch begins behind the range
    assert Broker(some(0, 0, last_delta=99)).read(0, 100) == []  # compaction left only the batch's header


def test_a_batch_larger_than_an_answer_is_asked_for_as_a_whole() -> None:
    whole = some(0, 100)
    broker = Broker(whole[:50], whole, fetch_bytes=60)
    assert broker.read() == list(range(100))
    assert [request.max_bytes for request in broker.asked] == [60, len(whole)]
    with pytest.raises(
        TerminalError, match="'t' partition 0 offset 0: the record batch there is cut off after 50 bytes"
    ):
        Broker(whole[:50]).read()
    with pytest.raises(TerminalError, match="is cut off after 5 bytes"):
        Broker(whole[:5]).read()


def test_nothing_yet_is_asked_for_again_until_it_comes_or_patience_ends() -> None:
    broker = Broker(answer(stable=3), answer(stable=3), some(0, 100))
    assert broker.read() == list(range(100))
    with pytest.raises(
        TransientError, match="offsets 0 to 100 cannot be read: it can be read up to offset 3, and ends at 9"
    ):
        Broker(answer(stable=3, high=9)).read()


def test_a_gap_up_to_an_open_transaction_ends_the_range() -> None:
    """A committed reader is given nothing; that the next batch stands behind the range is seen by an uncommitted look."""
    broker = Broker(answer(), answer(), answer(some(100), high=200))
    assert broker.read(0, 100) == []
    assert [request.committed for request in broker.asked] == [True, True, False]


def test_an_empty_answer_alone_never_ends_a_range() -> None:
    with pytest.raises(TransientError, match="cannot be read"):
        Broker(answer(), answer(), answer()).read(0, 100)
    # What the uncommitted look shows within the range is read as a committed reader sees it.
    broker = Broker(answer(), answer(), some(40), some(40, 60))
    assert broker.read(0, 100) == list(range(40, 100))


@pytest.mark.parametrize("code", [5, 6, 7, 9, 13, 56, 74, 75, 78, 89])
def test_a_leader_that_moves(code: int) -> None:
    leaders = [TopicMetadata(ID, {0: OLD}, 1), TopicMetadata(ID, {}, 1), TopicMetadata(ID, {0: NEW}, 1)]
    broker = Broker(some(0), answer(error=code), some(10, 90), leaders=leaders)
    assert broker.read() == list(range(100))
    assert broker.lent_to == [OLD, NEW]
    assert broker.forgotten == []


def test_a_connection_that_breaks_is_replaced_and_the_others_to_that_broker_too() -> None:
    broker = Broker(some(0), ConnectionLost("closed"), OSError("reset"), some(10, 90))
    assert broker.read() == list(range(100))
    assert broker.forgotten == [OLD, OLD]


@pytest.mark.slow
def test_a_broker_that_never_recovers() -> None:
    with pytest.raises(TransientError, match="'t' partition 0: offsets 10 to 100 cannot be read: gone away") as caught:
        Broker(some(0), OSError("gone away")).read()
    assert "brokers run" in caught.value.next
    with pytest.raises(TransientError, match="t-0 has no leader"):
        Broker(some(0), leaders=[TopicMetadata(ID, {}, 1)]).read()
    with pytest.raises(TransientError, match="answers UnknownError"):
        Broker(answer(error=-1)).read()


def test_a_topic_that_is_another_one() -> None:
    other = uuid.UUID(int=5)
    words = f"topic 't' is not the one this job has read.*its id was {kafka_id(ID)} and is {kafka_id(other)}"
    with pytest.raises(SourceGoneError, match=words):
        Broker(some(0), leaders=[TopicMetadata(other, {0: OLD}, 1)]).read()
    # Known from before: only what a broker says now counts.
    stale = [TopicMetadata(other, {0: OLD}, 1), TopicMetadata(ID, {0: OLD}, 1)]
    assert Broker(some(0, 100), leaders=stale).read() == list(range(100))
    again = [TopicMetadata(ID, {0: OLD}, 1), TopicMetadata(other, {0: OLD}, 1)]
    with pytest.raises(SourceGoneError, match=words):
        Broker(some(0), answer(error=100), leaders=again).read()


def test_a_topic_that_is_gone() -> None:
    there, gone = TopicMetadata(ID, {0: OLD}, 1), TopicMetadata(None, {}, 0)
    assert Broker(some(0, 100), leaders=[gone, gone, there]).read() == list(range(100))  # a broker that just started
    with pytest.raises(
        SourceGoneError, match="topic 't' is gone from Kafka: partition 0 was to be read from offset 10"
    ):
        Broker(some(0), answer(error=3), leaders=[there, gone]).read()


def test_offsets_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_fetch, "first_offset", lambda *_: 50)
    monkeypatch.setattr(range_fetch, "end_offset", lambda *_, **__: 60)
    with pytest.raises(SourceGoneError, match="offsets 10 to 50 were not read yet and are gone"):
        Broker(some(0), answer(error=1)).read()
    with pytest.raises(
        SourceGoneError,
        match="'t' partition 0 was read to 70 and ends at 60: it was created again, its brokers lost records, or ",
    ):
        Broker(answer(error=1)).read(70, 80)
    assert Broker(answer(error=1), some(50)).read(50, 60) == list(range(50, 60))  # a follower that lags


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda: some(0)[:-1] + b"!", "offset 0: the record batch there is damaged: its checksum"),
        (lambda: some(0, magic=1), "offset 0: the record batch there is of message format 1"),
        (lambda: batch([Made(0), Made(1)], count=11), "offset 0: the record batch there is damaged: its 11 records"),
        (lambda: answer(error=2), "offset 0: the record batch there is damaged, says the broker"),
        (lambda: answer(error=29), "refuses this user: TopicAuthorizationFailedError when reading topic t"),
    ],
)
def test_what_a_person_must_look_at(step: Callable[[], Any], words: str) -> None:
    with pytest.raises(TerminalError, match=words) as caught:
        Broker(step()).read()
    assert caught.value.next


def test_an_answer_for_another_offset_is_not_taken() -> None:
    with pytest.raises(TerminalError, match="was sent for offset 50, which it is before"):
        Broker(some(0)).read(50, 60)


class Log:
    """A partition on disk, as a broker sends it: from the first batch that reaches the offset, cut off where the answer is full."""

    def __init__(self, batches: Sequence[bytes], end: int, cuts: Sequence[int]) -> None:
        self.data, self.end, self.cuts = b"".join(batches), end, cuts
        self.starts = [sum(map(len, batches[:i])) for i in range(len(batches))]

    def answer(self, request: FetchRequest) -> FetchAnswer:
        for at in self.starts:
            base, last = struct.unpack_from(">q15xi", self.data, at)
            if base + last >= request.offset:
                # Whole batches, and so much of the next one that its head is there.
                upto = next((start + 17 for start in self.starts if start > at and start in self.cuts), len(self.data))
                return answer(self.data[at:upto], high=self.end, stable=self.end)
        return answer(error=0 if request.offset < self.end else 1, high=self.end, stable=self.end)


@examples(100)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=2, max_size=6), st.data())
def test_a_first_offset_that_was_changed_on_disk_is_an_error_where_it_can_be_seen(
    made: list[tuple[int, int]], data: st.DataObject
) -> None:
    """No checksum covers it. Counts of records, and gaps behind them as compaction leaves them; any bit of any batch."""
    bases = [sum(count + gap for count, gap in made[:i]) for i in range(len(made))]
    end = bases[-1] + made[-1][0]
    batches = [bytearray(some(base, count)) for base, (count, _) in zip(bases, made, strict=True)]
    right = [base + i for base, (count, _) in zip(bases, made, strict=True) for i in range(count)]
    which, bit = data.draw(st.integers(0, len(made) - 1)), data.draw(st.integers(0, 63))
    changed = bases[which] ^ (1 << bit)
    changed -= (changed >> 63) << 64
    batches[which][:8] = struct.pack(">q", changed)
    starts = [sum(map(len, batches[:i])) for i in range(len(batches))]
    cuts = data.draw(st.lists(st.sampled_from(starts), max_size=2))
    log = Log([bytes(b) for b in batches], end, cuts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_fetch, "end_offset", lambda *_, **__: end)
        patch.setattr(range_fetch, "first_offset", lambda *_: 0)
        try:
            found = Broker(log.answer, patience_s=0.02).read(0, end)
        except PoundlockError as error:
            assert "topic 't' partition 0" in error.what  # noqa: PT017 - one of several errors, or none
            return
    moved, mine = changed - bases[which], range(bases[which], bases[which] + made[which][0])
    if found == [n for n in right if n not in mine]:
        # The broker passes over a batch that ends before what is asked for: seen only where one before it is in the same answer.
        assert moved < 0
        assert starts[which] in (0, *cuts)
        return
    # A gap that compaction left has room for a batch that moved within it: its records are all there, at other offsets.
    before = made[which - 1][1] if which else 0
    assert -before <= moved <= made[which][1]
    assert found == [n + moved if n in mine else n for n in right]


def test_a_request_as_bytes() -> None:
    request = FetchRequest("topic", ID, 3, 77, 1000, 1, 500, True)
    for version in (11, 12, 13):
        frame = encode_request(request, version, 9, "me")
        assert struct.unpack(">ihhi", frame[:12]) == (len(frame) - 4, 1, version, 9)
        assert (b"topic" in frame) == (version < 13)
        assert (ID.bytes in frame) == (version == 13)
