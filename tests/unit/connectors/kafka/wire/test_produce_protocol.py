"""Produce requests against kafka-python's own encoding, in every version that is spoken."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.producer import ProduceRequest

from poundlock.connectors.kafka.wire.produce_protocol import with_topics

TOPICS: dict[str, list[tuple[int, list[Any]]]] = {
    "one": [(0, [b"head", memoryview(b"records")]), (7, [b"x" * 300])],
    "täw" * 50: [(1, [b"", b"y" * 20_000])],
}


def encoded(version: int, topics: list[Any]) -> bytes:
    request = ProduceRequest(transactional_id="tid", acks=-1, timeout_ms=5, topic_data=topics)
    request.API_VERSION = version
    request.with_header(correlation_id=3, client_id="me")
    return bytes(request.encode(framed=True, header=True))


@pytest.mark.parametrize("version", range(3, 12))
@pytest.mark.parametrize("names", [[], ["one"], list(TOPICS)])
def test_what_is_put_together_is_what_another_encodes(version: int, names: list[str]) -> None:
    data = ProduceRequest.TopicProduceData
    whole = [
        data(
            name=name,
            partition_data=[
                data.PartitionProduceData(index=number, records=b"".join(map(bytes, batch)))
                for number, batch in TOPICS[name]
            ],
        )
        for name in names
    ]
    made = with_topics(encoded(version, []), {name: TOPICS[name] for name in names}, version)
    assert b"".join(map(bytes, made)) == encoded(version, whole)
