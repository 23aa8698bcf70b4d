"""Offsets of many partitions asked of their leaders, against scripted brokers: one request each, and what every error makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import kafka.errors
import numpy as np
import pytest
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from poundlock.connectors.kafka.offsets import EARLIEST, LATEST, OffsetsOf
from poundlock.connectors.kafka.source.client_properties import FetchSettings
from poundlock.connectors.kafka.wire import offset_lookup
from poundlock.connectors.kafka.wire.connection import ConnectionLost
from poundlock.connectors.kafka.wire.fetch_client import Address, TopicMetadata
from poundlock.connectors.kafka.wire.offset_lookup import (
    VERSION,
    OffsetsUnknown,
    decode_answer,
    encode_request,
    look_up,
)
from poundlock.connectors.kafka.wire.varints import SPARE
from poundlock.errors import TerminalError

ONE, TWO = ("one", 1), ("two", 2)
END = OffsetsOf(LATEST, True)
Place = tuple[str, int]
Said = Callable[[str, int, int], tuple[int, int]]  # topic, partition and epoch to error and offset


def topic(leaders: Mapping[int, Address], epoch: int = 3) -> TopicMetadata:
    return TopicMetadata(None, leaders, len(leaders), dict.fromkeys(leaders, epoch))


def right(name: str, partition: int, epoch: int) -> tuple[int, int]:
    return 0, 100 * partition + len(name)


class Brokers:
    """Answer by a script: for each round of requests, what a broker answers of a partition, or an error it raises.

    Args:
        leaders: the topics as they are known at first, and after each new question.
    """

    def __init__(self, script: Sequence[Said | Exception], leaders: Sequence[Mapping[str, TopicMetadata]]) -> None:
        self.settings, self.servers = FetchSettings(client_id="me"), "scripted:1"
        self._script, self._leaders = list(script), list(leaders)
        self.asked: list[tuple[Address, Any]] = []
        self.forgotten: list[Address] = []
        self.now = 0.0

    def topics(self, names: Sequence[str], *, again: bool = False) -> Mapping[str, TopicMetadata]:
        if again and len(self._leaders) > 1:
            self._leaders.pop(0)
        if again and len(self._script) > 1:
            self._script.pop(0)
        return {name: self._leaders[0][name] for name in names}

    def forget(self, address: Address) -> None:
        self.forgotten.append(address)

    @contextmanager
    def lent(self, address: Address) -> Iterator[Any]:
        yield Connection(self, address, self._script[0])


class Connection:
    def __init__(self, brokers: Brokers, address: Address, answers: Said | Exception) -> None:
        self._brokers, self._address, self._answers = brokers, address, answers
        self._frame = b""

    def versions_of(self, api: int) -> tuple[int, int]:
        assert api == 2
        return 1, 10

    def answer_within(self, seconds: float | None) -> None:
        pass

    def next_correlation(self) -> int:
        return 7

    def send(self, frame: bytes) -> None:
        self._frame = frame

    def receive(self) -> memoryview:
        if isinstance(self._answers, Exception):
            raise self._answers
        request = ListOffsetsRequest.decode(self._frame[4:], version=VERSION, header=True)
        self._brokers.asked.append((self._address, request))
        return memoryview(answered(request, self._answers) + bytes(SPARE))


def answered(request: Any, answers: Said) -> bytes:
    response: Any = ListOffsetsResponse
    of_topic = response.ListOffsetsTopicResponse
    topics = []
    for each in request.topics:
        parts = []
        for part in each.partitions:
            error, offset = answers(each.name, part.partition_index, part.current_leader_epoch)
            parts.append(
                of_topic.ListOffsetsPartitionResponse(
                    partition_index=part.partition_index, error_code=error, timestamp=-1, offset=offset, leader_epoch=3
                )
            )
        topics.append(of_topic(name=each.name, partitions=parts))
    made = response(throttle_time_ms=0, topics=topics)
    return b"\0\0\0\x07" + bytes(made.encode(version=VERSION))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time passes only where it is waited for."""
    now = SimpleNamespace(s=0.0)

    def sleep(seconds: float) -> None:
        now.s += seconds

    monkeypatch.setattr(offset_lookup, "time", SimpleNamespace(monotonic=lambda: now.s, sleep=sleep))
    return now


def asked_of(brokers: Any, places: Sequence[Place], asked: OffsetsOf = END) -> dict[Place, int]:
    return look_up(brokers, places, asked, seconds=1)


def test_one_request_goes_to_each_leader_with_the_epoch_of_each_partition() -> None:
    brokers = Brokers([right], [{"a": topic({0: ONE, 1: TWO, 2: ONE}), "bb": topic({0: TWO}, epoch=9)}])
    assert asked_of(brokers, [("a", 0), ("a", 1), ("a", 2), ("bb", 0)], OffsetsOf(1234, False)) == {
        ("a", 0): 1, ("a", 1): 101, ("a", 2): 201, ("bb", 0): 2,
    }  # fmt: skip
    assert [address for address, _ in brokers.asked] == [ONE, TWO]
    first, second = (request for _, request in brokers.asked)
    assert (first.replica_id, first.isolation_level) == (-1, 0)
    (only,) = first.topics
    assert [(p.partition_index, p.current_leader_epoch, p.timestamp) for p in only.partitions] == [
        (0, 3, 1234),
        (2, 3, 1234),
    ]
    assert [(t.name, p.partition_index, p.current_leader_epoch) for t in second.topics for p in t.partitions] == [
        ("a", 1, 3),
        ("bb", 0, 9),
    ]


def test_the_request_is_as_kafka_python_writes_it() -> None:
    asked = {"ä": np.zeros(1, [("partition", ">i4"), ("epoch", ">i4"), ("time", ">i8")])}
    frame = encode_request(asked, OffsetsOf(EARLIEST, True), 7, "me")
    request = ListOffsetsRequest.decode(frame[4:], version=VERSION, header=True)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert (request.isolation_level, request.topics[0].name) == (1, "ä")
    assert request.topics[0].partitions[0].timestamp == EARLIEST


@pytest.mark.parametrize("code", [3, 5, 6, 74, 76, 78])
def test_who_leads_no_more_is_left_for_the_new_leader(code: int) -> None:
    """Partition 1 moved: only it is asked for once more, of the broker that leads by then, with its epoch."""

    def moved(name: str, partition: int, epoch: int) -> tuple[int, int]:
        return right(name, partition, epoch) if partition == 0 else (code, -1)

    brokers = Brokers([moved, right], [{"a": topic({0: ONE, 1: ONE})}, {"a": topic({0: ONE, 1: TWO}, epoch=4)}])
    assert asked_of(brokers, [("a", 0), ("a", 1)]) == {("a", 0): 1, ("a", 1): 101}
    address, request = brokers.asked[-1]
    ((asked,),) = (each.partitions for each in request.topics)
    assert (address, asked.partition_index, asked.current_leader_epoch) == (TWO, 1, 4)
    assert not brokers.forgotten


def test_a_connection_that_broke_is_replaced() -> None:
    brokers = Brokers([ConnectionLost("closed"), right], [{"a": topic({0: ONE})}])
    assert asked_of(brokers, [("a", 0)]) == {("a", 0): 1}
    assert brokers.forgotten == [ONE]


def test_a_partition_that_is_new_or_has_no_leader_is_waited_for() -> None:
    brokers = Brokers([right], [{"a": topic({0: ONE})}, {"a": topic({0: ONE, 1: ONE})}])
    assert asked_of(brokers, [("a", 0), ("a", 1)]) == {("a", 0): 1, ("a", 1): 101}


@pytest.mark.parametrize(
    ("script", "leaders", "why"),
    [
        ([ConnectionLost("did not answer in time")], {"a": topic({0: ONE})}, "one:1: did not answer in time"),
        ([lambda *_: (6, -1)], {"a": topic({0: ONE})}, "a-0: NotLeaderForPartitionError"),
        ([lambda *_: (29, -1)], {"a": topic({0: ONE})}, "a-0: TopicAuthorizationFailedError"),
        ([right], {"a": TopicMetadata(None, {}, 1)}, "a-0 has no leader"),
        ([right], {"a": TopicMetadata(None, {}, 0)}, "there is no a-0"),
        ([TerminalError("refuses this user")], {"a": topic({0: ONE})}, "refuses this user"),
        ([kafka.errors.TopicAuthorizationFailedError("topic a")], {"a": topic({0: ONE})}, "topic a"),
    ],
)
def test_what_is_not_answered_in_time_is_an_error(script: Any, leaders: Any, why: str) -> None:
    with pytest.raises(OffsetsUnknown, match=why):
        asked_of(Brokers(script, [leaders]), [("a", 0)])


def test_an_answer_that_ends_early_is_a_broken_connection() -> None:
    request = SimpleNamespace(topics=[SimpleNamespace(name="a", partitions=[])])
    data = answered(request, right)
    for cut in range(8, len(data) - 1):
        with pytest.raises(ConnectionLost):
            decode_answer(memoryview(data[:cut]))
