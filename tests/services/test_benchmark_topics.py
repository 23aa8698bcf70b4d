"""The benchmarks' look at a topic and their latency client, against a broker: what is lost, repeated or left open is found."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from benchmarks import latency_client
from benchmarks.data import Input, WrongOutput, files
from benchmarks.topics import output_topic, prove
from poundlock.testing.kafka import EmbeddedKafka


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return files(tmp_path_factory.mktemp("data"), 2_000)


@pytest.fixture
def topic(broker: EmbeddedKafka) -> Iterator[str]:
    with output_topic(broker, "bench-out", 2) as name:
        yield name


def lines(given: Input) -> list[bytes]:
    return [line for file in sorted(given.folder.iterdir()) for line in file.read_bytes().splitlines()]


def send(broker: EmbeddedKafka, topic: str, values: list[bytes], end: str = "commit") -> Any:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": end})
    producer.init_transactions(30)
    producer.begin_transaction()
    for i, value in enumerate(values):
        producer.produce(topic, value, partition=i % 2)
    producer.flush(30)
    if end == "commit":
        producer.commit_transaction(30)
    elif end == "abort":
        producer.abort_transaction(30)
    return producer


def test_every_committed_row_passes_whatever_was_aborted(broker: EmbeddedKafka, topic: str, given: Input) -> None:
    rows = lines(given)
    send(broker, topic, rows[:700])
    send(broker, topic, rows[:100], "abort")
    send(broker, topic, rows[700:])
    prove(broker.bootstrap_servers, topic, given)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows[1:], "1999 of 2000 rows came out in all"),
        (lambda rows: [*rows, rows[7]], "2001 of 2000"),
        (lambda rows: [rows[1], *rows[1:]], "2000 of 2000 rows came out and other bytes"),
    ],
    ids=["lost", "repeated", "replaced"],
)
def test_what_is_not_the_input_is_found(
    broker: EmbeddedKafka, topic: str, given: Input, change: Any, said: str
) -> None:
    send(broker, topic, change(lines(given)))
    with pytest.raises(WrongOutput, match=said):
        prove(broker.bootstrap_servers, topic, given)


def test_a_transaction_that_is_open_is_found(broker: EmbeddedKafka, topic: str, given: Input) -> None:
    send(broker, topic, lines(given))
    left = send(broker, topic, [lines(given)[0]], "open")
    with pytest.raises(WrongOutput, match="open transaction"):
        prove(broker.bootstrap_servers, topic, given, quiet_s=0.5)
    left.abort_transaction(30)
    prove(broker.bootstrap_servers, topic, given)


class Relay(threading.Thread):
    """Copies a topic message by message, one of them `times` times, until it is ended."""

    def __init__(self, broker: EmbeddedKafka, out: str, times: int) -> None:
        super().__init__(daemon=True)
        servers = broker.bootstrap_servers
        self.ended = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": servers, "group.id": "relay", "auto.offset.reset": "earliest"}
        )
        self._consumer.assign([confluent_kafka.TopicPartition("bench-in", n, 0) for n in range(2)])
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self._out, self._times = out, times

    def run(self) -> None:
        while not self.ended.is_set():
            for message in self._consumer.consume(1000, 0.02):
                for _ in range(self._times if json.loads(message.value())["number"] == 150 else 1):
                    self._producer.produce(self._out, message.value())
            self._producer.flush(5)
        self._consumer.close()


@pytest.mark.parametrize(("times", "said"), [(1, None), (2, "1 came again")], ids=["once", "twice"])
def test_latencies_are_noted_if_every_event_arrives_once(
    broker: EmbeddedKafka, topic: str, tmp_path: Path, times: int, said: str | None
) -> None:
    notes, stop = tmp_path / "notes", tmp_path / "stop"
    with output_topic(broker, "bench-in", 2) as source:
        relay = Relay(broker, topic, times)
        relay.start()
        try:
            if said is None:
                latency_client.main(broker.bootstrap_servers, source, topic, 0.2, 0.3, notes, stop)
                took = json.loads(notes.read_text())
                assert len(took) >= 200
                assert min(took) > 0
            else:
                with pytest.raises(SystemExit, match=said):
                    latency_client.main(broker.bootstrap_servers, source, topic, 0.2, 0.3, notes, stop)
                assert not notes.exists()
            assert stop.exists()
        finally:
            relay.ended.set()
            relay.join()
