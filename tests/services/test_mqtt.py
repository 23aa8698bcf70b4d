"""MqttSource and MqttSink on a real broker: the suites, a broker that is stopped, a session that is gone, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from poundlock import DefinitionError, MqttSink, MqttSource, TransientError
from poundlock.connectors import Inbox
from poundlock.connectors.mqtt.connection import MqttAddress, MqttConnection
from poundlock.connectors.mqtt.receiver import SessionReceiver
from poundlock.connectors.mqtt.sink import MqttSender
from poundlock.errors import SourceGoneError
from poundlock.storage import LocalStorage
from poundlock.testing import sink_conformance, source_conformance
from support.fixtures import running_or_skipped
from support.mosquitto import EmbeddedMosquitto

pytestmark = pytest.mark.services

ROWS = [{"n": n, "word": f"w{n}"} for n in range(16)]
SCHEMA = "n bigint, word string"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedMosquitto]:
    with running_or_skipped("Mosquitto", EmbeddedMosquitto) as running:
        yield running


def publish(broker: EmbeddedMosquitto, topic: str, bodies: Sequence[bytes], ids: Sequence[str]) -> None:
    import pyarrow as pa

    sender = MqttSender(MqttSink(broker.url, topic, id_column="id"))
    with closing(sender):
        sender.send(bodies, pa.record_batch({"id": pa.array(ids)}))
        sender.finish()


def bodies(rows: Sequence[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def filled(broker: EmbeddedMosquitto, **more: Any) -> Callable[[Path], MqttSource]:
    def make(folder: Path) -> MqttSource:
        broker.session(folder.name, folder.name)
        ids = [str(row["n"]) for row in ROWS[:10]]
        publish(broker, folder.name, [*bodies(ROWS[:10]), b"no json"], [*ids, "bad"])
        return MqttSource(
            broker.url,
            folder.name,
            client_id=folder.name,
            format="json",
            schema=SCHEMA,
            deduplicate="correlation-data",
            max_rows_per_checkpoint=4,
            **more,
        )

    return make


def another(broker: EmbeddedMosquitto) -> Callable[[MqttSource], Sequence[dict[str, Any]]]:
    def more(source: MqttSource) -> Sequence[dict[str, Any]]:
        publish(broker, source.topic, bodies(ROWS[10:]), [str(row["n"]) for row in ROWS[10:]])
        return ROWS[10:]

    return more


FEW_OF_SOURCE = ("reads-all", "restart", "replay-promise")
FEW_OF_SINK = ("commits", "task-killed")
in_torture = pytest.param(None, marks=pytest.mark.torture)


@pytest.mark.parametrize("only", [FEW_OF_SOURCE, in_torture], ids=["some", "every"])
def test_source(broker: EmbeddedMosquitto, only: Sequence[str] | None) -> None:
    report = source_conformance(filled(broker), rows=ROWS[:10], more=another(broker), bad=1, patience_s=20, only=only)
    assert report.passed


@pytest.mark.parametrize("only", [FEW_OF_SINK, in_torture], ids=["some", "every"])
def test_sink(broker: EmbeddedMosquitto, only: Sequence[str] | None, tmp_path_factory: pytest.TempPathFactory) -> None:
    seen: dict[str, list[bytes]] = {}

    def make(folder: Path) -> MqttSink:
        broker.session(folder.name, folder.name)
        return MqttSink(broker.url, folder.name)

    def read(sink: MqttSink) -> list[dict[str, Any]]:
        assert sink.topic is not None
        bodies = seen.setdefault(sink.topic, [])
        place = LocalStorage(str(tmp_path_factory.mktemp("reader")))
        receiver = SessionReceiver(sink.address, place, sink.topic, sink.topic, window=1000, id=None)
        with closing(receiver):
            receiver.start()
            came = receiver.received()
            bodies += [each.row["value"] for each in came]
            receiver.acknowledge([each.tag for each in came])
        return [json.loads(body) for body in bodies]

    assert sink_conformance(make, read=read, rows=ROWS, orphans_found=False, only=only).passed


def test_a_broker_that_is_stopped_keeps_what_is_not_acknowledged(broker: EmbeddedMosquitto, tmp_path: Path) -> None:
    broker.session("stopped", "stopped")
    source, storage = MqttSource(broker.url, "stopped", client_id="stopped"), LocalStorage(str(tmp_path))
    publish(broker, "stopped", [b"a", b"b"], ["1", "2"])
    with closing(source.enumerator(storage)) as enumerator:
        enumerator.latest({"file": 0})
        broker.stop()
        with pytest.raises(TransientError, match="MQTT broker at"):
            enumerator.latest({"file": 0})
    broker.start()
    with closing(source.enumerator(storage)) as enumerator:
        at = enumerator.latest({"file": 0})
        assert Inbox(storage).read(0).column("value").to_pylist() == [b"a", b"b"]
        enumerator.committed(at)
        assert enumerator.latest(at) == at


def test_a_session_that_is_gone_stops_the_job(broker: EmbeddedMosquitto, tmp_path: Path) -> None:
    source, storage = MqttSource(broker.url, "gone", client_id="gone"), LocalStorage(str(tmp_path))
    with closing(source.enumerator(storage)) as enumerator:
        enumerator.latest({"file": 0})
    with closing(MqttConnection(MqttAddress(broker.url), "gone")) as connection:
        connection.open()  # without the session, which ends it
    with (
        closing(source.enumerator(storage)) as enumerator,
        pytest.raises(SourceGoneError, match="no longer has the session 'gone'"),
    ):
        enumerator.latest({"file": 0})


def test_what_cannot_be_a_topic_is_refused(broker: EmbeddedMosquitto) -> None:
    with pytest.raises(DefinitionError, match="has a wildcard"):
        MqttSink(broker.url, "a/+/b")
    with pytest.raises(DefinitionError, match="exactly one of topic and topic_column"):
        MqttSink(broker.url)
    with pytest.raises(TransientError, match=r"no MQTT broker answers at 127.0.0.1:1"):
        MqttSource("mqtt://127.0.0.1:1", "a", client_id="a").preflight()
