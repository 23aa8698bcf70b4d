"""The queue of batches against brokers that fail in every way they can: each message once and in order, or an error."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceResponse

from poundlock.connectors.kafka.sink.client_options import ProduceSettings
from poundlock.connectors.kafka.wire import batch_queue
from poundlock.connectors.kafka.wire.batch_queue import BatchQueue, Undelivered
from poundlock.connectors.kafka.wire.byte_strings import of_list
from poundlock.connectors.kafka.wire.connection import ConnectionLost
from poundlock.connectors.kafka.wire.coordinators import BrokerRefusal, ProducerIdentity
from poundlock.connectors.kafka.wire.fetch_client import TopicMetadata
from poundlock.connectors.kafka.wire.produce_protocol import Topics
from poundlock.connectors.kafka.wire.record_batches import read_headers
from poundlock.connectors.kafka.wire.record_encoder import RecordRun, encode_runs

_ANSWER = ProduceResponse.TopicProduceResponse
OUT_OF_ORDER, DUPLICATE, NOT_LEADER, TIMED_OUT, TOO_FEW, TOO_LARGE, FENCED = 45, 46, 6, 7, 19, 10, 90
REMEMBERED = 5


class Log:
    """One partition as its leader has it, with what it knows of the one producer."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.batches: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)  # first sequence and number of records
        self.next: int | None = None

    def append(self, data: bytes) -> int:
        """Take a batch as Kafka does: any first one, then only the next one, and one that it remembers once more."""
        (header,) = read_headers(memoryview(data))
        first = int.from_bytes(data[53:57], "big", signed=True)
        if (first, header.record_count) in self.batches:
            return 0
        if self.next is not None and first != self.next:
            return DUPLICATE if first < self.next else OUT_OF_ORDER
        self.next = first + header.record_count
        self.batches.append((first, header.record_count))
        self.values.append(data)
        return 0


class Cluster:
    """The client and its connections. Each request meets the next fault of a script; when that is over all goes well."""

    def __init__(self, faults: Sequence[str] = (), partitions: int = 2) -> None:
        self.faults, self.partitions = deque(faults), partitions
        self.logs: dict[int, Log] = defaultdict(Log)
        self.moved = 0
        self.most_in_flight = 0

    def topic(self, name: str, *, again: bool = False) -> TopicMetadata:
        leaders = {p: ("broker", 1 + (p + self.moved) % 2) for p in range(self.partitions)}
        return TopicMetadata(None, leaders, self.partitions)

    @contextmanager
    def lent(self, address: Any) -> Iterator[Any]:
        yield Connection(self, address[1])

    def forget(self, address: Any) -> None:
        pass


class Connection:
    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.number = cluster, number
        self.answers: deque[Any] = deque()

    def send_produce(self, request: Any, topics: Topics) -> None:
        cluster = self.cluster
        fault = cluster.faults.popleft() if cluster.faults else "none"
        results = []
        for partition, batch in topics["t"]:
            code = self._take(partition, b"".join(map(bytes, batch)), fault)
            results.append(_ANSWER.PartitionProduceResponse(index=partition, error_code=code, base_offset=0))
        lost = fault in ("lost", "lost after")
        self.answers.append(
            None if lost else SimpleNamespace(responses=[_ANSWER(name="t", partition_responses=results)])
        )
        cluster.most_in_flight = max(cluster.most_in_flight, len(self.answers))
        if fault == "move":
            cluster.moved += 1

    def _take(self, partition: int, batch: bytes, fault: str) -> int:
        cluster = self.cluster
        if cluster.topic("t").leaders[partition][1] != self.number or fault == "not leader":
            return NOT_LEADER
        if fault == "too few":
            return TOO_FEW
        if fault == "lost" or None in self.answers:
            return 0
        code = cluster.logs[partition].append(batch)
        return TIMED_OUT if fault == "timed out" and not code else code

    def answer(self) -> Any:
        answer = self.answers.popleft()
        if answer is None:
            raise ConnectionLost("the connection broke")
        return answer


@pytest.fixture(autouse=True)
def answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_queue, "readable", lambda connections, seconds: [c for c in connections if c.answers])


def runs(values: Sequence[bytes], each: int) -> list[RecordRun]:
    starts = list(range(0, len(values), each))
    return encode_runs(of_list(values), None, None, np.zeros(len(values), np.int64), starts)


def queue(cluster: Cluster, patience_s: float = 5.0, **more: Any) -> BatchQueue:
    given = ProduceSettings(backoff_s=0.0001, backoff_max_s=0.001, **more)
    return BatchQueue(cluster, ProducerIdentity(7, 0), given, None, patience_s)  # type: ignore[arg-type]


def send(sent: BatchQueue, run: RecordRun) -> None:
    sent.put(("t", 0), run)
    sent.flush(20)


def written(cluster: Cluster, partition: int) -> list[bytes]:
    from kafka.record import MemoryRecords

    return [r.value for data in cluster.logs[partition].values for r in MemoryRecords(data).next_batch()]


FAULTS = ["none", "not leader", "timed out", "too few", "lost", "lost after", "move"]


@given(st.lists(st.sampled_from(FAULTS), max_size=25), st.integers(1, 5), st.integers(1, 400))
def test_whatever_fails_each_message_is_there_once_and_in_order(faults: list[str], most: int, request: int) -> None:
    cluster = Cluster(faults)
    sent = queue(cluster, most_in_flight=most, request_bytes=request, buffer_bytes=900)
    values = [b"%d" % n for n in range(90)]
    for n, run in enumerate(runs(values, 3)):
        sent.put(("t", n % 2), run)
    sent.flush(20)
    for partition in range(2):
        assert written(cluster, partition) == [v for n in range(partition, 30, 2) for v in values[3 * n : 3 * n + 3]]
    assert sent.messages == 0
    assert cluster.most_in_flight <= most
    sent.close()


def test_several_requests_are_on_their_way_once_the_first_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(partitions=1)
    sent = queue(cluster)
    first, *rest = runs([b"%d" % n for n in range(8)], 1)
    sent.put(("t", 0), first)
    sent.flush(5)
    monkeypatch.setattr(batch_queue, "readable", lambda connections, seconds: [])
    for run in rest:
        sent.put(("t", 0), run)
    assert cluster.most_in_flight == 5


def test_a_batch_that_was_never_sent_before_and_is_called_a_duplicate_is_an_error() -> None:
    cluster = Cluster(partitions=1)
    cluster.logs[0].next = 100
    with pytest.raises(BrokerRefusal, match="DuplicateSequenceNumberError"):
        queue(cluster).put(("t", 0), runs([b"a"], 1)[0])


def test_a_sequence_that_the_broker_has_lost_is_an_error() -> None:
    cluster = Cluster(partitions=1)
    sent = queue(cluster)
    first, second = runs([b"a", b"b"], 1)
    sent.put(("t", 0), first)
    sent.flush(5)
    cluster.logs[0].next = 0
    with pytest.raises(BrokerRefusal, match="OutOfOrderSequenceNumberError"):
        send(sent, second)


def test_who_is_not_answered_for_too_long_gives_up() -> None:
    cluster = Cluster(["not leader"] * 10_000, partitions=1)
    sent = queue(cluster, patience_s=0.05)
    with pytest.raises(Undelivered, match="NotLeader") as raised:
        send(sent, runs([b"a", b"b"], 2)[0])
    assert (raised.value.messages, raised.value.seconds) == (2, 0.05)


def test_what_was_sent_is_answered_before_it_is_given_up() -> None:
    cluster = Cluster(partitions=2)
    sent = queue(cluster, most_in_flight=1, request_bytes=1)
    for n, run in enumerate(runs([b"%d" % n for n in range(4)], 1)):
        sent.put(("t", n % 2), run)
    sent.drain(5)
    sent._step(0.0)
    assert all(not broker.sent for broker in sent._brokers.values())
    assert not any(broker.connection.answers for broker in sent._brokers.values())  # type: ignore[attr-defined]
    assert sum(len(log.values) for log in cluster.logs.values()) + sent.messages >= 4
    sent.close()


def test_sequences_begin_again_at_the_end_of_their_range() -> None:
    cluster = Cluster(partitions=1)
    sent = queue(cluster)
    first, second = runs([b"a", b"b", b"c", b"d"], 2)
    sent._lanes[("t", 0)] = batch_queue._Lane(("t", 0), sequence=(1 << 31) - 2)
    sent.put(("t", 0), first)
    assert sent._lanes[("t", 0)].sequence == 0
    cluster.logs[0].next = 0
    sent.put(("t", 0), second)
    sent.flush(5)
    assert written(cluster, 0) == [b"a", b"b", b"c", b"d"]
