"""KinesisStreamsSource and KinesisStreamsSink against moto's server: the suites, and what is refused. moto is no Kinesis: see docs/kinesis.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock import KinesisStreamsSink, KinesisStreamsSource
from poundlock.connectors.kinesis.client import KinesisStream
from poundlock.testing import sink_conformance, source_conformance
from poundlock.testing.s3 import EmbeddedS3

pytestmark = pytest.mark.services

ROWS = [{"n": n, "word": f"w{n}"} for n in range(16)]
SCHEMA = "n bigint, word string"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedS3]:
    with EmbeddedS3() as running, running.in_environment():  # moto's server has Kinesis as well
        yield running


def stream(name: str, shards: int = 2) -> Any:
    client = KinesisStream(name).client()
    client.create_stream(StreamName=name, ShardCount=shards)
    client.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 1})
    return client


def put(client: Any, name: str, bodies: Sequence[bytes]) -> None:
    client.put_records(
        StreamName=name, Records=[{"Data": body, "PartitionKey": str(i)} for i, body in enumerate(bodies)]
    )


def bodies(rows: Sequence[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def filled(folder: Path) -> KinesisStreamsSource:
    put(stream(folder.name), folder.name, [*bodies(ROWS[:10]), b"no json"])
    return KinesisStreamsSource(folder.name, format="json", schema=SCHEMA, max_rows_per_checkpoint=4, poll_every="0 ms")


def another(source: KinesisStreamsSource) -> Sequence[dict[str, Any]]:
    put(source.stream.client(), source.stream.name, bodies(ROWS[10:]))
    return ROWS[10:]


FEW_OF_SOURCE = ("reads-all", "restart", "replay-promise")
FEW_OF_SINK = ("commits", "task-killed")
in_torture = pytest.param(None, marks=pytest.mark.torture)


@pytest.mark.parametrize("only", [FEW_OF_SOURCE, in_torture], ids=["some", "every"])
def test_source(server: EmbeddedS3, only: Sequence[str] | None) -> None:
    assert source_conformance(filled, rows=ROWS[:10], more=another, bad=1, patience_s=20, only=only).passed


def records(name: str) -> list[bytes]:
    client = KinesisStream(name).client()
    found = []
    for shard in client.list_shards(StreamName=name)["Shards"]:
        iterator = client.get_shard_iterator(
            StreamName=name, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )
        found += [each["Data"] for each in client.get_records(ShardIterator=iterator["ShardIterator"])["Records"]]
    return found


@pytest.mark.parametrize("only", [FEW_OF_SINK, in_torture], ids=["some", "every"])
def test_sink(server: EmbeddedS3, only: Sequence[str] | None) -> None:
    def make(folder: Path) -> KinesisStreamsSink:
        stream(folder.name)
        return KinesisStreamsSink(folder.name, partition_key="word")

    def read(sink: KinesisStreamsSink) -> list[dict[str, Any]]:
        return [json.loads(data) for data in records(sink.stream.name)]

    assert sink_conformance(make, read=read, rows=ROWS, orphans_found=False, only=only).passed
