"""Hints, and what the analysis makes of deviations with OVER."""

from __future__ import annotations

import pytest

from poundlock.sql.errors import SqlError
from poundlock.sql.relations.tree import LogicalScan, walk_relations
from poundlock.sql.statements.results import RunsInserts, RunsQuery
from poundlock.sql.statements.session import SqlSession

T = """CREATE TABLE t (id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
    WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
    CREATE TABLE o (id INT) WITH ('connector' = 'print'); CREATE VIEW v AS SELECT id FROM t;"""


def results(script: str) -> list[RunsQuery | RunsInserts]:
    return [each for each in SqlSession().results(T + script) if isinstance(each, RunsQuery | RunsInserts)]


def test_options_behind_a_table_stand_before_its_own_in_that_place_alone() -> None:
    hint = "/*+ OPTIONS('path' = 'other', 'source.monitor-interval' = '1 s') */"
    (query,) = results(f"SELECT a.id FROM t {hint} AS a JOIN t AS b ON a.id = b.id")
    assert isinstance(query, RunsQuery)
    scans = [each.definition.options for each in walk_relations(query.relation) if isinstance(each, LogicalScan)]
    assert sorted(each["path"] for each in scans) == ["in", "other"]
    assert [each.get("source.monitor-interval") for each in scans if each["path"] == "other"] == ["1 s"]
    assert all(each["format"] == "json" for each in scans)
    (insert,) = results("INSERT INTO o /*+ OPTIONS('print-identifier' = 'x') */ SELECT id FROM t")
    assert isinstance(insert, RunsInserts)
    assert insert.sinks[0].definition.options["print-identifier"] == "x"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("SELECT id FROM t /*+ LOOKUP('table'='t') */", "the hint LOOKUP('table'='t') is not there"),
        ("SELECT id FROM t /*+ OPTIONS('a') */", "the hint OPTIONS('a') is not there"),
        ("SELECT id FROM t /*+ OPTIONS(a='b') */", "the hint OPTIONS(a='b') is not there"),
        ("SELECT /*+ BROADCAST(t) */ id FROM t", "the hint BROADCAST is not there yet"),
        ("SELECT id FROM v /*+ OPTIONS('path' = 'b') */", "a hint behind the view v"),
    ],
)
def test_other_hints_are_refused_by_name(script: str, says: str) -> None:
    with pytest.raises(SqlError) as refused:
        results(script)
    assert says in refused.value.what


def test_comments_are_no_hints() -> None:
    assert len(results("SELECT id /* + one */ FROM t -- + two")) == 1


def test_deviations_with_over_are_sums_and_counts_of_the_same_rows() -> None:
    (query,) = results(
        "SELECT STDDEV_POP(id) OVER (ORDER BY ts), VAR_SAMP(id) OVER (ORDER BY ts), COUNT(id) OVER (ORDER BY ts) FROM t"
    )
    assert isinstance(query, RunsQuery)
    kinds = [call.kind for each in walk_relations(query.relation) for call in vars(each).get("calls", ())]
    assert sorted(kinds) == ["count", "count", "sum", "sum"]
