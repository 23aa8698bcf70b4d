"""RMQSource and RMQSink on a real broker: the suites, kills of the broker and of connections, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock import RMQSink, RMQSource
from poundlock.testing import sink_conformance, source_conformance
from support.rabbitmq import EmbeddedRabbitMQ

pytestmark = pytest.mark.services

ROWS = [{"n": n, "word": f"w{n}"} for n in range(16)]
SCHEMA = "n bigint, word string"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedRabbitMQ]:
    with EmbeddedRabbitMQ() as running:
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


FEW_OF_SOURCE = ("reads-all", "restart", "replay-promise", "committed", "rejects")
FEW_OF_SINK = ("commits", "task-killed", "crash.decision.recorded")
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
