"""The JDBC sink on Apache Derby, which comes with pyspark, and on PostgreSQL: real drivers in a real JVM, without Spark."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, JdbcSink, TerminalError, TransientError
from poundlock.checkpoint.participant import Committed
from poundlock.connectors.jdbc.bridge import JdbcError
from poundlock.errors import CommitUnknown
from poundlock.spark import jdbc_gateway as jdbc
from poundlock.spark.launch.jars import jar_set
from poundlock.testing.postgres import EmbeddedPostgres
from support.postgres_rig import Rig, batch

pytestmark = pytest.mark.services

WHEN = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456)


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[JdbcSink]:
    jdbc.install()
    made = JdbcSink(
        f"jdbc:derby:{tmp_path}/db;create=true", "word", staging=str(tmp_path / "staging"), key=["id"], batch=30
    )
    ask(made, 'CREATE TABLE word (id BIGINT NOT NULL PRIMARY KEY, "text" VARCHAR(20))')
    made.preflight()
    yield made
    made.close()


@pytest.fixture
def rig(tmp_path: Path, sink: JdbcSink) -> Iterator[Rig]:
    made = Rig(tmp_path / "rig", sink)
    yield made
    if made.epoch is not None:
        made.epoch.__exit__(None, None, None)


def ask(sink: JdbcSink, statement: str) -> list[list[Any]]:
    connection = sink.connect()
    try:
        if statement.startswith("SELECT"):
            return [list(row) for row in connection.rows(statement)]
        connection.run(statement)
        connection.commit()
        return []
    finally:
        connection.close()


def words(first: int, count: int = 100, text: str = "w") -> dict[str, Any]:
    return {"id": list(range(first, first + count)), "text": [f"{text}{i}" for i in range(first, first + count)]}


def found(sink: JdbcSink) -> dict[int, str]:
    return {int(i): t for i, t in ask(sink, 'SELECT id, "text" FROM word')}


def test_rows_are_invisible_until_they_are_decided_and_replace_those_of_their_key(rig: Rig, sink: JdbcSink) -> None:
    seen: list[dict[int, str]] = []
    driver = rig.driver()
    rig.checkpoint(driver, 0, [words(0), words(100)], lambda: seen.append(found(sink)))
    assert seen == [{}]
    assert found(sink) == {i: f"w{i}" for i in range(200)}
    rig.checkpoint(driver, 1, [words(150, 100, "x")])
    assert found(sink) == {i: f"{'w' if i < 150 else 'x'}{i}" for i in range(250)}
    assert list(sink.folder().list()) == []


def test_a_commit_may_be_repeated_and_what_nobody_decided_is_swept(rig: Rig, sink: JdbcSink) -> None:
    (item,) = rig.write(0, [words(0)])
    (newer,) = rig.write(1, [{"id": [5, 6, 5], "text": ["a", "b", "c"]}])
    rig.write(2, [words(500)])
    for _ in range(2):
        assert isinstance(rig.bound.commit(item.payload), Committed)
    rig.bound.commit(newer.payload)
    rig.bound.commit(item.payload)  # by a driver that slept
    assert (found(sink)[5], found(sink)[6], len(found(sink))) == ("c", "b", 100)
    rig.driver()
    assert list(sink.folder().list()) == []
    assert len(found(sink)) == 100


def test_a_driver_that_dies_in_the_middle_is_followed_by_one_that_writes(
    rig: Rig, sink: JdbcSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    driver = rig.driver()
    with monkeypatch.context() as patched:
        patched.setattr("poundlock.connectors.jdbc.dialect.Dialect.statements", _raise(Died))
        with pytest.raises(Died):
            rig.checkpoint(driver, 0, [words(0), words(100)])
    assert found(sink) == {}
    driver = rig.driver()
    assert len(found(sink)) == 200
    assert rig.checkpoint(driver, 0, [words(0), words(100)]).replayed


def test_a_database_that_is_away_leaves_the_outcome_open(
    rig: Rig, sink: JdbcSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    (item,) = rig.write(0, [words(0)])
    sink.close()
    with monkeypatch.context() as patched:
        patched.setattr(JdbcSink, "connect", _raise(lambda: JdbcError("08006", "connection refused")))
        with pytest.raises(CommitUnknown, match="does not answer: connection refused"):
            rig.bound.commit(item.payload)
    assert isinstance(rig.bound.commit(item.payload), Committed)


def test_a_decided_row_that_the_table_refuses_stops_the_job_until_the_table_is_mended(rig: Rig, sink: JdbcSink) -> None:
    (item,) = rig.write(0, [{"id": [1, 2], "text": ["fits", "does not fit, by far too long"]}])
    with pytest.raises(TerminalError, match=r"does not take 2 decided rows.*\nNext: mend table word"):
        rig.bound.commit(item.payload)
    assert found(sink) == {}, "not half of it"
    ask(sink, 'ALTER TABLE word ALTER COLUMN "text" SET DATA TYPE VARCHAR(99)')
    assert isinstance(rig.bound.commit(item.payload), Committed)
    assert len(found(sink)) == 2


def test_types_arrive_as_they_were(tmp_path: Path, sink: JdbcSink) -> None:
    ask(
        sink,
        "CREATE TABLE every (i INT, b BOOLEAN, d DOUBLE, n DECIMAL(9,3), t VARCHAR(50), y VARCHAR(9) FOR BIT DATA, da DATE,"
        " ts TIMESTAMP)",
    )
    made = JdbcSink(sink.url, "every", staging=str(tmp_path / "every"))
    made.preflight()
    rig = Rig(tmp_path / "rig2", made)
    columns = {
        "I": [-7, None], "b": [True, None], "d": [0.1, None], "n": [decimal.Decimal("1.250"), None],
        "t": ["it's {fn x} -- \\ ü", None], "y": [b"\x00\xff", None], "da": [WHEN.date(), None],
        "ts": pa.array([WHEN, None], pa.timestamp("us", "UTC")),
    }  # fmt: skip
    (item,) = rig.write(0, [columns])
    rig.bound.commit(item.payload)
    first, second = sorted(ask(sink, "SELECT * FROM every"), key=lambda row: row[0] is None)
    assert second == [None] * 8
    assert first == [
        "-7",
        "true",
        "0.1",
        "1.250",
        "it's {fn x} -- \\ ü",
        "00ff",
        "2024-02-29",
        "2024-02-29 12:00:00.123456",
    ]
    made.close()


def test_text_with_backslashes_arrives_as_it_is_and_is_no_sql(rig: Rig, sink: JdbcSink) -> None:
    texts = ["\\", "\\'", "a\\'; DROP --", "?", "\\?", "it's", "a\\\nb", None]
    for text in ("old", None):
        (item,) = rig.write(0, [{"id": list(range(8)), "text": [text or t for t in texts]}])
        rig.bound.commit(item.payload)
    assert [text for _, text in sorted(ask(sink, "SELECT * FROM word"), key=lambda row: int(row[0]))] == texts
    made = JdbcSink(sink.url, "lines", staging=str(sink.staging) + "2")
    ask(made, "CREATE TABLE lines (t VARCHAR(50), n INT)")
    made.preflight()
    other = Rig(Path(sink.staging).parent / "rig4", made)
    (item,) = other.write(0, [{"t": texts, "n": list(range(8))}])
    other.bound.commit(item.payload)
    assert [text for text, _ in sorted(ask(made, "SELECT * FROM lines"), key=lambda row: int(row[1]))] == texts
    made.close()


def test_values_that_no_database_takes_are_bad_rows(rig: Rig) -> None:
    writer = rig.bound.open_writer(rig.context(0))
    assert writer.write(batch(id=[1, None, 3], text=["a", "b", "c\0"])) == 1
    assert [r.reason for r in rig.rejects] == [
        "column 'id' is null, and must not be", "column 'text': text with a zero byte"
    ]  # fmt: skip
    writer.abandon()
    assert list(rig.sink.folder().list()) == []


def test_what_is_refused_before_the_start(tmp_path: Path, sink: JdbcSink) -> None:
    def refused(**settings: Any) -> str:
        given = {"url": sink.url, "table": "word", "staging": str(tmp_path / "s"), **settings}
        with pytest.raises(DefinitionError) as caught:
            JdbcSink(**given).preflight()
        assert len(str(caught.value).splitlines()) == 2
        return str(caught.value)

    assert "table nothing at derby:" in refused(table="nothing")
    assert "no JDBC driver knows jdbc:nothing" in refused(url="jdbc:nothing://host/db")
    assert "is not in any jar" in refused(driver="com.example.Driver")
    sink.preflight()
    with pytest.raises(DefinitionError, match="the rows have a column 'wort', and table word has ID, text"):
        sink.check_columns("out", ["id", "wort"])
    with pytest.raises(DefinitionError, match="needs a column 'id'"):
        sink.check_columns("out", ["text"])


def _raise(kind: Any) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise kind()

    return fail


def test_postgresql_by_its_own_driver(tmp_path: Path) -> None:
    jdbc.install()
    jars = jar_set("postgresql-jdbc")
    columns = {
        "id": [1, 2, 1], "b": [True, None, False], "y": [b"\x00\xff", None, b""], "t": ["a'{x}\\", None, "é"],
        "ts": pa.array([WHEN] * 3, pa.timestamp("us", "UTC")), "d": [WHEN.date()] * 3,
    }  # fmt: skip
    with EmbeddedPostgres(passwords={"writer": "geh31m"}) as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY, b bool, y bytea, t text, ts timestamp, d date)")
        url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
        made = JdbcSink(url, "t", staging=str(tmp_path / "s"), key="id", user="postgres", jars=jars)
        made.preflight()
        rig = Rig(tmp_path / "rig3", made)
        for item in rig.write(0, [columns]):
            rig.bound.commit(item.payload)
            server.restart()
            rig.bound.commit(item.payload)
        assert server.execute("SELECT * FROM t ORDER BY id") == [
            (1, False, b"", "é", WHEN, WHEN.date()), (2, None, None, None, WHEN, WHEN.date())
        ]  # fmt: skip
        made.close()
        wrong = JdbcSink(url, "t", staging=str(tmp_path / "s"), user="writer", password="geh32m", jars=jars)
        with pytest.raises(
            DefinitionError, match=r'refuses: .*password authentication failed for user "writer"'
        ) as caught:
            wrong.preflight()
        assert "geh32m" not in str(caught.value)
        server.kill()
        with pytest.raises(TransientError, match="nobody answers at postgresql://"):
            made.preflight()
