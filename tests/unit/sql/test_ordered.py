"""OVER and ORDER BY of SQL as steps: what orders rows, which constants are written, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from poundlock import DatagenSource, Job
from poundlock.errors import DefinitionError
from poundlock.sql.errors import SqlError
from poundlock.sql.lowering.ordered import over_node, sort_node, temporal_join_node
from poundlock.sql.relations.tree import LogicalOver, LogicalSort, LogicalTemporalJoin, walk_relations
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import RunsQuery
from poundlock.sql.statements.session import SqlSession
from poundlock.stream.over_nodes import OverNode, RowFrame

TABLES = """
CREATE TABLE orders (id INT, k STRING, x INT, p AS PROCTIME(), ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'json');
CREATE TABLE rates (k STRING, r INT, since TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED, WATERMARK FOR since AS since)
WITH ('connector' = 'filesystem', 'path' = 'y', 'format' = 'json');
"""
NODE = Job("ordered").from_source(DatagenSource(), name="rows").node


def relation_of(query: str, kind: type[Any], *, batch: bool = False) -> Any:
    script = TABLES + ("SET 'execution.runtime-mode' = 'batch';" if batch else "") + query
    session = SqlSession()
    last = [session.take(statement, script) for statement in statements_of(script)][-1]
    assert isinstance(last, RunsQuery)
    return next(each for each in walk_relations(last.relation) if isinstance(each, kind))


def over_of(outputs: str, *, batch: bool = False) -> OverNode:
    made = relation_of(f"SELECT {outputs} FROM orders", LogicalOver, batch=batch)
    return over_node(made, "over", NODE, None)


def test_what_orders_rows() -> None:
    assert over_of("SUM(x) OVER (ORDER BY ts)").by == "event_time"
    assert over_of("SUM(x) OVER (ORDER BY p)").by == "arrival"
    assert over_of("ROW_NUMBER() OVER (ORDER BY x)").by == "any"
    assert over_of("ROW_NUMBER() OVER (ORDER BY ts DESC)").by == "any"
    (order,) = over_of("RANK() OVER (PARTITION BY k ORDER BY x DESC)").order
    assert (order.descending, order.nulls_first) == (True, False)


def test_frames() -> None:
    (call,) = over_of("SUM(x) OVER (ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)").calls
    assert call.frame == RowFrame("rows", 2)
    (call,) = over_of("SUM(x) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW)").calls
    assert call.frame == RowFrame("range", 60_000)
    (call,) = over_of("SUM(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND 3 FOLLOWING)", batch=True).calls
    assert call.frame == RowFrame("rows", 1, 3)


def test_numbers_that_are_written() -> None:
    (call,) = over_of("LAG(x, 3, -1) OVER (ORDER BY ts)").calls
    assert (call.function, call.offset, call.default is None) == ("lag", 3, False)
    (call,) = over_of("NTILE(4) OVER (ORDER BY x)", batch=True).calls
    assert (call.offset, call.column) == (4, None)
    with pytest.raises(DefinitionError, match="an argument of LAG that is not written as a value"):
        over_of("LAG(x, id) OVER (ORDER BY ts)")
    with pytest.raises(DefinitionError, match="NTILE with 0"):
        over_of("NTILE(0) OVER (ORDER BY x)", batch=True)


def test_a_filter_before_an_over_is_no_aggregate_of_a_group() -> None:
    (call,) = over_of("SUM(x) FILTER (WHERE x > 1) OVER (ORDER BY ts)").calls
    assert call.filter is not None


def test_what_is_certain_at_the_end_alone_is_refused_in_a_stream() -> None:
    with pytest.raises(DefinitionError, match="over: over lag"):
        over_of("LAG(x) OVER (ORDER BY x)").check_stream()
    over_of("ROW_NUMBER() OVER (ORDER BY x)").check_stream()
    assert {call.function for call in over_of("VAR_POP(x) OVER (ORDER BY ts)").calls} == {"sum", "count"}


def test_sorted_rows() -> None:
    node = sort_node(relation_of("SELECT * FROM orders ORDER BY ts, x", LogicalSort), "sort", NODE)
    assert (node.by, len(node.order), node.calls) == ("event_time", 2, ())
    node = sort_node(relation_of("SELECT * FROM orders ORDER BY p, x DESC", LogicalSort), "sort", NODE)
    assert (node.by, [each.descending for each in node.order]) == ("arrival", [True])
    query = "SELECT * FROM orders ORDER BY x LIMIT 3 OFFSET 1"
    node = sort_node(relation_of(query, LogicalSort, batch=True), "sort", NODE)
    assert (node.by, node.limit, node.offset) == ("any", 3, 1)


def test_versions_need_a_key() -> None:
    query = "SELECT * FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON {}"
    made = relation_of(query.format("o.k = r.k AND o.x > r.r"), LogicalTemporalJoin)
    node = temporal_join_node(made, "joined", [NODE, NODE], len)
    assert (node.kind, node.condition, [len(keys) for keys in node.keys]) == ("left", len, [1, 1])
    for condition in ("o.x > r.r", "o.x = r.r"):
        with pytest.raises(SqlError, match="not by the primary key of r"):
            relation_of(query.format(condition), LogicalTemporalJoin)
    script = TABLES.replace("PRIMARY KEY (k) NOT ENFORCED, ", "") + query.format("o.k = r.k")
    session = SqlSession()
    with pytest.raises(SqlError, match="r has no primary key"):
        [session.take(each, script) for each in statements_of(script)]
    with pytest.raises(SqlError, match="FOR SYSTEM_TIME AS OF with USING"):
        relation_of(query.replace("ON {}", "USING (k)"), LogicalTemporalJoin)
    with pytest.raises(SqlError, match="behind the first table of FROM"):
        relation_of("SELECT * FROM rates FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01 00:00:00'", LogicalTemporalJoin)
