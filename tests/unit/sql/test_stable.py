"""How operators of scripts are called, and what their state says of itself: the same where a statement was changed compatibly."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from poundlock.errors import DefinitionError
from poundlock.plan.plan import make_plan
from poundlock.savepoint.metadata import Operator
from poundlock.savepoint.operator_ids import compare, operators
from poundlock.sql.running.jobs import JobBuilder, new_job
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import RunsInserts
from poundlock.sql.statements.session import SqlSession
from poundlock.stream.changelog_nodes import GroupAggregateNode
from poundlock.stream.nodes import KeyedNode, WindowNode

TABLES = """
CREATE TABLE orders (color STRING, n INT, price DECIMAL(10, 2), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE rates (color STRING, n INT, rate DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'rates', 'format' = 'json');
CREATE TABLE versions (color STRING, rate DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (color) NOT ENFORCED)
WITH ('connector' = 'filesystem', 'path' = 'versions', 'format' = 'json');
CREATE TABLE {sinks} WITH ('connector' = 'print');
"""
SINKS = "a (color STRING, n BIGINT)", "b (color STRING, n BIGINT, more STRING)", "c (color STRING, n BIGINT)"


def job_of(*inserts: str) -> Any:
    """Return the job of a statement set."""
    sinks = " WITH ('connector' = 'print'); CREATE TABLE ".join(SINKS)
    script = TABLES.format(sinks=sinks) + "EXECUTE STATEMENT SET BEGIN " + "; ".join(inserts) + "; END"
    session = SqlSession()
    *_, last = [session.take(statement, script) for statement in statements_of(script)]
    assert isinstance(last, RunsInserts)
    job = new_job("job", {})
    JobBuilder(job, session.zone, {}).inserts(last)
    return job


def stateful(*inserts: str) -> dict[str, Operator]:
    return {i: each for i, each in operators(make_plan(job_of(*inserts))).items() if each.kind == "stateful"}


def state_columns(*inserts: str) -> dict[str, Any]:
    """Return what the steps with state of a job are made of, names of columns included; not the step before each."""
    nodes = [node for node in make_plan(job_of(*inserts)).nodes if isinstance(node, KeyedNode | WindowNode)]
    left_out = ("inputs", "line", "condition", "program", "function")
    return {
        node.id: {f.name: str(getattr(node, f.name)) for f in dataclasses.fields(node) if f.name not in left_out}
        for node in nodes
    }


SUM = "INSERT INTO a SELECT color, SUM(n * 2) FROM orders WHERE n > 1 GROUP BY color"
WIDER = "INSERT INTO b SELECT color, SUM(n * 2), UPPER(color) FROM orders WHERE n > 1 GROUP BY color"
JOIN = "INSERT INTO a SELECT o.color, o.n FROM orders AS o JOIN rates AS r ON o.color = r.color AND o.n > r.n"
JOIN_WIDER = (
    "INSERT INTO b SELECT r.color, r.n, o.color FROM orders AS o JOIN rates AS r ON o.color = r.color AND o.n > r.n"
)
TOP = "INSERT INTO a SELECT color, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY color ORDER BY n) AS r FROM orders) WHERE r < 3"
TOP_WIDER = TOP.replace("INTO a SELECT color, n", "INTO b SELECT color, n + 1, CAST(n AS STRING)")
WINDOW = (
    "INSERT INTO a SELECT color, MAX(n) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
    "GROUP BY window_start, window_end, color"
)
WINDOW_WIDER = WINDOW.replace(
    "INTO a SELECT color, MAX(n)", "INTO b SELECT color, MAX(n), CAST(window_start AS STRING)"
)
VERSIONS = "INSERT INTO a SELECT o.color, o.n FROM orders AS o JOIN versions FOR SYSTEM_TIME AS OF o.ts ON o.color = versions.color"
NEAR = (
    "INSERT INTO a SELECT o.color, r.n FROM orders AS o JOIN rates AS r ON o.color = r.color "
    "AND o.ts BETWEEN r.ts - INTERVAL '1' MINUTE AND r.ts"
)
FIRST = "INSERT INTO a SELECT color, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY color ORDER BY ts) AS r FROM orders) WHERE r = 1"
OVER = "INSERT INTO a SELECT color, SUM(n) OVER (PARTITION BY color ORDER BY ts ROWS 2 PRECEDING) FROM orders"
PATTERN = (
    "INSERT INTO a SELECT color, low FROM orders MATCH_RECOGNIZE (PARTITION BY color ORDER BY ts MEASURES LAST(d.n) AS low "
    "PATTERN (s d) DEFINE d AS d.n < s.n)"
)
NESTED = "SELECT color, MAX(n) AS n FROM orders GROUP BY color"
EVERY = [SUM, JOIN, TOP, WINDOW, VERSIONS, NEAR, FIRST, OVER, PATTERN]


@pytest.mark.parametrize(
    ("before", "after"), [(SUM, WIDER), (JOIN, JOIN_WIDER), (TOP, TOP_WIDER), (WINDOW, WINDOW_WIDER)]
)
def test_a_column_that_is_added_to_a_projection_changes_no_state(before: str, after: str) -> None:
    assert stateful(before)
    assert stateful(before) == stateful(after)
    assert state_columns(before) == state_columns(after)


@pytest.mark.parametrize("insert", EVERY)
def test_an_insert_that_is_added_before_or_behind_changes_no_state(insert: str) -> None:
    own, columns = stateful(insert), state_columns(insert)
    other = "INSERT INTO b SELECT color, COUNT(DISTINCT n), MAX(color) FROM rates GROUP BY color"
    assert len(own) == 1
    for inserts in ((other, insert), (insert, other)):
        assert own.items() <= stateful(*inserts).items()
        assert columns.items() <= state_columns(*inserts).items()


def test_the_order_of_columns_of_a_query_is_no_matter_of_state() -> None:
    one = "INSERT INTO b SELECT color, SUM(n + 1), MIN(CAST(price AS STRING)) FROM orders GROUP BY color"
    other = (
        "INSERT INTO b (more, n, color) SELECT MIN(CAST(price AS STRING)), SUM(n + 1), color FROM orders GROUP BY color"
    )
    assert state_columns(one) == state_columns(other)


def test_names_say_what_operators_do_and_of_what() -> None:
    assert [i.rpartition("-")[0] for i in stateful(*EVERY)] == [
        "group-aggregate-color",
        "join-color",
        "top-n-color",
        "window-color",
        "temporal-join-color",
        "interval-join-color",
        "deduplicate-color",
        "over-color",
        "match-color",
    ]
    everything = operators(make_plan(job_of(SUM, JOIN)))
    assert {"orders", "rates", "a-sink", "a-sink-2"} <= everything.keys()
    assert all(each.named for each in everything.values())
    assert {"watermark-orders", "watermark-rates"} <= {node.id for node in make_plan(job_of(JOIN)).nodes}


def test_two_aggregates_of_the_same_rows_are_two() -> None:
    twice = stateful(SUM, SUM.replace("SUM(n * 2)", "MAX(n)"))
    assert len(twice) == 2
    first, second = twice
    assert second == f"{first}-2"
    assert twice[first] == stateful(SUM)[first]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("GROUP BY color", "GROUP BY price", "its keys were color STRING and are price DECIMAL(10, 2)"),
        ("n > 1", "n > 2", "its rows were orders WHERE (n > 1) and are orders WHERE (n > 2)"),
        ("SUM(n * 2)", "SUM(n * 3)", "its aggregates were SUM((n * 2)) INT and are SUM((n * 3)) INT"),
        ("SUM(n * 2)", "MAX(n * 2)", "its aggregates were SUM((n * 2)) INT and are MAX((n * 2)) INT"),
        ("FROM orders", "FROM rates", "its rows were orders WHERE (n > 1) and are rates WHERE (n > 1)"),
    ],
)
def test_another_key_condition_or_aggregate_is_named(old: str, new: str, what: str) -> None:
    changed = SUM.replace(old, new).replace("SELECT color", "SELECT MAX('x')" if "price" in new else "SELECT color")
    before, after = stateful(SUM), stateful(changed)
    if "price" in new:  # a constant in the place of the key is one more aggregate
        before = stateful(SUM.replace("SELECT color", "SELECT MAX('x')"))
    with pytest.raises(DefinitionError) as refused:
        compare("s", before, after, allow_non_restored=False)
    assert "'group-aggregate-color-" in refused.value.what
    assert what in refused.value.what


def test_a_type_that_changed_is_named() -> None:
    before = stateful(SUM)
    ((name, was),) = before.items()
    wider = {**was.made_of, "aggregates": ["SUM((n * 2)) BIGINT"]}
    with pytest.raises(
        DefinitionError, match=r"its aggregates were SUM\(\(n \* 2\)\) INT and are SUM\(\(n \* 2\)\) BIGINT"
    ):
        compare("s", before, {name: dataclasses.replace(was, made_of=wider)}, allow_non_restored=False)


def test_what_has_a_time_to_live_and_what_changes_is_named() -> None:
    ((_, was),) = stateful(SUM).items()
    assert (was.made_of["row kinds"], was.made_of["time to live"]) == (["insertions"], "unlimited")
    ((_, window),) = stateful(WINDOW).items()
    assert "time to live" not in window.made_of
    changes = stateful(SUM.replace("FROM orders WHERE n > 1", f"FROM ({NESTED})")).values()
    assert sorted(each.made_of["row kinds"][0] for each in changes) == ["changes", "insertions"]


def test_columns_within_steps_are_called_as_in_the_script() -> None:
    (node,) = (n for n in make_plan(job_of(SUM)).nodes if isinstance(n, GroupAggregateNode))
    assert node.keys == [["`color`"]]
    assert [call.describe() for call in node.aggregates] == ["sum(argument) AS sum_argument"]
