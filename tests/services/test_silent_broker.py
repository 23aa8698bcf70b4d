"""A broker that is there and does not answer: what the driver asks must end in an error, never in a number."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from poundlock import KafkaSource
from poundlock.errors import TransientError
from poundlock.testing.kafka import EmbeddedKafka

pytestmark = pytest.mark.services
pytest_plugins = ["support.fixtures"]


@pytest.mark.parametrize("more", [{}, {"client_options": {"client.id": "another"}}], ids=["own", "confluent"])
def test_offsets_of_a_broker_that_does_not_answer_are_an_error(
    own_kafka_broker: EmbeddedKafka, more: dict[str, Any]
) -> None:
    broker = own_kafka_broker
    broker.create_topic("t", 3)
    broker.produce("t", [b"x"] * 300)
    partitions = [("t", 0), ("t", 1), ("t", 2)]
    cluster = KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics="t", **more).cluster()
    assert sum(cluster.end(partitions).values()) == 300
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    os.waitpid(broker.pid, os.WUNTRACED)  # until it has stopped
    try:
        with pytest.raises(TransientError, match="offsets cannot be looked up"):
            cluster.end(partitions, timeout=1)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert sum(cluster.end(partitions).values()) == 300
