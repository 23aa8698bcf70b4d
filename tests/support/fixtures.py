"""pytest fixtures, for a conftest.py to load with `pytest_plugins = ["support.fixtures"]`.

One broker serves a whole test session, so a test makes topics of its own and never kills the shared broker.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

from poundlock.errors import PoundlockError
from poundlock.testing.hdfs import EmbeddedHdfs
from poundlock.testing.kafka import EmbeddedKafka
from poundlock.testing.schema_registry.apicurio import EmbeddedSchemaRegistry
from poundlock.testing.servers import ServerProcess

if TYPE_CHECKING:
    from poundlock.testing.databases.mariadb import EmbeddedMariaDb
    from poundlock.testing.minio import EmbeddedMinio
    from poundlock.testing.postgres import EmbeddedPostgres
    from poundlock.testing.s3 import EmbeddedS3
    from support.derby import DerbyServer
    from support.redis_server import EmbeddedRedis

_S = TypeVar("_S", bound=ServerProcess)


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


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[EmbeddedSchemaRegistry]:
    """A schema registry for the whole session, so that a test takes subjects of its own. Do not stop it; see `own_schema_registry`."""
    with running_or_skipped("schema registry", lambda: EmbeddedSchemaRegistry(progress=print)) as server:
        yield server


@pytest.fixture
def own_schema_registry() -> Iterator[EmbeddedSchemaRegistry]:
    """A schema registry for one test, which may kill it."""
    with running_or_skipped("schema registry", lambda: EmbeddedSchemaRegistry(progress=print)) as server:
        yield server


@pytest.fixture
def new_topic(kafka_broker: EmbeddedKafka) -> Callable[..., str]:
    """A function that creates a topic of its own name on the shared broker and returns the name."""

    def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        kafka_broker.create_topic(name, partitions, {k.replace("_", "."): v for k, v in config.items()})
        return name

    return make


@contextmanager
def running_or_skipped(name: str, make: Callable[[], _S]) -> Iterator[_S]:
    """Let a server run for as long as the block lasts. Where it cannot, skip the test by name, but fail where everything has to be there."""
    with ExitStack() as running:
        try:
            server = make()
            running.enter_context(server)
        except PoundlockError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"no {name}: {error.what[:200]}")
        yield server


@pytest.fixture(scope="session")
def hdfs() -> Iterator[EmbeddedHdfs]:
    """A real namenode and datanode for the whole session. A test may restart them, never leave them stopped."""
    with running_or_skipped("HDFS", EmbeddedHdfs) as cluster:
        yield cluster


@pytest.fixture
def own_hdfs() -> Iterator[EmbeddedHdfs]:
    """A real namenode and datanode for one test, with permissions looked at; the one who runs it may do everything."""
    with running_or_skipped("HDFS", lambda: EmbeddedHdfs(properties={"dfs.permissions.enabled": "true"})) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def minio_server() -> Iterator[EmbeddedMinio]:
    """A MinIO server for the whole session, built by Go where it is not there yet, which takes minutes. Do not stop it."""
    from poundlock.testing.minio import EmbeddedMinio

    with running_or_skipped("MinIO server", lambda: EmbeddedMinio(progress=print)) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedS3]:
    """An S3 server for the whole session: moto's, or with the parameter "minio" that of `minio_server`. Do not stop it."""
    from poundlock.testing.s3 import EmbeddedS3

    if getattr(request, "param", "moto") == "minio":
        yield request.getfixturevalue("minio_server")
        return
    with running_or_skipped("S3 server", EmbeddedS3) as server:
        yield server


@pytest.fixture
def new_bucket(s3_server: EmbeddedS3) -> Iterator[Callable[[], str]]:
    """A function that makes a bucket of its own name and returns its URL; the server is in the environment meanwhile."""
    with s3_server.in_environment():
        yield lambda: s3_server.bucket(f"b-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """A real PostgreSQL server for one file of tests, which may kill it; user "reader" has the password "open sesame"."""
    from poundlock.testing.postgres import EmbeddedPostgres

    with running_or_skipped(
        "PostgreSQL server", lambda: EmbeddedPostgres(passwords={"reader": "open sesame"})
    ) as server:
        yield server


@pytest.fixture(scope="module")
def mariadb_server() -> Iterator[EmbeddedMariaDb]:
    """A real MariaDB server for one file of tests, which may kill it."""
    from poundlock.testing.databases.mariadb import EmbeddedMariaDb

    with running_or_skipped("MariaDB server", EmbeddedMariaDb) as server:
        yield server


@pytest.fixture(scope="module")
def derby_server() -> Iterator[DerbyServer]:
    """A real Derby server for one file of tests."""
    from support.derby import DerbyServer

    with running_or_skipped("Derby server", DerbyServer) as server:
        yield server


@pytest.fixture(scope="module")
def redis_server() -> Iterator[EmbeddedRedis]:
    """A real Redis server for one file of tests, which may kill it."""
    from support.redis_server import EmbeddedRedis

    with running_or_skipped("Redis server", EmbeddedRedis) as server:
        yield server
