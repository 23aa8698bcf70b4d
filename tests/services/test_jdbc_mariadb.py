"""JdbcSink on a real MariaDB: rows by key, deletes, types and text as they were, what is refused, and the contract of a sink."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, JdbcSink
from poundlock.checkpoint.participant import Committed
from poundlock.connectors.jdbc.bridge import Connection
from poundlock.spark import jdbc_gateway as jdbc
from poundlock.spark.launch.jars import jar_set
from poundlock.testing import sink_conformance
from poundlock.testing.databases.mariadb import EmbeddedMariaDb
from support.postgres_rig import Rig, batch

pytestmark = pytest.mark.services

WHEN = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456)
ROWS = [{"id": n, "word": f"w{n}"} for n in range(16)]


class Sink(JdbcSink):
    """The sink in processes without Spark: the way to a JVM that a running job gives it is made where it is asked for."""

    def connect(self) -> Connection:
        jdbc.install()
        return super().connect()


def sink_of(db: EmbeddedMariaDb, table: str, folder: Path, **settings: Any) -> Sink:
    return Sink(
        db.jdbc_url, table, staging=str(folder / "staging"), user="root", jars=jar_set("mariadb-jdbc"), **settings
    )


@pytest.fixture
def rigs(tmp_path: Path) -> Iterator[list[Rig]]:
    made: list[Rig] = []
    yield made
    for rig in made:
        rig.sink.close()
        if rig.epoch is not None:
            rig.epoch.__exit__(None, None, None)


def test_rows_replace_those_of_their_key_and_are_deleted(
    mariadb_server: EmbeddedMariaDb, rigs: list[Rig], tmp_path: Path
) -> None:
    db = mariadb_server
    db.execute("CREATE TABLE word (id bigint PRIMARY KEY, `te``xt` varchar(20))")
    sink = sink_of(db, "word", tmp_path, key=["id"], delete_when="gone", batch=30)
    sink.preflight()
    rigs.append(rig := Rig(tmp_path / "rig", sink))

    def words(first: int, count: int, text: str, gone: bool = False) -> dict[str, Any]:
        ids = range(first, first + count)
        return {"id": list(ids), "te`xt": [f"{text}{i}" for i in ids], "gone": [gone] * count}

    driver = rig.driver()
    rig.checkpoint(driver, 0, [words(0, 100, "w"), words(100, 100, "w")])
    rig.checkpoint(driver, 1, [words(150, 100, "x"), words(0, 40, "", True)])
    assert dict(db.execute("SELECT * FROM word")) == {i: f"{'w' if i < 150 else 'x'}{i}" for i in range(40, 250)}
    (item,) = rig.write(2, [words(300, 5, "y")])
    for _ in range(2):
        assert isinstance(rig.bound.commit(item.payload), Committed)
    assert len(db.execute("SELECT * FROM word")) == 215


def test_types_and_text_arrive_as_they_were(mariadb_server: EmbeddedMariaDb, rigs: list[Rig], tmp_path: Path) -> None:
    db = mariadb_server
    db.execute(
        "CREATE TABLE every (i int, b boolean, d double, n decimal(9,3), t varchar(99), y varbinary(9), da date, ts datetime(6))"
    )
    sink = sink_of(db, "every", tmp_path)
    sink.preflight()
    rigs.append(rig := Rig(tmp_path / "rig", sink))
    texts = ["a 'quoted' \"one\" \\' \\\\ ; -- /* ? {ts 'x'}", "äöü€ 😀 \n\t%s", ""]
    rows = batch(
        i=[1, 2, None], b=[True, False, None], d=[1.5, -2e-300, None],
        n=pa.array([decimal.Decimal("-1.500"), decimal.Decimal("123456.789"), None], pa.decimal128(9, 3)), t=texts,
        y=[b"\0\xff'\\", b"", None], da=pa.array([WHEN.date(), datetime.date(1, 1, 1), None]), ts=pa.array([WHEN, WHEN, None]),
    )  # fmt: skip
    writer = rig.bound.open_writer(rig.context(0))
    writer.write(rows)
    rig.bound.commit(writer.prepare()[0])
    found = db.execute("SELECT i, b, d, n, t, y, da, ts FROM every ORDER BY i IS NULL, i")
    assert found[0] == (1, 1, 1.5, decimal.Decimal("-1.500"), texts[0], b"\0\xff'\\", WHEN.date(), WHEN)
    assert found[1][2:6] == (-2e-300, decimal.Decimal("123456.789"), texts[1], b"")
    assert found[2] == (None, None, None, None, "", None, None, None)


def test_a_table_without_transactions_is_refused(mariadb_server: EmbeddedMariaDb, tmp_path: Path) -> None:
    mariadb_server.execute("CREATE TABLE plain (id int PRIMARY KEY) ENGINE = Aria")
    sink = sink_of(mariadb_server, "plain", tmp_path)
    with pytest.raises(DefinitionError, match="engine Aria"):
        sink.preflight()
    sink.close()


# A few here, for each starts a JVM in a process of its own; all of the suite in torture.
FEW = ("commits", "crash-within-commit")


@pytest.mark.parametrize("only", [FEW, pytest.param(None, marks=pytest.mark.torture)], ids=["some", "every"])
def test_it_keeps_its_contract(mariadb_server: EmbeddedMariaDb, only: Sequence[str] | None) -> None:
    db = mariadb_server

    def make(folder: Path) -> JdbcSink:
        table = "t_" + "".join(c if c.isalnum() else "_" for c in folder.name).lower()
        db.execute(f"CREATE TABLE IF NOT EXISTS {table} (id bigint PRIMARY KEY, word text)")
        return sink_of(db, table, folder, key=["id"])

    def read(sink: JdbcSink) -> list[dict[str, Any]]:
        return [{"id": i, "word": w} for i, w in db.execute(f"SELECT id, word FROM {sink.table}")]

    assert sink_conformance(make, read=read, rows=ROWS, only=only).passed
