"""pytest fixtures, for a conftest.py to load with `pytest_plugins = ["poundlock.testing.fixtures"]`.

One broker serves a whole test session, so a test makes topics of its own and never kills the shared broker.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from poundlock.errors import PoundlockError
from poundlock.testing.hdfs import EmbeddedHdfs
from poundlock.testing.kafka import EmbeddedKafka

__all__ = ["hdfs", "kafka_broker", "new_topic", "own_hdfs", "own_kafka_broker", "start_or_skip"]


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[EmbeddedKafka]:
    """A real Kafka broker for the whole session. Do not stop it; see `own_kafka_broker`."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture
def own_kafka_broker() -> Iterator[EmbeddedKafka]:
    """A real Kafka broker for one test, which may kill it."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture
def new_topic(kafka_broker: EmbeddedKafka) -> Callable[..., str]:
    """A function that creates a topic of its own name on the shared broker and returns the name."""

    def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        kafka_broker.create_topic(name, partitions, {k.replace("_", "."): v for k, v in config.items()})
        return name

    return make


def start_or_skip(hdfs: EmbeddedHdfs) -> EmbeddedHdfs:
    """Start it; where it cannot be, skip the test by name, but not where everything has to be there."""
    try:
        return hdfs.start(600)
    except PoundlockError as error:
        hdfs.close()
        if os.environ.get("CI"):
            raise
        pytest.skip(f"HDFS: {error.what[:200]}")


@pytest.fixture(scope="session")
def hdfs() -> Iterator[EmbeddedHdfs]:
    """A real namenode and datanode for the whole session. A test may restart them, never leave them stopped."""
    cluster = start_or_skip(EmbeddedHdfs())
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def own_hdfs() -> Iterator[EmbeddedHdfs]:
    """A real namenode and datanode for one test, with permissions looked at; the one who runs it may do everything."""
    cluster = start_or_skip(EmbeddedHdfs(properties={"dfs.permissions.enabled": "true"}))
    try:
        yield cluster
    finally:
        cluster.close()
