"""JdbcSink keeps the contract of a sink, on a real PostgreSQL server, with tasks and drivers that are killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock import JdbcSink
from poundlock.connectors.jdbc.bridge import Connection
from poundlock.spark import jdbc_gateway as jdbc
from poundlock.spark.launch.jars import jar_set
from poundlock.testing import sink_conformance
from poundlock.testing.postgres import EmbeddedPostgres

pytestmark = pytest.mark.services

ROWS = [{"id": n, "word": f"w{n}"} for n in range(16)]


class Sink(JdbcSink):
    """The sink in processes without Spark: the way to a JVM that a running job gives it is made where it is asked for."""

    def connect(self) -> Connection:
        jdbc.install()
        return super().connect()


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres() as running:
        yield running


# A few here, for each starts a JVM in a process of its own; all of the suite in torture.
FEW = ("commits", "commit-twice", "crash.decision.recorded", "crash.sink.committed", "crash-within-commit")


@pytest.mark.parametrize("only", [FEW, pytest.param(None, marks=pytest.mark.torture)], ids=["some", "every"])
def test_jdbc_sink(server: EmbeddedPostgres, only: Sequence[str] | None) -> None:
    jars = jar_set("postgresql-jdbc")

    def make(folder: Path) -> JdbcSink:
        table = "t_" + "".join(c if c.isalnum() else "_" for c in folder.name).lower()
        server.execute(f"CREATE TABLE IF NOT EXISTS {table} (id bigint PRIMARY KEY, word text)")
        return Sink(server.jdbc_url, table, staging=str(folder / "staging"), key=["id"], jars=jars)

    def read(sink: JdbcSink) -> list[dict[str, Any]]:
        return [{"id": i, "word": w} for i, w in server.execute(f"SELECT id, word FROM {sink.table}")]

    assert sink_conformance(make, read=read, rows=ROWS, only=only).passed
