"""pytest fixtures, for a conftest.py to load with `pytest_plugins = ["poundlock.testing.fixtures"]`.

One broker serves a whole test session, so a test makes topics of its own and never kills the shared broker.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from poundlock.errors import DefinitionError
from poundlock.testing.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from poundlock.testing.postgres import EmbeddedPostgres

__all__ = ["kafka_broker", "new_topic", "own_kafka_broker", "postgres_server"]


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


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """A real PostgreSQL server for one file of tests, which may kill it; user "reader" has the password "open sesame"."""
    from poundlock.testing.postgres import EmbeddedPostgres

    try:
        server = EmbeddedPostgres(passwords={"reader": "open sesame"})
    except DefinitionError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no PostgreSQL server: {error.what}")
    with server:
        yield server
