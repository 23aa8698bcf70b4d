"""Which queries take rows back."""

from __future__ import annotations

import pytest

from poundlock.sql.relations.changes import is_updating, upsert_key
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import RunsQuery
from poundlock.sql.statements.session import SqlSession

TABLES = """
CREATE TABLE a (k INT, n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'json');
CREATE TABLE b (k INT, m INT, pts TIMESTAMP(3), WATERMARK FOR pts AS pts) WITH ('connector' = 'filesystem', 'path' = 'b', 'format' = 'json');
CREATE TABLE u (k INT, n INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'u', 'properties.bootstrap.servers' = 'localhost:9092', 'key.format' = 'json', 'value.format' = 'json');
"""
NEAR = "a.k = b.k AND b.pts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND"
WINDOWS = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR({}), INTERVAL '10' SECOND))"
NUMBERED = "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) AS rn FROM {}) WHERE rn = 1"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT k FROM a LIMIT 3 OFFSET 1", False),
        ("SELECT n FROM u WHERE n > 1", True),
        ("SELECT k FROM a ORDER BY n LIMIT 3", True),
        ("SELECT k, COUNT(*) FROM a GROUP BY k LIMIT 3", True),
        (f"SELECT a.k FROM a LEFT JOIN b ON {NEAR}", False),
        ("SELECT a.k FROM a LEFT JOIN b ON a.k = b.k", True),
        (
            f"SELECT a.k FROM {WINDOWS.format('a', 'ts')} AS a FULL JOIN {WINDOWS.format('b', 'pts')} AS b "
            "ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end",
            False,
        ),
        (NUMBERED.format("ts", "a"), False),
        (NUMBERED.format("ts DESC", "a"), True),
        (NUMBERED.format("n", "(SELECT k, SUM(n) AS n FROM a GROUP BY k)"), True),
    ],
)
def test_whether_rows_are_taken_back(query: str, wanted: bool) -> None:
    session, script = SqlSession(), f"{TABLES}{query}"
    last = [session.take(statement, script) for statement in statements_of(script)][-1]
    assert isinstance(last, RunsQuery)
    assert is_updating(last.relation, lambda scan: False) is wanted


@pytest.mark.parametrize(
    ("query", "wanted"),
    [("SELECT n, k AS id FROM u WHERE n > 1", ("id",)), ("SELECT n FROM u", None), ("SELECT k FROM a", None)],
)
def test_which_columns_tell_upserts_apart(query: str, wanted: tuple[str, ...] | None) -> None:
    session, script = SqlSession(), f"{TABLES}{query}"
    last = [session.take(statement, script) for statement in statements_of(script)][-1]
    assert isinstance(last, RunsQuery)
    key = upsert_key(last.relation)
    assert (None if key is None else tuple(f.name for f in last.relation.fields if f.column in key)) == wanted
