"""Rows as SQL, and what a JdbcSink may say; without a database."""

from __future__ import annotations

import datetime
import decimal
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, JdbcSink, TerminalError
from poundlock.checkpoint.participant import Kind, Reject, WriterContext
from poundlock.connectors.jdbc.bridge import JdbcError
from poundlock.connectors.jdbc.dialect import NoLiteral, dialect_of
from poundlock.formats.chunk import Batch

WHEN = datetime.datetime(2024, 2, 29, 12, 0, 0, 5)


@pytest.mark.parametrize(
    ("product", "value", "text"),
    [
        ("Apache Derby", None, "NULL"),
        ("Apache Derby", "it's \\", "'it''s \\'"),
        ("MySQL", "it's \\' OR 1", "'it''s \\\\'' OR 1'"),
        ("Apache Derby", True, "TRUE"),
        ("Oracle", True, "1"),
        ("Apache Derby", 1.5, "1.5E0"),
        ("Apache Derby", 1e300, "1e+300"),
        ("Apache Derby", decimal.Decimal("1E+3"), "1000"),
        ("Apache Derby", b"\x00\xff", "X'00ff'"),
        ("PostgreSQL", b"\x00\xff", "'\\x00ff'::bytea"),
        ("Oracle", b"\xff", "HEXTORAW('ff')"),
        ("PostgreSQL", WHEN, "{ts '2024-02-29 12:00:00.000005'}"),
        ("SQLite", WHEN, "'2024-02-29 12:00:00.000005'"),
        (
            "MySQL",
            WHEN.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
            "{ts '2024-02-29 10:00:00.000005'}",
        ),
        ("PostgreSQL", WHEN.date(), "{d '2024-02-29'}"),
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


def test_names_are_quoted_as_the_database_does() -> None:
    assert dialect_of("PostgreSQL", '"').named('a"b') == '"a""b"'
    assert dialect_of("MySQL", "`").named("a") == "`a`"
    assert dialect_of("Microsoft SQL Server", '"').named("a]b") == "[a]]b]"
    assert dialect_of("what", " ").named("a") == "a"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "postgresql://x"}, "is not a JDBC URL"),
        ({"url": "jdbc:x://h/d?user=a&password=geh31m"}, "the password stands in the JDBC URL"),
        ({"url": "jdbc:sqlserver://h;password=geh31m"}, "the password stands in the JDBC URL"),
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


def test_a_sink_without_a_way_to_a_jvm_says_so() -> None:
    sink = JdbcSink("jdbc:derby:memory:a;x=y", "t", staging="/tmp/x", key="id", password="geh31m")
    assert sink.kind is Kind.TRANSACTIONAL
    assert sink.describe() == "JDBC table t at derby:memory:a (by key id, by the driver; exactly-once)"
    assert "geh31m" not in repr(sink) + sink.login
    assert pickle.loads(pickle.dumps(sink)) == sink
    with pytest.raises(TerminalError, match="works in the driver of a running job only"):
        sink.connect()


def test_which_errors_leave_everything_open() -> None:
    assert JdbcError("08006", "gone").away
    assert not JdbcError("23505", "double").away


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
