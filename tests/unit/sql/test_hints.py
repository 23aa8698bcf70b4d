"""Hints, and what the analysis makes of deviations with OVER."""

from __future__ import annotations

from pathlib import Path

import pytest

from poundlock import Job
from poundlock.sql.errors import SqlError
from poundlock.sql.relations.tree import LogicalAggregate, LogicalJoin, LogicalScan, walk_relations
from poundlock.sql.running.runner import ScriptRunner
from poundlock.sql.statements.results import RunsInserts, RunsQuery
from poundlock.sql.statements.session import SqlSession
from poundlock.stream.changelog_nodes import GroupAggregateNode, RegularJoinNode
from poundlock.stream.nodes import walk

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
        ("SELECT /*+ REPARTITION(t) */ id FROM t", "the hint REPARTITION is not there yet"),
        ("SELECT /*+ BROADCAST(u) */ id FROM t", "BROADCAST of u, which does not stand in FROM"),
        ("SELECT /*+ NEST_LOOP('t') */ id FROM t", "NEST_LOOP without names of tables"),
        ("SELECT /*+ SHUFFLE_HASH */ id FROM t", "SHUFFLE_HASH without names of tables"),
        ("SELECT /*+ LOOKUP('async'='false') */ id FROM t", "LOOKUP without 'table'"),
        ("SELECT /*+ LOOKUP('table'='u') */ id FROM t", "LOOKUP of u, which does not stand in FROM"),
        ("SELECT /*+ LOOKUP(t) */ id FROM t", "LOOKUP without 'key' = 'value'"),
        (
            "SELECT /*+ LOOKUP('table'='t', 'async'='true') */ id FROM t",
            "LOOKUP with 'async' = 'true', which is not there",
        ),
        (
            "SELECT /*+ LOOKUP('table'='t', 'retry-predicate'='lookup_miss') */ id FROM t",
            "LOOKUP with 'retry-predicate'",
        ),
        ("SELECT id FROM v /*+ OPTIONS('path' = 'b') */", "a hint behind the view v"),
    ],
)
def test_other_hints_are_refused_by_name(script: str, says: str) -> None:
    with pytest.raises(SqlError) as refused:
        results(script)
    assert says in refused.value.what


@pytest.mark.parametrize(
    ("hint", "notes"),
    [
        ("BROADCAST(a)", ["the hint BROADCAST changes nothing"]),
        ("SHUFFLE_HASH(a, b)", ["the hint SHUFFLE_HASH changes nothing"]),
        (
            "SHUFFLE_MERGE(b), NEST_LOOP(a)",
            ["the hint SHUFFLE_MERGE changes nothing", "the hint NEST_LOOP changes nothing"],
        ),
        ("LOOKUP('table'='b', 'async'='false')", ["the hint LOOKUP changes nothing"]),
    ],
)
def test_hints_that_change_nothing_are_noted(hint: str, notes: list[str]) -> None:
    query = f"SELECT /*+ {hint} */ a.id FROM t AS a JOIN t AS b ON a.id = b.id"
    for (result,) in (
        results(query),
        results(f"INSERT INTO o {query}"),
        results(f"EXECUTE STATEMENT SET BEGIN INSERT INTO o {query}; END"),
    ):
        assert [note.partition(":")[0] for note in result.notes] == notes
    (plain,) = results("SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id")
    assert plain.notes == ()


def test_a_runner_and_a_job_pass_notes_on(tmp_path: Path) -> None:
    noted: list[str] = []
    runner = ScriptRunner("script", lambda fields, rows: None, lambda shown: None, on_note=noted.append)
    (*_, checked) = runner.check(f"{T} SELECT /*+ BROADCAST(t) */ id FROM t LIMIT 0")
    assert isinstance(checked.result, RunsQuery)
    assert len(checked.result.notes) == 1
    assert noted == [], "a check alone runs nothing"
    job = Job("notes", checkpoint_dir=str(tmp_path))
    with pytest.warns(UserWarning, match="the hint BROADCAST changes nothing"):
        job.sql(f"{T} SELECT /*+ BROADCAST(t) */ id FROM t")


def ttls(script: str) -> list[object]:
    """Return the times to live that a query's joins and aggregates are given, the innermost first."""
    (query,) = results(script)
    assert isinstance(query, RunsQuery)
    relations = walk_relations(query.relation)
    return [each.state_ttl for each in relations if isinstance(each, LogicalJoin | LogicalAggregate)]


DAY, HOUR = 86_400_000, 3_600_000


@pytest.mark.parametrize(
    ("query", "given"),
    [
        ("SELECT a.id FROM t AS a JOIN t AS b ON a.id + 1 = b.id WHERE a.id > 3", [(DAY, HOUR)]),
        ("SELECT a.id FROM t AS x JOIN t AS a ON a.id = x.id LEFT JOIN v AS b ON b.id = a.id", [(None, DAY), (None, HOUR)]),
        ("SELECT COUNT(*) FROM t AS a JOIN t AS b ON a.id = b.id GROUP BY a.id", [(DAY, HOUR), None]),
        ("SELECT a.id FROM (SELECT id, COUNT(*) FROM t AS a GROUP BY id) AS a JOIN v AS b USING (id)", [None, (DAY, HOUR)]),
    ],
)  # fmt: skip
def test_state_of_each_side_of_a_join_lives_as_long_as_its_hint_says(query: str, given: list[object]) -> None:
    hint = "SELECT /*+ STATE_TTL('a' = '1 d', 'b' = '1h') */"
    assert ttls(query.replace("SELECT", hint, 1)) == given


def test_state_of_an_aggregate_lives_as_long_as_the_hint_of_its_table_says() -> None:
    assert ttls("SELECT /*+ STATE_TTL('t' = '0 s') */ id + 1, COUNT(*) FROM t GROUP BY id + 1") == [0]
    assert ttls("SELECT /*+ STATE_TTL('t' = '1 h') */ DISTINCT id FROM t") == [HOUR]
    assert ttls("SELECT COUNT(*) FROM (SELECT /*+ STATE_TTL('t' = '1 h') */ id, MAX(ts) FROM t GROUP BY id) AS t") == [
        HOUR,
        None,
    ]


def test_hints_of_times_to_live_stand_before_the_setting() -> None:
    job = Job("hints", checkpoint_dir="checkpoint")
    job.sql(f"{T} SET 'table.exec.state.ttl' = '2 h'")
    query = "SELECT /*+ STATE_TTL('a' = '0 s') */ a.id, COUNT(*) FROM {} GROUP BY a.id"
    joined, grouped = (job.sql(query.format(of)).node for of in ("t AS a JOIN t AS b ON a.id = b.id", "t AS a"))
    (join,) = (each for each in walk([joined]) if isinstance(each, RegularJoinNode))
    assert join.ttl_ms == (None, 2 * HOUR)
    assert [each.ttl_ms for each in walk([joined]) if isinstance(each, GroupAggregateNode)] == [2 * HOUR]
    assert [each.ttl_ms for each in walk([grouped]) if isinstance(each, GroupAggregateNode)] == [None]


@pytest.mark.parametrize(
    ("hint", "of", "says"),
    [
        ("STATE_TTL('c' = '1 d')", "t AS a", "STATE_TTL of c, which does not stand in FROM"),
        ("STATE_TTL('a' = 'soon')", "t AS a", "'soon'"),
        ("STATE_TTL(a = '1 d')", "t AS a", "STATE_TTL without names"),
        ("STATE_TTL", "t AS a", "STATE_TTL without names"),
        ("STATE_TTL()", "t AS a", "STATE_TTL without names"),
        ("STATE_TTL('a' = '1 d'), REPARTITION(a)", "t AS a", "the hint REPARTITION is not there yet"),
        ("STATE_TTL('a' = '1 d')", "t AS a", "STATE_TTL of a has no effect"),
    ],
)
def test_times_to_live_that_mean_nothing_are_refused(hint: str, of: str, says: str) -> None:
    with pytest.raises(SqlError) as refused:
        results(f"SELECT /*+ {hint} */ a.id FROM {of}")
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
