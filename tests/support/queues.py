"""Systems of messages as the crash tests see them: what is given to a job, and what a job has sent.

A job reads what is given under the name "given", and sends to "copies"; see tests/crash/jobs/queues.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from poundlock import MqttSink
from poundlock.connectors.kinesis.client import KinesisStream
from poundlock.connectors.mqtt.connection import MqttAddress
from poundlock.connectors.mqtt.receiver import SessionReceiver
from poundlock.connectors.mqtt.sink import MqttSender
from poundlock.storage import LocalStorage
from poundlock.testing.s3 import EmbeddedS3
from support.fixtures import running_or_skipped
from support.mosquitto import EmbeddedMosquitto
from support.pulsar import EmbeddedPulsar

__all__ = ["SYSTEMS", "Queues"]


class Queues(Protocol):
    """One running system."""

    environment: dict[str, str]
    once: bool
    """Whether its sink sends each row once, and not at least once."""

    def give(self, numbers: Sequence[int]) -> None:
        """Put a message for each number; where messages have ids, every tenth twice, as a producer does that had no answer."""

    def copies(self) -> Counter[int]:
        """Return how often each number was sent by the job so far."""


class MqttQueues:
    """Topics of Mosquitto. What is sent is collected by a session that was there before the job."""

    once = False

    def __init__(self, broker: EmbeddedMosquitto, folder: Path) -> None:
        self.broker = broker
        self.environment = {"CRASH_SYSTEM": "mqtt", "CRASH_BROKER": broker.url}
        self._place, self._seen = LocalStorage(str(folder / "reader")), Counter[int]()
        broker.session("crash-job", "given")
        broker.session("copies", "copies")

    def give(self, numbers: Sequence[int]) -> None:
        sent = [n for n in numbers for _ in range(2 if n % 10 == 0 else 1)]
        with closing(MqttSender(MqttSink(self.broker.url, "given", id_column="n"))) as sender:
            sender.send(_bodies(sent), pa.record_batch({"n": pa.array(sent)}))
            sender.finish()

    def copies(self) -> Counter[int]:
        address = MqttAddress(self.broker.url)
        with closing(SessionReceiver(address, self._place, "copies", "copies", window=10_000, id=None)) as receiver:
            receiver.start()
            while came := receiver.received():
                self._seen.update(json.loads(each.row["value"])["n"] for each in came)
                receiver.acknowledge([each.tag for each in came])
        return self._seen


class KinesisQueues:
    """Streams of moto's server."""

    once = False

    def __init__(self, server: EmbeddedS3) -> None:
        self.environment = {"CRASH_SYSTEM": "kinesis", **server.environment}
        with server.in_environment():
            self._client = KinesisStream("given").client()
        for name, shards in (("given", 2), ("copies", 2)):
            self._client.create_stream(StreamName=name, ShardCount=shards)
            self._client.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 1})

    def give(self, numbers: Sequence[int]) -> None:
        records = [{"Data": body, "PartitionKey": body.decode()} for body in _bodies(numbers)]
        for first in range(0, len(records), 500):
            self._client.put_records(StreamName="given", Records=records[first : first + 500])

    def copies(self) -> Counter[int]:
        return Counter(n for shard in self._shards() for n in self._numbers(shard))

    def _shards(self) -> list[str]:
        return [each["ShardId"] for each in self._client.list_shards(StreamName="copies")["Shards"]]

    def _numbers(self, shard: str) -> Iterator[int]:
        place: Any = self._client.get_shard_iterator(
            StreamName="copies", ShardId=shard, ShardIteratorType="TRIM_HORIZON"
        )
        following = place["ShardIterator"]
        while True:
            answer = self._client.get_records(ShardIterator=following)
            yield from (json.loads(each["Data"])["n"] for each in answer["Records"])
            if not answer["Records"]:
                return
            following = answer["NextShardIterator"]


class PulsarQueues:
    """Topics of two partitions each of a broker with deduplication."""

    once = True

    def __init__(self, broker: EmbeddedPulsar, folder: Path) -> None:
        self.broker = broker
        self.environment = {"CRASH_SYSTEM": "pulsar", "CRASH_BROKER": broker.url, "CRASH_STAGING": f"{folder}/staged"}
        for topic in ("given", "copies"):
            broker.ask("PUT", f"persistent/public/default/{topic}/partitions", "2")

    def give(self, numbers: Sequence[int]) -> None:
        self.broker.publish("given", _bodies(numbers))

    def copies(self) -> Counter[int]:
        sent = [body for n in range(2) for body in self.broker.read(f"copies-partition-{n}")]
        return Counter(json.loads(body)["n"] for body in sent)


def _bodies(numbers: Sequence[int]) -> list[bytes]:
    return [json.dumps({"n": n}).encode() for n in numbers]


@contextmanager
def _mqtt(folder: Path) -> Iterator[Queues]:
    with running_or_skipped("Mosquitto", EmbeddedMosquitto) as broker:
        yield MqttQueues(broker, folder)


@contextmanager
def _kinesis(folder: Path) -> Iterator[Queues]:
    with running_or_skipped("moto's server", EmbeddedS3) as server:
        yield KinesisQueues(server)


@contextmanager
def _pulsar(folder: Path) -> Iterator[Queues]:
    with running_or_skipped("Pulsar", EmbeddedPulsar) as broker:
        yield PulsarQueues(broker, folder)


SYSTEMS = {"mqtt": _mqtt, "kinesis": _kinesis, "pulsar": _pulsar}
"""What makes each of them run, for as long as a block lasts."""
