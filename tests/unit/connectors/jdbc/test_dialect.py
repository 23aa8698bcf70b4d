"""Rows as SQL, and what a JdbcSink may say; without a database."""

from __future__ import annotations

import datetime
import decimal
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from poundlock import DefinitionError, JdbcSink, TerminalError
from poundlock.checkpoint.participant import Kind, Reject, WriterContext
from poundlock.connectors.jdbc import bridge
from poundlock.connectors.jdbc.bridge import JdbcError
from poundlock.connectors.jdbc.dialect import NoLiteral, dialect_of, prepared
from poundlock.errors import CommitUnknown
from poundlock.formats.chunk import Batch

WHEN = datetime.datetime(2024, 2, 29, 12, 0, 0, 5)


@pytest.mark.parametrize(
    ("product", "value", "text"),
    [
        ("Apache Derby", None, "NULL"),
        ("SQLite", "it's \\", "'it''s \\'"),
        ("PostgreSQL", "it's \\' OR 1", "E'it''s \\\\'' OR 1'"),
        ("PostgreSQL", "it's", "'it''s'"),
        ("Apache Derby", True, "TRUE"),
        ("Oracle", True, "1"),
        ("Apache Derby", 1.5, "1.5E0"),
        ("Apache Derby", 1e300, "1e+300"),
        ("Apache Derby", decimal.Decimal("1E+3"), "1000"),
        ("Apache Derby", b"\x00\xff", "X'00ff'"),
        ("PostgreSQL", b"\x00\xff", "decode('00ff', 'hex')"),
        ("Oracle", b"\xff", "HEXTORAW('ff')"),
        ("PostgreSQL", WHEN, "{ts '2024-02-29 12:00:00.000005'}"),
        ("SQLite", WHEN, "'2024-02-29 12:00:00.000005'"),
        (
            "MySQL",
            WHEN.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
            "{ts '2024-02-29 10:00:00.000005'}",
        ),
        ("PostgreSQL", WHEN.date(), "{d '2024-02-29'}"),
        ("Microsoft SQL Server", WHEN, "CAST('2024-02-29 12:00:00.000005' AS datetime2(6))"),
        ("Microsoft SQL Server", WHEN.date(), "CAST('2024-02-29' AS date)"),
        ("Microsoft SQL Server", "it's", "'it''s'"),
        ("Microsoft SQL Server", "it's 水", "N'it''s 水'"),
        ("PostgreSQL", "水", "'水'"),
    ],
)
def test_values_as_sql(product: str, value: Any, text: str) -> None:
    assert dialect_of(product, '"').literal(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "a\0b", "\ud800", [1], {"a": 1}, object()])
def test_what_no_database_takes(value: Any) -> None:
    with pytest.raises(NoLiteral):
        dialect_of("PostgreSQL", '"').literal(value)


@pytest.mark.parametrize(
    ("product", "said"),
    [
        ("PostgreSQL", ["INSERT INTO t (a, b) VALUES (1, 2), (3, 4) ON CONFLICT (a) DO UPDATE SET b = excluded.b"]),
        ("MariaDB", ["INSERT INTO t (a, b) VALUES (1, 2), (3, 4) ON DUPLICATE KEY UPDATE b = VALUES(b)"]),
        (
            "Microsoft SQL Server",
            [
                "MERGE INTO t AS t USING (VALUES (1, 2), (3, 4)) AS s (a, b) ON (t.a = s.a) WHEN MATCHED THEN UPDATE SET"
                " t.b = s.b WHEN NOT MATCHED THEN INSERT (a, b) VALUES (s.a, s.b);"
            ],
        ),
        (
            "Oracle",
            [
                "MERGE INTO t t USING (SELECT 1 AS a, 2 AS b FROM dual UNION ALL SELECT 3 AS a, 4 AS b FROM dual) s"
                " ON (t.a = s.a) WHEN MATCHED THEN UPDATE SET t.b = s.b WHEN NOT MATCHED THEN INSERT (a, b) VALUES (s.a, s.b)"
            ],
        ),
        ("Apache Derby", ["DELETE FROM t WHERE (a = 1) OR (a = 3)", "INSERT INTO t (a, b) VALUES (1, 2), (3, 4)"]),
    ],
)
def test_rows_by_key(product: str, said: list[str]) -> None:
    rows = [["1", "2"], ["3", "4"]]
    assert dialect_of(product, '"').statements("t", ["a", "b"], ["a"], rows) == said
    (plain,) = dialect_of(product, '"').statements("t", ["a", "b"], [], rows)
    assert plain.startswith("INSERT INTO t (a, b) ")


@pytest.mark.parametrize("product", ["MySQL", "MariaDB", "Microsoft SQL Server", "Apache Derby", "Some Database"])
@pytest.mark.parametrize("key", [[], ["a"]])
def test_text_with_a_backslash_is_a_parameter_where_it_may_have_a_meaning(product: str, key: list[str]) -> None:
    """By one of a server's settings or another, so no dialect says it for certain."""
    dialect = dialect_of(product, '"')
    texts = ["plain?", "\\' OR '1'='1", "a\\\nb", "it's"]
    rows = [[dialect.literal(text), dialect.literal(i)] for i, text in enumerate(texts)]
    made = [prepared(statement) for statement in dialect.statements("t", ["a", "b"], key, rows)]
    assert not any("\\" in statement or "\0" in statement for statement, _ in made)
    assert {text for _, given in made for text in given} == set(texts[1:3])
    for statement, given in made:
        outside = re.sub(r"'[^']*'", "", statement)
        assert outside.count("?") == len(given)
        assert len(given) <= 1, "a row of its own"
    assert sum(statement.count("'plain?'") for statement, _ in made) == (2 if key and "DELETE" in made[0][0] else 1)


def test_names_are_quoted_as_the_database_does() -> None:
    assert dialect_of("PostgreSQL", '"').named('a"b') == '"a""b"'
    assert dialect_of("MySQL", "`").named("a") == "`a`"
    assert dialect_of("Microsoft SQL Server", '"').named("a]b") == "[a]]b]"
    assert dialect_of("what", " ").named("a") == "a"
    with pytest.raises(DefinitionError, match="cannot be written as the name") as caught:
        dialect_of("what", " ").named("a FROM b; --")
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "postgresql://x"}, "is not a JDBC URL"),
        ({"url": "jdbc:x://h/d?user=a&password=geh31m"}, "the password stands in the JDBC URL"),
        ({"url": "jdbc:sqlserver://h;password=geh31m"}, "the password stands in the JDBC URL"),
        ({"url": "jdbc:mysql://etl:geh31m@h:3306/d"}, "the password stands in the JDBC URL"),
        ({"url": "jdbc:mysql://h:3306,etl:geh31m@i:3306/d"}, "the password stands in the JDBC URL"),
        ({"url": "jdbc:mysql://(host=h,password=geh31m)/d"}, "the password stands in the JDBC URL"),
        ({"url": "jdbc:oracle:thin:etl/geh31m@//h:1521/d"}, "the password stands in the JDBC URL"),
        ({"url": "jdbc:db2://h:50000/d:password=geh31m;"}, "the password stands in the JDBC URL"),
        ({"table": "t; DROP"}, "is not the name of a table"),
        ({"marker_table": ""}, "is not the name of a table"),
        ({"key": []}, "names no column"),
        ({"key": ["a"], "columns": ["b"]}, "key column 'a' is not in columns="),
        ({"batch": 0}, "is not a number of rows"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said) as caught:
        JdbcSink(**{"url": "jdbc:derby:memory:a", "table": "t", "staging": "/tmp/x", **settings})
    assert len(str(caught.value).splitlines()) == 2
    assert "geh31m" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:mysql://h:3306/d?connectionAttributes=team:a@b.example",
        "jdbc:postgresql://[::1]:5432/d?user=etl@example",
        "jdbc:oracle:thin:@//h:1521/d",
        "jdbc:oracle:thin:/@wallet",
        "jdbc:sqlserver://h:1433;databaseName=d;user=etl@server",
        "jdbc:db2://h:50000/d:user=etl;",
    ],
)
def test_a_url_without_a_password_is_taken(url: str) -> None:
    assert JdbcSink(url, "t", staging="/tmp/x").url == url


def test_a_sink_without_a_way_to_a_jvm_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poundlock.connectors.jdbc.bridge._connector", [])
    sink = JdbcSink("jdbc:derby:memory:a;x=y", "t", staging="/tmp/x", key="id", password="geh31m")
    assert sink.kind is Kind.TRANSACTIONAL
    assert sink.describe() == "JDBC table t at derby:memory:a (by key id, by the driver; exactly-once)"
    assert "geh31m" not in repr(sink) + sink.login
    assert pickle.loads(pickle.dumps(sink)) == sink
    with pytest.raises(TerminalError, match="JDBC works in a running job only"):
        sink.connect()


def test_which_errors_leave_everything_open() -> None:
    assert JdbcError("08006", "gone").away
    assert not JdbcError("23505", "double").away


@pytest.mark.parametrize("state", ["40001", "53100", "58030", "25006", "57014", "23505", "42S02"])
def test_what_a_database_cannot_do_now_is_asked_for_again(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        product, quote, transactions = "PostgreSQL", '"', True

        def rows(self, query: str) -> list[list[Any]]:
            return []  # no marker: it is not written yet

        def run(self, statement: str, parameters: Sequence[str] = ()) -> int:
            raise JdbcError(state, "no")

        def rollback(self) -> None: ...

        def close(self) -> None: ...

    sink = JdbcSink("jdbc:x:y", "t", staging=str(tmp_path))
    monkeypatch.setattr(bridge, "_connector", [lambda *arguments, columns=False: cast(bridge.Connection, Failing())])
    with pytest.raises(CommitUnknown if state[:2] not in ("23", "42") else TerminalError) as caught:
        sink.commit({"v": 1, "gid": "g", "file": "g.arrow", "rows": 1, "bytes": 1})
    assert len(str(caught.value).splitlines()) <= 2


def test_other_properties_are_another_connection() -> None:
    settings: dict[str, Any] = {"table": "t", "staging": "/tmp/x"}
    one, other = (JdbcSink("jdbc:x:a", properties={"currentSchema": name}, **settings).login for name in "ab")
    assert one != other


def test_a_date_that_no_database_takes_is_a_bad_row(tmp_path: Path) -> None:
    rejects: list[Reject] = []
    context = WriterContext(
        job_id="a" * 32, sink="out", epoch=1, checkpoint=0, subtask=0, attempt="x", directive={}, reject=rejects.append,
        started_ms=0,
    )  # fmt: skip
    writer = JdbcSink("jdbc:x:a", "t", staging=str(tmp_path)).open_writer(context)
    days = pa.array([0, None, 3_000_000, -800_000], pa.int32())
    rows = Batch(pa.record_batch({"d": days.cast(pa.date32())}))
    assert writer.write(rows) == 2
    assert [reject.reason for reject in rejects] == [f"column 'd': a time in the year {year}" for year in (10183, -221)]
