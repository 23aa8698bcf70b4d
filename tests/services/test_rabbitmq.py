"""RMQSource and RMQSink on a real broker: the suites, kills of the broker and of connections, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, RMQSink, RMQSource, TerminalError, TransientError
from poundlock.connectors import Inbox
from poundlock.connectors.rabbitmq.connection import RabbitMQAddress
from poundlock.connectors.rabbitmq.publisher import Publisher, Route
from poundlock.storage import LocalStorage
from poundlock.testing import sink_conformance, source_conformance
from support.fixtures import running_or_skipped
from support.rabbitmq import EmbeddedRabbitMQ

pytestmark = pytest.mark.services

ROWS = [{"n": n, "word": f"w{n}"} for n in range(16)]
SCHEMA = "n bigint, word string"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedRabbitMQ]:
    with running_or_skipped("RabbitMQ", EmbeddedRabbitMQ) as running:
        yield running


def bodies(rows: Sequence[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def ids(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [f"m{row['n']}" for row in rows]


def by_id(broker: EmbeddedRabbitMQ, **more: Any) -> Callable[[Path], RMQSource]:
    def make(folder: Path) -> RMQSource:
        broker.declare(folder.name)
        broker.publish(folder.name, [*bodies(ROWS[:10]), b"no json"], [*ids(ROWS[:10]), "bad"])
        return RMQSource(
            broker.url,
            folder.name,
            format="json",
            schema=SCHEMA,
            deduplicate="message-id",
            max_rows_per_checkpoint=4,
            **more,
        )

    return make


def another(broker: EmbeddedRabbitMQ) -> Callable[[RMQSource], Sequence[dict[str, Any]]]:
    def more(source: RMQSource) -> Sequence[dict[str, Any]]:
        broker.publish(source.queue, bodies(ROWS[10:]), ids(ROWS[10:]))
        return ROWS[10:]

    return more


FEW_OF_SOURCE = ("reads-all", "restart", "replay-promise")
FEW_OF_SINK = ("commits", "task-killed")
in_torture = pytest.param(None, marks=pytest.mark.torture)


@pytest.mark.parametrize("only", [FEW_OF_SOURCE, in_torture], ids=["some", "every"])
def test_source_with_ids(broker: EmbeddedRabbitMQ, only: Sequence[str] | None) -> None:
    report = source_conformance(by_id(broker), rows=ROWS[:10], more=another(broker), bad=1, patience_s=20, only=only)
    assert report.passed


@pytest.mark.torture
def test_source_that_acknowledges_what_it_has_written(broker: EmbeddedRabbitMQ) -> None:
    make = by_id(broker, acknowledge="received")
    assert source_conformance(make, rows=ROWS[:10], more=another(broker), bad=1, patience_s=20).passed


@pytest.mark.parametrize("only", [FEW_OF_SINK, in_torture], ids=["some", "every"])
def test_sink(broker: EmbeddedRabbitMQ, only: Sequence[str] | None) -> None:
    def make(folder: Path) -> RMQSink:
        broker.declare(folder.name)
        return RMQSink(broker.url, folder.name)

    def read(sink: RMQSink) -> list[dict[str, Any]]:
        assert sink.route.key is not None
        return [json.loads(body) for body in broker.waiting(sink.route.key)]

    assert sink_conformance(make, read=read, rows=ROWS, orphans_found=False, only=only).passed


def drain(source: RMQSource, folder: Path, at: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """Be one life of a driver that reads what is there, and decides nothing of it."""
    storage = LocalStorage(str(folder))
    with closing(source.enumerator(storage)) as enumerator:
        end = enumerator.latest(at)
    inbox = Inbox(storage)
    return end, [v for n in range(at["file"], end["file"]) for v in inbox.read(n).column("value").to_pylist()]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_was_not_decided_is_the_brokers_again(broker: EmbeddedRabbitMQ, tmp_path: Path, kind: str) -> None:
    broker.declare(f"undecided-{kind}", **{"x-queue-type": kind})
    broker.publish(f"undecided-{kind}", [b"a", b"b"])
    source = RMQSource(broker.url, f"undecided-{kind}")
    at: dict[str, Any] = {"file": 0}
    assert drain(source, tmp_path, at)[1] == [b"a", b"b"]
    assert drain(source, tmp_path, at)[1] == [b"a", b"b"]  # written again, not twice
    assert sorted(broker.waiting(f"undecided-{kind}")) == [b"a", b"b"]


def test_a_queue_has_one_consumer(broker: EmbeddedRabbitMQ, tmp_path: Path) -> None:
    broker.declare("taken")
    source = RMQSource(broker.url, "taken")
    with closing(source.enumerator(LocalStorage(str(tmp_path / "one")))) as first:
        first.latest({"file": 0})
        with (
            closing(source.enumerator(LocalStorage(str(tmp_path / "two")))) as second,
            pytest.raises(TransientError, match=r"queue 'taken' of RabbitMQ at .* has another consumer"),
        ):
            second.latest({"file": 0})


def test_what_cannot_work_is_refused_before_anything_is_read(broker: EmbeddedRabbitMQ) -> None:
    with pytest.raises(DefinitionError, match="no queue 'nowhere'"):
        RMQSource(broker.url, "nowhere").preflight()
    with pytest.raises(DefinitionError, match="no exchange 'nowhere'"):
        RMQSink(broker.url, "key", exchange="nowhere").preflight()
    with pytest.raises(DefinitionError, match="this user is refused"):
        RMQSource(broker.url.replace("guest:guest", "guest:wrong"), "taken").preflight()
    with pytest.raises(TransientError, match=r"RabbitMQ at 127.0.0.1:1, connecting"):
        RMQSource("amqp://guest:guest@127.0.0.1:1/%2F", "taken").preflight()


def test_a_message_without_a_queue_stops_the_job(broker: EmbeddedRabbitMQ) -> None:
    publisher = Publisher(RabbitMQAddress(broker.url), Route("amq.direct", "unbound", None, None), 10)
    with closing(publisher):
        publisher.send([b"lost"], pa.record_batch({"x": [1]}))
        with pytest.raises(TerminalError, match="has no queue for the routing key 'unbound'"):
            publisher.finish()


def test_thousands_of_messages_are_confirmed_with_few_on_their_way(broker: EmbeddedRabbitMQ) -> None:
    broker.declare("many")
    publisher = Publisher(RabbitMQAddress(broker.url), Route("", "many", None, "id"), 100)
    rows = pa.record_batch({"id": [f"{n}" for n in range(3_000)]})
    with closing(publisher):
        publisher.send([b"%d" % n for n in range(3_000)], rows)
        publisher.finish()
        assert broker.waiting("many") == [b"%d" % n for n in range(3_000)]


@pytest.mark.torture
def test_a_broker_that_is_killed_and_comes_back(broker: EmbeddedRabbitMQ, tmp_path: Path) -> None:
    broker.declare("killed")
    broker.publish("killed", [b"a", b"b"], ["1", "2"])
    source, storage = RMQSource(broker.url, "killed", deduplicate="message-id"), LocalStorage(str(tmp_path))
    with closing(source.enumerator(storage)) as enumerator:
        at = enumerator.latest({"file": 0})
        broker.restart()
        enumerator.committed(at)  # decided; its acknowledgement cannot arrive
        with pytest.raises(TransientError, match="RabbitMQ at"):
            enumerator.latest(at)
    broker.publish("killed", [b"c"], ["3"])
    end, values = drain(source, tmp_path, at)
    assert values == [b"c"]  # the others came again and were known
    with closing(source.enumerator(storage)) as enumerator:
        assert enumerator.latest(end) == end
        enumerator.committed(end)
    assert broker.waiting("killed") == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"deduplicate": "id"}, "deduplicate='id' is not known"),
        ({"remember": 5}, "remember=5 has no effect"),
        ({"deduplicate": "message-id", "remember": 5}, "remember=5 is less than prefetch=10000"),
        ({"prefetch": 70_000}, "more than AMQP has"),
        ({"metadata": ["topic"]}, "a message has no 'topic'"),
        ({"schema": "a int"}, "schema='a int' has no effect"),
        ({"acknowledge": "never"}, "acknowledge='never' is not known"),
        ({"ca": "x.pem"}, "ca has no effect"),
    ],
)
def test_arguments_that_do_not_go_together(more: dict[str, Any], why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        RMQSource("amqp://host/", "q", **more)
