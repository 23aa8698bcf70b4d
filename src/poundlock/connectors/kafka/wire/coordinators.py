"""What a producer asks of coordinators: who it is, and which partitions and offsets belong to its transaction.

A coordinator that moves, starts or still ends the transaction before is asked again; nothing asked here does more when it is asked twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from poundlock.connectors.kafka.client_loader import kafka_python
from poundlock.connectors.kafka.offsets import Partition
from poundlock.connectors.kafka.wire.connection import BrokerConnection
from poundlock.connectors.kafka.wire.fetch_client import Address, FetchClient

_GROUP, _TRANSACTION = 0, 1
_AGAIN = frozenset((3, 7, 14, 15, 16, 51, 55))
"""A topic that is not known everywhere yet, a timeout, a coordinator that starts or moved, a transaction before that is being ended."""
_UNKNOWN_ID = 105
_MOVED = (14, 15, 16)  # a coordinator that starts, is not there, or is another broker
_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.5


class BrokerRefusal(Exception):
    """A broker's answer that asking again does not change: its number and the name of it."""

    def __init__(self, code: int, what: str = "") -> None:
        self.code, self.name = code, str(kafka_python("errors").for_code(code).__name__)
        super().__init__(f"Broker: {self.name}{': ' if what else ''}{what}")


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What a broker knows a producer by; without a transactional id it has no transactions."""

    id: int = -1
    epoch: int = -1
    transactional_id: str | None = None


def init_producer(client: FetchClient, tid: str | None, timeout_ms: int, seconds: float) -> ProducerIdentity:
    """Return a new identity. What was open under the transactional id is aborted, and whoever had it can write no more.

    Raises:
        BrokerRefusal: this user may not, or the timeout is longer than brokers allow.
        OSError: nobody answers within so many seconds.
    """
    request = kafka_python("protocol.producer.transaction").InitProducerIdRequest

    def made() -> Any:
        return request(
            transactional_id=tid, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1, max_version=4
        )

    answer = _asked(client, None if tid is None else (_TRANSACTION, tid), made, lambda a: [a.error_code], seconds)
    return ProducerIdentity(int(answer.producer_id), int(answer.producer_epoch), tid)


def transaction_state(client: FetchClient, tid: str, seconds: float) -> str | None:
    """Return the state of a transactional id, such as "Ongoing" or "CompleteCommit", None if its coordinator does not know it.

    Raises as `init_producer` does.
    """
    request = kafka_python("protocol.admin").DescribeTransactionsRequest

    def codes(answer: Any) -> list[int]:
        return [state.error_code for state in answer.transaction_states if state.error_code != _UNKNOWN_ID]

    answer = _asked(client, (_TRANSACTION, tid), lambda: request(transactional_ids=[tid]), codes, seconds)
    (state,) = answer.transaction_states
    return None if state.error_code else str(state.transaction_state)


class Transaction:
    """The open transaction of a producer. All raise as `init_producer` does."""

    places: set[Partition]
    """The partitions that were added."""
    begun_ms: int = 0
    """When the first of them was added, by the clock of this machine, ms since the epoch; 0 before."""

    def __init__(self, client: FetchClient, who: ProducerIdentity, seconds: float) -> None:
        self._client, self._who, self._seconds = client, who, seconds
        self.places = set()

    def add_partitions(self, places: Iterable[Partition]) -> None:
        """Add partitions, which must be done before anything is written to them."""
        request = kafka_python("protocol.producer.transaction").AddPartitionsToTxnRequest
        places = list(places)
        self.begun_ms = self.begun_ms or time.time_ns() // 1_000_000
        by_topic = [
            request.AddPartitionsToTxnTopic(name=topic, partitions=[partition for _, partition in group])
            for topic, group in groupby(sorted(places), key=lambda place: place[0])
        ]

        def made() -> Any:
            return request(
                v3_and_below_transactional_id=self._who.transactional_id,
                v3_and_below_producer_id=self._who.id,
                v3_and_below_producer_epoch=self._who.epoch,
                v3_and_below_topics=by_topic,
                max_version=3,
            )

        def codes(answer: Any) -> list[int]:
            topics = answer.results_by_topic_v3_and_below
            return [p.partition_error_code for topic in topics for p in topic.results_by_partition]

        _asked(self._client, (_TRANSACTION, str(self._who.transactional_id)), made, codes, self._seconds)
        self.places.update(places)

    def add_offset(self, group: str, topic: str, offset: int, metadata: str, seconds: float) -> None:
        """Add the offset of a group nobody is a member of, for partition 0 of a topic; wait for each answer at most so long."""
        messages = kafka_python("protocol.producer.transaction")
        w, commit = self._who, messages.TxnOffsetCommitRequest
        who = {
            "transactional_id": w.transactional_id,
            "producer_id": w.id,
            "producer_epoch": w.epoch,
            "group_id": group,
        }
        tid = str(w.transactional_id)

        def added() -> Any:
            return messages.AddOffsetsToTxnRequest(**who, max_version=3)

        _asked(self._client, (_TRANSACTION, tid), added, lambda answer: [answer.error_code], seconds)
        parts = commit.TxnOffsetCommitRequestTopic
        partition = parts.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=metadata
        )

        def made() -> Any:
            topics = [parts(name=topic, partitions=[partition])]
            return commit(**who, generation_id=-1, member_id="", group_instance_id=None, topics=topics, max_version=3)

        def codes(answer: Any) -> list[int]:
            return [p.error_code for topic in answer.topics for p in topic.partitions]

        _asked(self._client, (_GROUP, group), made, codes, seconds)


def _asked(
    client: FetchClient,
    key: tuple[int, str] | None,
    made: Callable[[], Any],
    codes: Callable[[Any], Sequence[int]],
    seconds: float,
) -> Any:
    """Return the answer of the coordinator of a key, or of any broker, to a request that is made for each try."""
    end, pause = time.monotonic() + seconds, _PAUSE_S
    while True:
        code, lost = 0, None
        try:
            if key is None:
                answer = client.ask_any(lambda connection: connection.request(made()))
            else:
                with client.lent(_coordinator(client, *key)) as connection:
                    answer = connection.request(made())
            code = max(codes(answer), key=lambda c: (c != 0, c not in _AGAIN), default=0)
            if not code:
                return answer
        except _NotNow as error:
            code = error.args[0]
        except OSError as error:
            lost = error
        if key is not None and (lost is not None or code in _MOVED):
            client.forget_coordinator(key)
        if lost is None and code not in _AGAIN:
            raise BrokerRefusal(code)
        if time.monotonic() > end:
            raise lost or BrokerRefusal(code)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


class _NotNow(Exception):
    """There is no coordinator at the moment, or this user may not ask: the number of the answer."""


def _coordinator(client: FetchClient, kind: int, key: str) -> Address:
    request = kafka_python("protocol.metadata").FindCoordinatorRequest

    def ask(connection: BrokerConnection) -> Address:
        answer = connection.request(request(key=key, key_type=kind, max_version=3))
        if answer.error_code:
            raise _NotNow(answer.error_code)
        return str(answer.host), int(answer.port)

    return client.coordinator((kind, key), ask)
