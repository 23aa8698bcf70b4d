"""JdbcSource on real servers of Derby, PostgreSQL and MariaDB: types as they were, and the contract of a source in both modes."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock import DefinitionError, JdbcSource, TerminalError
from poundlock.connectors import ReaderContext
from poundlock.connectors.jdbc.bridge import Connect
from poundlock.spark import jdbc_gateway
from poundlock.spark.launch.jars import jar_set
from poundlock.storage import LocalStorage
from poundlock.testing import source_conformance
from poundlock.testing.databases.mariadb import EmbeddedMariaDb
from support.derby import DerbyServer

pytestmark = pytest.mark.services

MOMENT = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456)
UTC = MOMENT.replace(tzinfo=datetime.UTC)
ROWS = [{"id": n, "word": f"w{n}"} for n in range(16)]


class Source(JdbcSource):
    """The source in processes without Spark: the way to a JVM that a running job gives it is made where it is asked for."""

    @property
    def way(self) -> Connect:
        return jdbc_gateway.connect


def rows_of(source: JdbcSource, folder: Path) -> list[dict[str, Any]]:
    source.preflight()
    enumerator = source.enumerator(LocalStorage(str(folder)))
    start = enumerator.initial()
    splits = enumerator.splits(start, enumerator.latest(start))
    reader = source.reader(ReaderContext(reject=print, want="records"))
    return [dict(row) for split in splits for chunk in reader.read(split) for row in chunk.rows]  # type: ignore[union-attr]


def test_types_of_mariadb(mariadb_server: EmbeddedMariaDb, tmp_path: Path) -> None:
    db = mariadb_server
    db.execute(
        "SET GLOBAL time_zone = '+05:00'",
        "CREATE TABLE every (id int PRIMARY KEY, b boolean, tu tinyint unsigned, bu bigint unsigned, f float, d double, n decimal(9,3),"
        " big decimal(50,3), tx text, js json, y blob, b5 bit(5), da date, ti time(3), dt datetime(6), ts timestamp(6) NULL, ye year)",
    )
    with db.connect(init_command="SET time_zone = '+00:00'") as connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO every VALUES (1, true, 200, 18000000000000000000, 1.5, -2e300, 1.25, 2.5, 'äöü€ 😀\\\\', '{}', X'00ff', b'101',"
            " '2024-02-29', '12:00:01.5', '2024-02-29 12:00:00.123456', '2024-02-29 12:00:00.123456', 2024),"
            " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
        )
        connection.commit()
    jars = jar_set("mariadb-jdbc")
    source = Source(db.jdbc_url, table="every", user="root", jars=jars, partition_column="id", partitions=2)
    first, second = rows_of(source, tmp_path)
    assert first == {
        "id": 1, "b": True, "tu": 200, "bu": decimal.Decimal(18000000000000000000), "f": 1.5, "d": -2e300,
        "n": decimal.Decimal("1.250"), "big": "2.500", "tx": "äöü€ 😀\\", "js": "{}", "y": b"\0\xff", "b5": "b'101'",
        "da": MOMENT.date(), "ti": "12:00:01.500", "dt": MOMENT, "ts": UTC, "ye": 2024,
    }  # fmt: skip
    assert set(second.values()) == {2, None}
    by_time = Source(
        db.jdbc_url,
        query="SELECT id, ts FROM every",
        user="root",
        jars=jars,
        mode="incremental",
        column="ts",
        lag="0 s",
    )
    assert rows_of(by_time, tmp_path / "ts") == [{"id": 1, "ts": UTC}]
    with pytest.raises(DefinitionError, match="no login"):
        Source(db.jdbc_url, table="every", user="root", password="wrong", jars=jars).preflight()


def test_types_of_postgresql(postgres_server: Any, tmp_path: Path) -> None:
    db = postgres_server
    db.execute(
        "DROP TABLE IF EXISTS every",
        "CREATE TABLE every (id bigserial PRIMARY KEY, b boolean, r real, n numeric(9,3), nn numeric, js jsonb, y bytea, da date,"
        " ti time, ts timestamp, tz timestamptz, u uuid, a int[], mo money)",
        "INSERT INTO every (b, r, n, nn, js, y, da, ti, ts, tz, u, a, mo) VALUES (true, 1.5, 1.25, 2.5, '{}', '\\x00ff', '2024-02-29', '12:00:01.5',"
        " '2024-02-29 12:00:00.123456', '2024-02-29 14:00:00.123456+02', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{1,2}', 2.5)",
    )
    url, jars = db.jdbc_url, jar_set("postgresql-jdbc")
    (row,) = rows_of(Source(url, table="public.every", jars=jars, partition_column="tz", partitions=2), tmp_path)
    assert row == {
        "id": 1, "b": True, "r": 1.5, "n": decimal.Decimal("1.250"), "nn": "2.5", "js": "{}", "y": b"\0\xff", "da": MOMENT.date(),
        "ti": "12:00:01.5", "ts": MOMENT, "tz": UTC, "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a": "{1,2}", "mo": "$2.50",
    }  # fmt: skip
    source = Source(url, table="every", jars=jars, partition_column="da", partitions=2)
    source.preflight()
    enumerator = source.enumerator(LocalStorage(str(tmp_path / "kept")))
    splits = enumerator.splits(enumerator.initial(), enumerator.latest(enumerator.initial()))
    reader = source.reader(ReaderContext(reject=print))
    db.execute("ALTER TABLE every ALTER n TYPE numeric(12,3)")
    with pytest.raises(TerminalError, match=r"column 'n' of every was numeric.* and is numeric \(12, 3\) now"):
        list(reader.read(splits[0]))
    db.execute("ALTER TABLE every DROP COLUMN n")
    with pytest.raises(TerminalError, match=r'every has changed since the job was started.*column "n" does not exist'):
        list(reader.read(splits[0]))


def test_types_and_many_rows_of_derby(derby_server: DerbyServer, tmp_path: Path) -> None:
    db = derby_server
    db.execute(
        "CREATE TABLE every (id INT PRIMARY KEY, b BOOLEAN, n DECIMAL(9,3), c CHAR(3), cl CLOB, y BLOB, da DATE, ti TIME, ts TIMESTAMP)",
        "INSERT INTO every VALUES (1, true, 1.25, 'c', 'x', CAST(X'00ff' AS BLOB), '2024-02-29', '12:00:01', '2024-02-29 12:00:00.123456')",
        "INSERT INTO every (id) VALUES (2)",
        *[f"INSERT INTO every (id) SELECT id + {1 << n} FROM every WHERE id > 1" for n in range(1, 13)],
    )
    ((count,),) = db.execute("SELECT COUNT(*) FROM every")
    source = Source(db.jdbc_url, table="APP.every", jars=db.jars, fetch_size=700, partition_column="ID", partitions=3)
    rows = rows_of(source, tmp_path)
    assert rows[0] == {
        "ID": 1, "B": True, "N": decimal.Decimal("1.250"), "C": "c  ", "CL": "x", "Y": b"\0\xff", "DA": MOMENT.date(),
        "TI": "12:00:01", "TS": MOMENT,
    }  # fmt: skip
    assert len(rows) == int(count) > 4000
    assert len({row["ID"] for row in rows}) == len(rows)


# A few here, for each starts JVMs in processes of their own; all of the suite in torture.
FEW = ("reads-all", "restart")


@pytest.mark.parametrize("only", [FEW, pytest.param(None, marks=pytest.mark.torture)], ids=["some", "every"])
@pytest.mark.parametrize("mode", ["bounded", "incremental"])
def test_it_keeps_its_contract(mariadb_server: EmbeddedMariaDb, mode: str, only: Sequence[str] | None) -> None:
    db = mariadb_server
    given: dict[str, Any] = {"partition_column": "id", "partitions": 6, "partitions_per_checkpoint": 2}
    if mode == "incremental":
        given = {
            "mode": mode,
            "column": "id",
            "lag": "0 s",
            "poll_every": "50 ms",
            "rows_per_split": 3,
            "max_rows_per_checkpoint": 6,
        }

    def make(folder: Path) -> JdbcSource:
        table = "s_" + "".join(c if c.isalnum() else "_" for c in folder.name).lower()
        db.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, word varchar(20))")
        db.execute(f"INSERT INTO {table} VALUES " + ", ".join(f"({row['id']}, '{row['word']}')" for row in ROWS))
        return Source(
            db.jdbc_url, table=table, user="root", jars=jar_set("mariadb-jdbc"), append_only=mode == "bounded", **given
        )

    def change(source: JdbcSource) -> None:
        db.execute(f"INSERT INTO {source.table} VALUES (99, 'behind the end')")

    def more(source: JdbcSource) -> list[dict[str, Any]]:
        db.execute(f"INSERT INTO {source.table} VALUES (50, 'more'), (51, 'more')")
        return [{"id": 50, "word": "more"}, {"id": 51, "word": "more"}]

    grows = {"more": more} if mode == "incremental" else {}
    report = source_conformance(make, rows=ROWS, change=change, patience_s=30, only=only, **grows)
    assert report.passed
    print(report)
