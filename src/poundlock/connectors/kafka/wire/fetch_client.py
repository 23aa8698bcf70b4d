"""The connections of one process to one cluster: which broker leads a partition, and connections that are kept and lent out.

A connection is lent to one range at a time; one that still awaits an answer is closed instead of being taken back. What is kept
is only a cache: losing it costs time.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from poundlock.connectors.kafka.client_loader import kafka_python
from poundlock.connectors.kafka.login import Login
from poundlock.connectors.kafka.source.client_properties import FetchSettings
from poundlock.connectors.kafka.wire.connection import BrokerConnection, ConnectionLost

Address = tuple[str, int]
_T = TypeVar("_T")
_UNKNOWN_TOPIC = 3


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as a broker knows it: its id, None where brokers are older than ids, the address of the leader of each partition that has
    one, how many partitions it has, 0 if there is no such topic, and the epoch of each leader, where brokers tell it.
    """

    id: uuid.UUID | None
    leaders: Mapping[int, Address]
    partitions: int
    epochs: Mapping[int, int] = field(default_factory=dict)


def fetch_client(servers: str, who: Login, settings: FetchSettings) -> FetchClient:
    """Return this process's client; a task that follows another in a worker finds its connections open."""
    return _clients(os.getpid(), servers, who, settings)


@cache
def _clients(process: int, servers: str, who: Login, settings: FetchSettings) -> FetchClient:
    return FetchClient(servers, who, settings)


class FetchClient:
    """Threads may share it; a connection belongs to the one it is lent to."""

    def __init__(self, servers: str, who: Login, settings: FetchSettings) -> None:
        self.servers, self.settings = servers, settings
        self._who = who
        self._lock = threading.Lock()
        self._idle: dict[Address, list[BrokerConnection]] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._brokers: list[Address] = []
        self._coordinators: dict[tuple[int, str], Address] = {}

    def topic(self, name: str, *, again: bool = False, create: bool = False) -> TopicMetadata:
        """Return what is known of a topic, or ask `again`; `create` lets brokers make it that make topics on demand.

        Raises:
            OSError: no broker answers; another try may help.
            TerminalError: a broker refuses this client.
        """
        return self.topics([name], again=again, create=create)[name]

    def topics(self, names: Sequence[str], *, again: bool = False, create: bool = False) -> Mapping[str, TopicMetadata]:
        """Return what is known of topics, those that are not known asked for at once; takes and raises what `topic` does."""
        if wanted := [name for name in names if again or name not in self._topics]:
            self._topics.update(self.ask_any(lambda connection: self._metadata(connection, wanted, create)))
        return {name: self._topics[name] for name in names}

    def ask_any(self, ask: Callable[[BrokerConnection], _T]) -> _T:
        """Return what the first broker that answers gives to a question. Raises as `topic` does."""
        errors: list[str] = []
        for address in dict.fromkeys([*self._brokers, *_addresses(self.servers)]):
            try:
                with self.lent(address) as connection:
                    return ask(connection)
            except OSError as error:
                errors.append(f"{address[0]}:{address[1]}: {error}")
        raise ConnectionLost(f"no Kafka server answers at {self.servers}: {'; '.join(errors[:4])}")

    def coordinator(self, key: tuple[int, str], ask: Callable[[BrokerConnection], Address]) -> Address:
        """Return the address of a coordinator: as it was last answered, else by a question. Raises as `topic` does, and as `ask`."""
        known = self._coordinators.get(key)
        if known is None:
            known = self._coordinators[key] = self.ask_any(ask)
        return known

    def forget_coordinator(self, key: tuple[int, str]) -> None:
        """Have the next question for a coordinator be asked: it moved, or does not answer."""
        self._coordinators.pop(key, None)

    def _metadata(
        self, connection: BrokerConnection, names: Sequence[str], create: bool
    ) -> Mapping[str, TopicMetadata]:
        request = kafka_python("protocol.metadata").MetadataRequest
        topics = [request.MetadataRequestTopic(name=name) for name in names]
        answer = connection.request(
            request(topics=topics, allow_auto_topic_creation=create, min_version=4, max_version=12)
        )
        brokers: dict[int, Address] = {b.node_id: (b.host, b.port) for b in answer.brokers}
        self._brokers = list(brokers.values())
        return {topic.name: _topic_metadata(topic, brokers) for topic in answer.topics}

    @contextmanager
    def lent(self, address: Address) -> Iterator[BrokerConnection]:
        """Lend a connection to a broker: one that is kept, else a new one, which raises as `BrokerConnection` does."""
        connection = self._take(address) or BrokerConnection(*address, self._who, self.settings)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if connection.awaits_answer:
            connection.close()
            return
        with self._lock:
            self._idle.setdefault(address, []).append(connection)

    def _take(self, address: Address) -> BrokerConnection | None:
        with self._lock:
            kept = self._idle.get(address, [])
            while kept:
                connection = kept.pop()
                if connection.is_fresh:
                    return connection
                connection.close()
        return None

    def forget(self, address: Address) -> None:
        """Close the idle connections to a broker: one of them broke, so the others are of before too."""
        with self._lock:
            for connection in self._idle.pop(address, []):
                connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        for address in list(self._idle):
            with contextlib.suppress(OSError):
                self.forget(address)


def _topic_metadata(topic: Any, brokers: Mapping[int, Address]) -> TopicMetadata:
    errors = kafka_python("errors")
    if topic.error_code == _UNKNOWN_TOPIC:
        return TopicMetadata(None, {}, 0)
    if topic.error_code == errors.TopicAuthorizationFailedError.errno:
        raise errors.TopicAuthorizationFailedError(f"topic {topic.name}")
    if topic.error_code and not topic.partitions:
        raise ConnectionLost(f"topic {topic.name}: {errors.for_code(topic.error_code).__name__}")
    given = getattr(topic, "topic_id", None)
    leaders, epochs = {}, {}
    for part in topic.partitions:
        if part.leader_id in brokers:
            leaders[part.partition_index] = brokers[part.leader_id]
            epochs[part.partition_index] = -1 if part.leader_epoch is None else int(part.leader_epoch)
    return TopicMetadata(given if given else None, leaders, len(topic.partitions), epochs)


def _addresses(servers: str) -> list[Address]:
    parts = [server.rpartition(":") for server in servers.split(",")]
    return [(host.strip("[]"), int(port)) for host, _, port in parts]


def first_offset(connection: BrokerConnection, topic: str, partition: int) -> int:
    """Return the first offset that a partition still has. Raises ConnectionLost if the broker does not say."""
    return _offset(connection, topic, partition, -2)


def end_offset(connection: BrokerConnection, topic: str, partition: int, *, committed: bool = False) -> int:
    """Return the offset after the last record of a partition, or before the first open transaction; raises as `first_offset`."""
    return _offset(connection, topic, partition, -1, committed)


def _offset(connection: BrokerConnection, topic: str, partition: int, when: int, committed: bool = False) -> int:
    request: Any = kafka_python("protocol.consumer").ListOffsetsRequest
    parts = request.ListOffsetsTopic
    asked = parts.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=when)
    topics, level = [parts(name=topic, partitions=[asked])], int(committed)
    answer = connection.request(
        request(replica_id=-1, isolation_level=level, topics=topics, min_version=2, max_version=6)
    )
    result = answer.topics[0].partitions[0]
    if result.error_code:
        raise ConnectionLost(f"{topic}-{partition}: {kafka_python('errors').for_code(result.error_code).__name__}")
    return int(result.offset)
