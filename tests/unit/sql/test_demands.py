"""What a query wants of its tables, and which conditions a server of PostgreSQL is asked."""

from __future__ import annotations

from typing import Any

import pytest

from poundlock.sql.connectors.jdbc.conditions import conditions_of
from poundlock.sql.relations.demands import ScanDemand, demands_of
from poundlock.sql.relations.tree import LogicalScan, walk_relations
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import RunsQuery
from poundlock.sql.statements.session import SqlSession

TABLE = """
CREATE TABLE t (id BIGINT, n INT, name STRING, price DECIMAL(10, 2), `day` DATE, ts TIMESTAMP(3), ok BOOLEAN, x DOUBLE)
WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/x', 'table-name' = 't');
"""


def demand(query: str) -> ScanDemand:
    session, script = SqlSession(), TABLE + query
    result: Any = None
    for statement in statements_of(script):
        result = session.take(statement, script)
    assert isinstance(result, RunsQuery)
    (scan,) = (each for each in walk_relations(result.relation) if isinstance(each, LogicalScan))
    return demands_of([result.relation])[id(scan)]


def asked(condition: str) -> list[str]:
    made = demand(f"SELECT id FROM t WHERE {condition}")
    names = {name: name for name in ("id", "n", "name", "price", "day", "ts", "ok", "x")}
    return conditions_of(made.conditions, names)


def test_how_many_rows_will_do() -> None:
    assert demand("SELECT id FROM t LIMIT 5").limit == 5
    assert demand("SELECT id FROM t LIMIT 5 OFFSET 2").limit == 7
    assert demand("SELECT id FROM t WHERE n > 1 LIMIT 5").limit is None, "rows that do not meet the condition count not"
    assert demand("SELECT n, COUNT(*) FROM t GROUP BY n LIMIT 5").limit is None
    limited = demand("SELECT * FROM (SELECT id, n FROM t LIMIT 5) WHERE n > 1")
    assert (limited.limit, limited.conditions) == (5, ())


def test_what_two_readers_want_is_read_for_both() -> None:
    both = demand("SELECT id FROM t WHERE n = 1 AND id > 2 UNION ALL SELECT id FROM t WHERE id > 2")
    assert len(both.conditions) == 1


@pytest.mark.parametrize(
    ("condition", "sql"),
    [
        ("id > 5", ['"id" > 5']),
        ("5 >= id", ['"id" <= 5']),
        ("n = 7", ['"n" = 7']),
        ("n < 2.5", ['"n" < 2.5']),
        ("name = 'o''x'", ["\"name\"::text = 'o''x'"]),
        ("name <> 'x' AND id IS NOT NULL", ["\"name\"::text <> 'x'", '"id" IS NOT NULL']),
        ("`day` = DATE '2026-01-05'", ["\"day\" = DATE '2026-01-05'"]),
        ("ts >= TIMESTAMP '2026-01-05 10:00:00.000'", ["\"ts\" >= TIMESTAMP '2026-01-05 10:00:00'"]),
        ("id = 1 OR n = 2", ['("id" = 1) OR ("n" = 2)']),
        ("id BETWEEN 1 AND 3", ['"id" >= 1', '"id" <= 3']),
        ("id IN (1, 2)", ['("id" = 1) OR ("id" = 2)']),
    ],
)
def test_conditions_that_mean_the_same_in_the_server(condition: str, sql: list[str]) -> None:
    assert asked(condition) == sql


@pytest.mark.parametrize("condition", ["name > 'x'", "x = 1.5", "price = 2.5", "UPPER(name) = 'X'", "id = 1 OR UPPER(name) = 'X'", "id = n", "NOT (id = 1)", "CAST(name AS INT) = 1"])  # fmt: skip
def test_other_conditions_are_left_to_the_query(condition: str) -> None:
    assert asked(condition) == []
