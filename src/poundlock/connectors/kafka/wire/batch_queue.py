"""Record batches on their way to the leaders of their partitions: several requests at a time to each broker, each batch once and in order.

A batch keeps the sequence it was given, and one that has to be sent again goes before all that follow it in its partition, which wait
until it has arrived. So a broker knows what it has already, and refuses what would come out of order. What is not plainly the one or
the other is an error: the transaction is then not committed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from poundlock.connectors.kafka.client_loader import kafka_python
from poundlock.connectors.kafka.offsets import Partition
from poundlock.connectors.kafka.sink.client_options import ProduceSettings
from poundlock.connectors.kafka.wire.connection import BrokerConnection, ConnectionLost, readable
from poundlock.connectors.kafka.wire.coordinators import BrokerRefusal, ProducerIdentity, Transaction
from poundlock.connectors.kafka.wire.fetch_client import Address, FetchClient
from poundlock.connectors.kafka.wire.produce_protocol import Piece, Topics
from poundlock.connectors.kafka.wire.record_encoder import BatchKind, RecordRun, encode_batch

_OUT_OF_ORDER, _DUPLICATE = 45, 46
_AGAIN = frozenset((2, 3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 51, 56, 72, 74, 75, 89))
"""No leader or another one, a timeout, too few replicas, a disk that failed, a partition that is not in the transaction yet."""
_SEQUENCES = 1 << 31
_GRACE_S = 5.0  # a broker gives up by itself when the time of a request is over


class Undelivered(Exception):
    """Batches that were not taken in time: how many messages, after how many seconds, and why."""

    def __init__(self, messages: int, seconds: float, why: str) -> None:
        self.messages, self.seconds = messages, seconds
        super().__init__(why)


@dataclass(slots=True)
class _Batch:
    number: int  # in its partition
    pieces: Sequence[Piece]
    size: int
    messages: int
    first_try: float | None = None
    tries: int = 0


@dataclass(slots=True)
class _Lane:
    """What is on its way to one partition."""

    place: Partition
    waiting: deque[_Batch] = field(default_factory=deque)
    in_flight: int = 0
    open: set[int] = field(default_factory=set)  # the numbers of the batches that have not arrived, as far as is known
    batches: int = 0
    sequence: int = 0
    # A broker takes any sequence for the first one of a producer that it does not know, and a batch that is sent again must not be
    # overtaken: until one has arrived, one is on its way.
    one_by_one: bool = True
    added: bool = False  # to the transaction
    not_before: float = 0.0
    pause: float = 0.0

    def is_ready(self, now: float) -> bool:
        """Return whether the next batch may be sent."""
        return bool(self.waiting) and now >= self.not_before and not (self.one_by_one and self.in_flight)


@dataclass(slots=True)
class _Broker:
    lease: AbstractContextManager[BrokerConnection]
    connection: BrokerConnection
    sent: deque[list[tuple[_Lane, _Batch]]] = field(default_factory=deque)
    waited_s: float = 0.0


class BatchQueue:
    """Used by one thread. Raises BrokerRefusal, Undelivered, TerminalError; after any of them it is only good to be closed."""

    def __init__(
        self,
        client: FetchClient,
        who: ProducerIdentity,
        settings: ProduceSettings,
        transaction: Transaction | None,
        patience_s: float,
    ) -> None:
        self._patience_s = patience_s  # how long a batch is tried
        self._client, self._who, self._settings, self._transaction = client, who, settings, transaction
        transactional = transaction is not None
        self._kind = BatchKind(who.id, who.epoch, transactional, settings.compression, settings.compression_level)
        self._lanes: dict[Partition, _Lane] = {}
        self._waiting: dict[Partition, _Lane] = {}
        self._brokers: dict[Address, _Broker] = {}
        self._stale: set[str] = set()
        self._bytes = self.messages = 0
        """How many messages no broker has taken yet."""

    def put(self, place: Partition, run: RecordRun) -> None:
        """Take a batch, and wait while there are too many."""
        lane = self._lanes.setdefault(place, _Lane(place))
        sequence = lane.sequence if self._who.id >= 0 else -1
        pieces = encode_batch(run, self._kind, sequence)
        batch = _Batch(lane.batches, pieces, sum(map(len, pieces)), run.count)
        lane.sequence = (lane.sequence + run.count) % _SEQUENCES
        lane.open.add(lane.batches)
        lane.batches += 1
        lane.waiting.append(batch)
        self._waiting[place] = lane
        self._bytes += batch.size
        self.messages += batch.messages
        self.poll()
        while self._bytes > self._settings.buffer_bytes:
            self._step(1.0)

    def poll(self) -> None:
        """Send what can be sent and take what was answered, without waiting."""
        self._step(0.0)
        self._dispatch()

    def flush(self, seconds: float) -> None:
        """Wait until brokers have taken everything. Raises Undelivered after so many seconds."""
        end = time.monotonic() + seconds
        while self.messages:
            self._step(min(1.0, max(end - time.monotonic(), 0.01)))
            if self.messages and time.monotonic() > end:
                raise Undelivered(self.messages, seconds, "no answer")

    def drain(self, seconds: float) -> None:
        """Send nothing more, and wait until brokers have answered what was sent: it must not come behind the end of its transaction."""
        end = time.monotonic() + seconds
        self._waiting.clear()
        for broker in self._brokers.values():
            while broker.sent and readable([broker.connection], end - time.monotonic()):
                broker.connection.answer()
                broker.sent.popleft()

    def close(self) -> None:
        """Forget what is on its way."""
        for broker in self._brokers.values():
            broker.lease.__exit__(None, None, None)
        self._brokers.clear()

    def _step(self, seconds: float) -> None:
        """Send what can be sent, and take answers as soon as there are some, at the latest after so many seconds."""
        self._dispatch()
        busy = {id(b.connection): address for address, b in self._brokers.items() if b.sent}
        if not busy:
            if seconds and self._waiting:
                time.sleep(min(seconds, max(self._next_try() - time.monotonic(), 0.001)))
            return
        began = time.monotonic()
        seconds = max(min(seconds, self._next_try() - began), 0.0)
        for connection in readable([self._brokers[address].connection for address in busy.values()], seconds):
            self._receive(busy.pop(id(connection)))
        if seconds:
            for address in busy.values():
                broker = self._brokers[address]
                broker.waited_s += time.monotonic() - began
                if broker.waited_s > self._settings.request_timeout_s + _GRACE_S:
                    self._lose(address, ConnectionLost(f"{address[0]}:{address[1]} did not answer in time"))

    def _next_try(self) -> float:
        now = time.monotonic()
        return min((lane.not_before for lane in self._waiting.values() if lane.not_before > now), default=now + 1.0)

    # -- sending -------------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        now = time.monotonic()
        by_leader: dict[Address, list[_Lane]] = {}
        for lane in [lane for lane in self._waiting.values() if lane.is_ready(now)]:
            leader = self._leader(lane)
            if leader is not None:
                by_leader.setdefault(leader, []).append(lane)
        for address, lanes in by_leader.items():
            while lanes and self._has_room(address):
                chosen = self._chosen(lanes)
                self._send(address, chosen)
                lanes = [lane for lane in lanes if lane.is_ready(now)]

    def _has_room(self, address: Address) -> bool:
        broker = self._brokers.get(address)
        return broker is None or len(broker.sent) < self._settings.most_in_flight

    def _leader(self, lane: _Lane) -> Address | None:
        topic = lane.place[0]
        try:
            metadata = self._client.topic(topic, again=topic in self._stale)
        except OSError as error:
            self._postpone(lane, str(error))
            return None
        self._stale.discard(topic)
        leader = metadata.leaders.get(lane.place[1])
        if leader is None:
            self._postpone(lane, f"{topic}-{lane.place[1]} has no leader")
        return leader

    def _chosen(self, lanes: Iterable[_Lane]) -> list[tuple[_Lane, _Batch]]:
        """Take the next batch of as many partitions as fit into a request."""
        chosen: list[tuple[_Lane, _Batch]] = []
        size = 0
        for lane in lanes:
            batch = lane.waiting[0]
            if chosen and size + batch.size > self._settings.request_bytes:
                break
            chosen.append((lane, lane.waiting.popleft()))
            size += batch.size
            lane.in_flight += 1
            batch.tries += 1
            batch.first_try = batch.first_try or time.monotonic()
            if not lane.waiting:
                del self._waiting[lane.place]
        return chosen

    def _send(self, address: Address, batches: list[tuple[_Lane, _Batch]]) -> None:
        new = [lane for lane, _ in batches if not lane.added]
        if new and self._transaction is not None:
            self._transaction.add_partitions([lane.place for lane in new])
        for lane in new:
            lane.added = True
        try:
            broker = self._brokers.get(address)
            if broker is None:
                lease = self._client.lent(address)
                broker = self._brokers[address] = _Broker(lease, lease.__enter__())
            broker.sent.append(batches)
            broker.connection.send_produce(self._request(), _topics(batches))
        except OSError as error:
            if address not in self._brokers:
                self._requeue(batches, str(error))
            else:
                self._lose(address, error)
            return
        if not self._settings.acks:
            for lane, batch in broker.sent.pop():
                self._taken(lane, batch)

    def _request(self) -> Any:
        return kafka_python("protocol.producer").ProduceRequest(
            transactional_id=self._who.transactional_id,
            acks=self._settings.acks,
            topic_data=[],
            timeout_ms=int(self._settings.request_timeout_s * 1000),
            min_version=3,
            max_version=11,
        )

    # -- answers -------------------------------------------------------------------------------------------------------

    def _receive(self, address: Address) -> None:
        broker = self._brokers[address]
        try:
            answer = broker.connection.answer()
        except OSError as error:
            self._lose(address, error)
            return
        broker.waited_s = 0.0
        by_place = {
            (topic.name, partition.index): partition
            for topic in answer.responses
            for partition in topic.partition_responses
        }
        for lane, batch in broker.sent.popleft():
            result = by_place[lane.place]
            self._answered(lane, batch, int(result.error_code), result.error_message or "")

    def _answered(self, lane: _Lane, batch: _Batch, code: int, what: str) -> None:
        # One before it has failed too, or its answer is still to come from the broker that led until now. Where all before it have
        # arrived, it may be there itself: a broker that was killed remembers the last batch only. That is an error, as to Java's.
        overtook = code == _OUT_OF_ORDER and min(lane.open) < batch.number
        if not code or (code == _DUPLICATE and batch.tries > 1):
            self._taken(lane, batch)
        elif code in _AGAIN or overtook:
            self._requeue([(lane, batch)], str(BrokerRefusal(code, what)))
        else:
            raise BrokerRefusal(code, what)

    def _taken(self, lane: _Lane, batch: _Batch) -> None:
        lane.in_flight -= 1
        lane.open.discard(batch.number)
        lane.one_by_one, lane.pause = any(number < batch.number for number in lane.open), 0.0
        self._bytes -= batch.size
        self.messages -= batch.messages

    def _lose(self, address: Address, error: Exception) -> None:
        """Give up a connection; what was under way by it is sent again, by another."""
        broker = self._brokers.pop(address)
        broker.lease.__exit__(type(error), error, error.__traceback__)
        self._client.forget(address)
        for batches in broker.sent:
            self._requeue(batches, str(error))

    def _requeue(self, batches: Iterable[tuple[_Lane, _Batch]], why: str) -> None:
        for lane, batch in batches:
            lane.in_flight -= 1
            lane.waiting = deque(sorted((batch, *lane.waiting), key=lambda b: b.number))
            lane.one_by_one = True
            self._waiting[lane.place] = lane
            self._postpone(lane, why)

    def _postpone(self, lane: _Lane, why: str) -> None:
        """Let a partition wait a moment, and ask for its leader again. Raises Undelivered once that went on for too long."""
        now, first = time.monotonic(), lane.waiting[0]
        first.first_try = first.first_try or now
        if now - first.first_try > self._patience_s:
            raise Undelivered(self.messages, self._patience_s, why)
        lane.pause = min(2 * lane.pause or self._settings.backoff_s, self._settings.backoff_max_s)
        lane.not_before = now + lane.pause
        self._stale.add(lane.place[0])


def _topics(batches: Iterable[tuple[_Lane, _Batch]]) -> Topics:
    topics: dict[str, list[tuple[int, Sequence[Piece]]]] = {}
    for lane, batch in batches:
        topics.setdefault(lane.place[0], []).append((lane.place[1], batch.pieces))
    return topics
