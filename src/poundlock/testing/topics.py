"""Topics and records of a Kafka broker, for tests: create, delete, produce, read, look at offsets.

Every method returns only when the broker has done what was asked, so that a test need not wait.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from poundlock.connectors.kafka.client_loader import confluent
from poundlock.errors import TransientError

_AGREE_S = 30.0


@dataclass(frozen=True, slots=True)
class Record:
    """A record to produce, or one that was read. Text is sent as UTF-8; a value of None is a tombstone."""

    value: bytes | str | None
    key: bytes | str | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = field(default_factory=tuple)
    offset: int | None = None


class Topics(ABC):
    """What a test does with the topics of one broker."""

    _admin: Any = None
    _client_settings: Mapping[str, Any] = MappingProxyType({})

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """Host and port for clients."""

    @property
    def admin(self) -> Any:
        """A confluent_kafka AdminClient of this broker, kept until the broker goes away."""
        if self._admin is None:
            self._admin = confluent("admin").AdminClient(self._conf())
        return self._admin

    def _conf(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 0, **self._client_settings}

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, Any] | None = None) -> None:
        """Create a topic whose records never expire (unless `config` says so) and wait until it can be used."""
        settings = {"retention.ms": "-1", **{k: str(v) for k, v in (config or {}).items()}}
        topic = confluent("admin").NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        self.admin.create_topics([topic])[name].result(30)
        self._wait_for_partitions(name, partitions)

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, `total` in all, and wait until they can be used."""
        self.admin.create_partitions([confluent("admin").NewPartitions(name, total)])[name].result(30)
        self._wait_for_partitions(name, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until it is gone."""
        self.admin.delete_topics([name])[name].result(30)
        while name in self.admin.list_topics(timeout=30).topics:
            time.sleep(0.02)

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Delete the records of each partition before an offset, as retention does."""
        kafka = confluent()
        wanted = [kafka.TopicPartition(name, p, offset) for p, offset in before.items()]
        for future in self.admin.delete_records(wanted).values():
            future.result(30)

    def topic_id(self, name: str) -> str:
        """Return the id the broker gave this very topic."""
        description = self.admin.describe_topics(confluent().TopicCollection([name]))[name].result(30)
        return str(description.topic_id)

    def begin_offsets(self, name: str) -> dict[int, int]:
        """Return the first offset of each partition."""
        return self._offsets(name, "earliest")

    def end_offsets(self, name: str) -> dict[int, int]:
        """Return the offset after the last record of each partition, control records included."""
        return self._offsets(name, "latest")

    def _offsets(self, name: str, where: str) -> dict[int, int]:
        """Ask until the brokers agree on who leads: a partition reaches one, or one starts again, later than the metadata."""
        kafka, spec = confluent(), getattr(confluent("admin").OffsetSpec, where)()
        codes = kafka.KafkaError
        passing = (
            codes.NOT_LEADER_FOR_PARTITION, codes.LEADER_NOT_AVAILABLE, codes.UNKNOWN_TOPIC_OR_PART,
            codes.FENCED_LEADER_EPOCH, codes.UNKNOWN_LEADER_EPOCH,
        )  # fmt: skip
        end = time.monotonic() + _AGREE_S
        while True:
            count = len(self.admin.list_topics(name, timeout=30).topics[name].partitions)
            asked = self.admin.list_offsets({kafka.TopicPartition(name, p): spec for p in range(count)})
            try:
                return {partition.partition: int(future.result(30).offset) for partition, future in asked.items()}
            except kafka.KafkaException as error:
                if error.args[0].code() not in passing or time.monotonic() > end:
                    raise
            time.sleep(0.05)

    def _wait_for_partitions(self, name: str, count: int) -> None:
        while True:
            topic = self.admin.list_topics(timeout=30).topics.get(name)
            there = topic.partitions.values() if topic is not None else ()
            if len(there) >= count and all(partition.leader >= 0 for partition in there):
                break
            time.sleep(0.02)
        self.end_offsets(name)

    def producer(self, **settings: Any) -> Any:
        """Return a confluent_kafka Producer; settings as its own, with "_" for "."."""
        own = {k.replace("_", "."): v for k, v in settings.items()}
        return confluent().Producer({**self._conf(), "linger.ms": 5, **own})

    def produce(self, topic: str, records: Iterable[Record | bytes | str | None], **settings: Any) -> int:
        """Produce records in order, wait until the broker has them all, and return how many there were.

        Args:
            records: values, or `Record`s where more than the value matters.
            settings: of the producer, with "_" for ".", such as compression_type="lz4".

        Raises:
            TransientError: a record was not taken.
        """
        failed: list[Any] = []
        producer = self.producer(**settings)
        count = 0
        for record in records:
            send(producer, topic, record, lambda error, _: failed.append(error) if error else None)
            count += 1
        left = producer.flush(60)
        if failed or left:
            raise TransientError(f"{len(failed) + left} of {count} records were not taken by {topic}: {failed[:1]}")
        return count

    def read(self, topic: str, *, isolation: str = "read_committed", timeout: float = 30) -> list[Record]:
        """Return all records that a reader sees now, by partition and offset."""
        kafka = confluent()
        own = {"group.id": f"read-{uuid.uuid4()}", "isolation.level": isolation}
        consumer = kafka.Consumer({**self._conf(), **own, "enable.auto.commit": False, "enable.partition.eof": True})
        try:
            begin = self.begin_offsets(topic)
            consumer.assign([kafka.TopicPartition(topic, p, offset) for p, offset in begin.items()])
            records: list[Record] = []
            open_partitions, end = set(begin), time.monotonic() + timeout
            while open_partitions and time.monotonic() < end:
                for message in consumer.consume(1000, timeout=0.2):
                    error = message.error()
                    if error and error.code() == kafka.KafkaError._PARTITION_EOF:
                        open_partitions.discard(message.partition())
                    elif error:
                        raise TransientError(f"cannot read {topic}: {error}")
                    else:
                        records.append(_record(message))
        finally:
            consumer.close()
        return sorted(records, key=lambda r: (r.partition, r.offset))


def send(
    producer: Any, topic: str, record: Record | bytes | str | None, delivered: Callable[[Any, Any], None] | None
) -> None:
    """Hand one record to a producer, waiting where its queue is full."""
    r = record if isinstance(record, Record) else Record(record)
    more: dict[str, Any] = {} if r.partition is None else {"partition": r.partition}
    more |= {} if r.timestamp_ms is None else {"timestamp": r.timestamp_ms}
    more |= {"headers": list(r.headers)} if r.headers else {}
    while True:
        try:
            return producer.produce(topic, value=r.value, key=r.key, on_delivery=delivered, **more)  # type: ignore[no-any-return]
        except BufferError:
            producer.poll(0.1)


def _record(message: Any) -> Record:
    return Record(
        value=message.value(),
        key=message.key(),
        partition=message.partition(),
        timestamp_ms=message.timestamp()[1],
        headers=tuple(message.headers() or ()),
        offset=message.offset(),
    )
