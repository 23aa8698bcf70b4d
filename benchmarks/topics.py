"""The topics of the cases: one is filled for them to read, another is made for an output, proven afterwards, then deleted.

What is counted is what a read_committed consumer gets that has nothing to do with the engine that wrote.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka

from benchmarks.data import Input, WrongOutput, fingerprint
from poundlock.testing.topics import Topics

__all__ = ["PARTITIONS", "committed_values", "fill", "output_topic", "produce", "produce_to", "prove"]

_BATCH = 20_000
QUIET_S = 30.0
PARTITIONS, _STRETCH = 3, 100


def produce(broker: Topics, name: str, records: Iterable[tuple[bytes, Mapping[str, Any]]]) -> None:
    """Make a topic of three partitions with the records, each a value and the further arguments of `Producer.produce`.

    Raises:
        WrongOutput: the broker did not take all of them.
    """
    broker.create_topic(name, partitions=PARTITIONS)
    producer = broker.producer(linger_ms=50, batch_size=500_000, queue_buffering_max_messages=500_000)
    for i, (value, more) in enumerate(records):
        if i % 10_000 == 0:
            producer.poll(0)
        while True:
            try:
                producer.produce(name, value, **more)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300):
        raise WrongOutput(f"the broker did not take all records of topic {name}")


def fill(broker: Topics, name: str, blocks: Iterable[Sequence[bytes]]) -> None:
    """Make a topic of three partitions; each gets every third stretch of a hundred lines of a block, in their order.

    Raises:
        WrongOutput: the broker did not take all lines.
    """
    in_partition = [{"partition": partition} for partition in range(PARTITIONS)]
    numbered = ((number + i // _STRETCH, line) for number, lines in enumerate(blocks) for i, line in enumerate(lines))
    produce(broker, name, ((line, in_partition[stretch % PARTITIONS]) for stretch, line in numbered))


def produce_to(broker: Topics, names: Sequence[str], partitions: int, rows: int) -> list[bytes]:
    """Make topics of so many partitions with so many records in each; return the values, every one of which is another.

    Raises:
        WrongOutput: the broker did not take all of them.
    """
    values: list[bytes] = []
    for name in names:
        broker.create_topic(name, partitions=partitions)
    producer = broker.producer(linger_ms=50)
    for name in names:
        for partition in range(partitions):
            for row in range(rows):
                values.append(b"%s/%d/%d" % (name.encode(), partition, row))
                producer.produce(name, values[-1], partition=partition)
        producer.poll(0)
    if producer.flush(300):
        raise WrongOutput("the broker did not take all records")
    return values


@contextmanager
def output_topic(broker: Topics, name: str, partitions: int) -> Iterator[str]:
    """Make an empty topic and delete it in the end."""
    if name in broker.admin.list_topics(timeout=30).topics:
        broker.delete_topic(name)
    broker.create_topic(name, partitions=partitions)
    try:
        yield name
    finally:
        broker.delete_topic(name)


def committed_values(servers: str, topic: str, *, quiet_s: float = QUIET_S) -> Iterator[list[bytes]]:
    """Yield the values of all committed records, up to where the partitions end now.

    Args:
        servers: host:port.
        topic: its name.
        quiet_s: how long nothing may come before the end; a transaction that is being ended takes a moment.

    Raises:
        WrongOutput: a transaction is open before the end, or a record has no value.
    """
    settings = {
        "bootstrap.servers": servers, "group.id": "bench-reader", "isolation.level": "read_committed",
        "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50, "queued.max.messages.kbytes": 65536,
    }  # fmt: skip
    consumer = confluent_kafka.Consumer(settings)
    try:
        numbers = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        ends = {n: _end(servers, topic, n) for n in numbers}
        consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in numbers])
        quiet = time.monotonic() + quiet_s
        unread = {n for n, end in ends.items() if end > 0}
        while unread:
            values = []
            for message in consumer.consume(_BATCH, 0.5):
                if message.error() is None:
                    values.append(_value(message, topic))
                elif message.error().code() != confluent_kafka.KafkaError._PARTITION_EOF:
                    raise WrongOutput(f"topic {topic} cannot be read: {message.error().str()}")
                elif message.offset() >= ends[message.partition()]:  # an open transaction is an end before the end
                    unread.discard(message.partition())
            if values:
                quiet = time.monotonic() + quiet_s
                yield values
            if unread and time.monotonic() > quiet:
                raise WrongOutput(f"topic {topic}: partitions {sorted(unread)} end in an open transaction")
    finally:
        consumer.close()


def _value(message: Any, topic: str) -> bytes:
    value: bytes | None = message.value()
    if value is None:
        raise WrongOutput(f"topic {topic} has a record without a value at {message.partition()}:{message.offset()}")
    return value


def _end(servers: str, topic: str, partition: int) -> int:
    """Return the end offset, open transactions included, which only a reader of uncommitted records is told."""
    settings = {"bootstrap.servers": servers, "group.id": "bench-ends", "isolation.level": "read_uncommitted"}
    consumer = confluent_kafka.Consumer(settings)
    try:
        _, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), timeout=30)
        return int(high)
    finally:
        consumer.close()


def prove(servers: str, topic: str, expected: Input, *, quiet_s: float = QUIET_S) -> None:
    """Read a topic and compare it with the input; see `committed_values`.

    Raises:
        WrongOutput: a row is missing, twice or changed, or a transaction was left open.
    """
    rows, total = 0, 0
    for values in committed_values(servers, topic, quiet_s=quiet_s):
        rows += len(values)
        total = (total + fingerprint(b"\n".join(values) + b"\n")) % (1 << 64)
    if rows != expected.rows or total != expected.fingerprint:
        same = "and other bytes" if rows == expected.rows else "in all"
        raise WrongOutput(f"{rows} of {expected.rows} rows came out {same} in topic {topic}")
