"""Which columns of tables are read for a query."""

from __future__ import annotations

import pytest

from poundlock.sql.connectors.registry import columns_read
from poundlock.sql.relations.pruning import pruned
from poundlock.sql.relations.tree import LogicalJoin, LogicalRelation, LogicalScan, walk_relations
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import RunsQuery
from poundlock.sql.statements.session import SqlSession

TABLES = """
CREATE TABLE a (k INT, n INT, s STRING, r ROW<x INT, y STRING, z ROW<p INT, q INT>>, ts TIMESTAMP(3), twice AS n * 2,
  WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = '{format}');
CREATE TABLE b (k INT, m INT, note STRING, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'filesystem', 'path' = 'b', 'format' = 'csv');
CREATE TABLE j (k INT, m INT, note STRING, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/x', 'table-name' = 'j');
CREATE TABLE g (k INT, r ROW<x INT, y INT>) WITH ('connector' = 'datagen');
CREATE TABLE tj (k INT, m INT) WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'x:1', 'format' = 'json');
CREATE TABLE tk (k INT, m INT) WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'x:1',
  'key.format' = 'json', 'key.fields' = 'k', 'value.format' = 'json');
CREATE TABLE tf (k INT, m INT) WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'x:1',
  'value.format' = 'json', 'value.json.fail-on-missing-field' = 'true');
CREATE TABLE t (k INT, m INT) WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'x:1', 'format' = 'csv');
"""
TUMBLE = "TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"


def relation_of(query: str, format: str = "json") -> LogicalRelation:
    session, script = SqlSession(), f"{TABLES.format(format=format)}{query}"
    last = [session.take(statement, script) for statement in statements_of(script)][-1]
    assert isinstance(last, RunsQuery)
    return last.relation


def read(query: str, format: str = "json") -> dict[str, list[str]]:
    """Return the columns of each table, with the type of those that are rows."""
    (relation,) = pruned([relation_of(query, format)], columns_read)
    scans = [each for each in walk_relations(relation) if isinstance(each, LogicalScan)]
    return {
        each.table.name: [f"{f.name} {f.type}" if f.type.root == "ROW" else f.name for f in each.fields]
        for each in scans
    }


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT k FROM a", {"a": ["k", "ts"]}),
        ("SELECT k FROM a WHERE s = 'x'", {"a": ["k", "s", "ts"]}),
        ("SELECT twice FROM a", {"a": ["n", "ts"]}),
        ("SELECT r.x FROM a", {"a": ["r ROW<`x` INT>", "ts"]}),
        ("SELECT r.z.p FROM a WHERE r.y = 'x'", {"a": ["r ROW<`y` STRING, `z` ROW<`p` INT, `q` INT>>", "ts"]}),
        ("SELECT r, r.x FROM a", {"a": ["r ROW<`x` INT, `y` STRING, `z` ROW<`p` INT, `q` INT>>", "ts"]}),
        ("SELECT COUNT(*) FROM b", {"b": ["k"]}),
        ("SELECT COUNT(*) FROM a", {"a": ["ts"]}),
        ("SELECT note FROM b", {"b": ["note"]}),
        ("SELECT k FROM t", {"t": ["k", "m"]}),
        ("SELECT m FROM tj", {"tj": ["m"]}),
        ("SELECT m FROM tk", {"tk": ["k", "m"]}),
        ("SELECT m FROM tf", {"tf": ["k", "m"]}),
        ("SELECT m FROM j", {"j": ["m"]}),
        ("SELECT note || 'x' FROM j WHERE m = 1", {"j": ["m", "note"]}),
        ("SELECT s FROM (SELECT m AS s, note FROM j)", {"j": ["m"]}),
        ("SELECT x.note FROM j AS x JOIN j AS y ON x.m = y.m", {"j": ["m", "note"]}),
        ("SELECT m FROM j LIMIT 5", {"j": ["m"]}),
        ("SELECT r.x FROM g", {"g": ["r ROW<`x` INT, `y` INT>"]}),
        ("SELECT COUNT(*) FROM g", {"g": ["k"]}),
        ("SELECT SUM(n) FILTER (WHERE k > 1) FROM a GROUP BY s", {"a": ["k", "n", "s", "ts"]}),
        (f"SELECT window_start, COUNT(*) FROM {TUMBLE} GROUP BY window_start, window_end", {"a": ["ts"]}),
        ("SELECT a.s FROM a JOIN b ON a.k = b.k WHERE a.n > b.m", {"a": ["k", "n", "s", "ts"], "b": ["k", "m"]}),
        ("SELECT k FROM a UNION ALL SELECT n FROM a", {"a": ["k", "n", "ts"]}),
        ("SELECT s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY n) AS p FROM a) WHERE p < 3",
         {"a": ["k", "n", "s", "ts"]}),
    ],
)  # fmt: skip
def test_what_is_read(query: str, wanted: dict[str, list[str]]) -> None:
    assert read(query) == wanted


def test_fields_of_rows_are_told_by_their_places_in_other_formats() -> None:
    assert read("SELECT r.x FROM a", "csv") == {"a": ["r ROW<`x` INT, `y` STRING, `z` ROW<`p` INT, `q` INT>>", "ts"]}


def test_the_columns_that_come_out_are_the_same() -> None:
    for query in ("SELECT * FROM a", "SELECT s, k FROM a", "SELECT a.*, b.note FROM a LEFT JOIN b ON a.k = b.k"):
        whole = relation_of(query)
        assert pruned([whole], columns_read)[0].fields == whole.fields


def test_queries_that_share_a_table_share_it_still() -> None:
    one, other = (relation_of(f"SELECT {column} FROM b") for column in ("m", "note"))
    shared = next(each for each in walk_relations(one) if isinstance(each, LogicalScan))
    joined = LogicalJoin(shared.fields, "semi", shared, shared, (("k", "k"),))
    (made,) = pruned([joined], columns_read)
    assert isinstance(made, LogicalJoin)
    assert made.inputs[0] is made.inputs[1]
    assert pruned([one, other], columns_read)[0] is not one
