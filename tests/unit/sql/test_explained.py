"""EXPLAIN: the sections that it has, the tree of relations, and what runs which step."""

from __future__ import annotations

import pytest

from poundlock import FileSource, Job, PrintSink, TumblingEventTimeWindows, WatermarkStrategy
from poundlock.plan.explain import ways
from poundlock.sql.errors import SqlError
from poundlock.sql.running.runner import ScriptRunner
from poundlock.sql.statements.results import ShownRows

TABLES = """
CREATE TABLE t (color STRING, n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE u (color STRING, label STRING) WITH ('connector' = 'filesystem', 'path' = 'labels', 'format' = 'json');
CREATE TABLE o (color STRING, n BIGINT) WITH ('connector' = 'print');
"""
QUERY = "SELECT u.label, SUM(n) AS total FROM t JOIN u ON t.color = u.color WHERE n > 1 GROUP BY u.label"


def explained(statement: str) -> list[str]:
    shown: list[ShownRows] = []
    ScriptRunner("s", lambda fields, rows: None, shown.append).run(f"{TABLES}{statement}")
    ((text,),) = shown[-1].rows
    return str(text).splitlines()


def test_a_query_is_shown_as_relations_and_as_stages() -> None:
    lines = explained(f"EXPLAIN {QUERY}")
    assert [line for line in lines if line.startswith("==")] == [
        "== Abstract Syntax Tree ==",
        "== Optimized Execution Plan ==",
        "== Where It Runs ==",
    ]
    tree = lines[1 : lines.index("")]
    assert tree == [
        "LogicalProject(label=[label], total=[sum])",
        "+- LogicalAggregate(keys=[label], calls=[SUM(n)])",
        "   +- LogicalProject(label=[label], n=[n])",
        "      +- LogicalJoin(kind=[inner], keys=[(color, color)])",
        "         :- LogicalFilter(condition=[(n > 1)])",
        "         :  +- LogicalProject(color=[color], n=[n], ts=[ts])",
        "         :     +- LogicalAssignWatermark(time=[ts], watermark=[(ts - INTERVAL '5 s')])",
        "         :        +- LogicalScan(table=[t], fields=[color, n, ts])",
        "         +- LogicalProject(color=[color], label=[label])",
        "            +- LogicalScan(table=[u], fields=[color, label])",
    ]
    assert any(line.startswith("stage 2: keyed") for line in lines)
    assert "Spark's SQL engine: no step" in lines
    assert any(line.startswith("by columns: ") and "join-color-" in line for line in lines)
    assert "record by record: no step" in lines


def test_a_set_of_inserts_has_a_tree_for_each_sink_with_its_changes() -> None:
    lines = explained(
        "EXPLAIN CHANGELOG_MODE STATEMENT SET BEGIN INSERT INTO o SELECT color, n FROM t; "
        "INSERT INTO o SELECT color, SUM(n) FROM t GROUP BY color; END"
    )
    sinks = [number for number, line in enumerate(lines) if line == "LogicalSink(table=[o], fields=[color, n])"]
    assert len(sinks) == 2
    assert lines[sinks[0] + 1].endswith("changelogMode=[I])")
    assert lines[sinks[1] + 1].endswith("changelogMode=[I,UB,UA,D])")


def test_patterns_are_named_as_what_goes_record_by_record() -> None:
    lines = explained(
        "EXPLAIN SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY color ORDER BY ts MEASURES LAST(d.n) AS low "
        "PATTERN (s d) DEFINE d AS d.n < s.n)"
    )
    assert any(line.startswith("record by record: match-color-") for line in lines)


@pytest.mark.parametrize("detail", ["ESTIMATED_COST", "JSON_EXECUTION_PLAN", "PLAN_ADVICE"])
def test_a_detail_that_is_not_there_is_refused_by_name(detail: str) -> None:
    with pytest.raises(SqlError, match=f"EXPLAIN {detail} is not there"):
        explained(f"EXPLAIN {detail}, CHANGELOG_MODE {QUERY}")


def test_steps_of_python_and_of_spark_are_told_apart() -> None:
    job = Job("j", on_error="fail")
    times = WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="at")
    rows = job.from_source(FileSource("in", format="json", schema="k string, at timestamp"), times, name="rows")
    kept = rows.filter(lambda row: True, name="kept").select("upper(k) AS k", "event_time", name="upper")
    windows = kept.key_by("k").window(TumblingEventTimeWindows("1 s"))
    windows.aggregate("count(*) AS n", name="counts").sink_to(PrintSink(), name="shown")
    by = ways(job)
    assert by.spark == ["upper"]
    assert by.records == {"kept": "it is a function of records"}
    assert "counts" in by.columns


def test_columns_of_values_are_called_as_their_aliases() -> None:
    lines = explained("EXPLAIN SELECT c, SUM(m) AS total FROM (VALUES ('red', 1), ('blue', 2)) AS v (c, m) GROUP BY c")
    assert lines[1:5] == [
        "LogicalProject(c=[c], total=[sum])",
        "+- LogicalAggregate(keys=[c], calls=[SUM(m)])",
        "   +- LogicalProject(c=[c], m=[m])",
        "      +- LogicalValues(2 rows, fields=[c, m])",
    ]
    assert explained("EXPLAIN VALUES (1, 2)")[1] == "LogicalValues(1 rows, fields=[EXPR$0, EXPR$1])"
