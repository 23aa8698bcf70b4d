"""Lookup joins: what of a query a table is asked by, rows with those of the table by columns, the cache, and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from poundlock.errors import DefinitionError
from poundlock.sql.connectors.table import CacheLimits
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.expressions.tree import ColumnRef, SqlCall
from poundlock.sql.lowering.lookup_cache import LookupCache
from poundlock.sql.lowering.lookup_rows import DistinctKeys, LookupJoinProgram
from poundlock.sql.lowering.programs import CalcProgram, CalcStep
from poundlock.sql.relations.changes import is_updating
from poundlock.sql.relations.tree import LogicalLookupJoin, walk_relations
from poundlock.sql.running.jobs import JobBuilder, new_job
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import RunsQuery
from poundlock.sql.statements.session import SqlSession, error_kind
from poundlock.sql.types import SqlType

TABLES = """
CREATE TABLE orders (id INT, who BIGINT, what VARCHAR(10), ts TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR ts AS ts)
WITH ('connector' = 'datagen');
CREATE TABLE people (id INT, name STRING, land STRING, up AS UPPER(name), PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/x', 'table-name' = 'people'{options});
CREATE VIEW abroad AS SELECT id AS number, name FROM people WHERE land <> 'de';
CREATE TABLE files (id INT, name STRING) WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'json');
"""


def planned(query: str, options: str = "") -> Any:
    """Return the relation of a query, whose job was planned as well."""
    session, script = SqlSession(), TABLES.format(options=options) + query
    result: Any = None
    for statement in statements_of(script):
        result = session.take(statement, script)
    assert isinstance(result, RunsQuery)
    builder = JobBuilder(new_job("check", {}), session.zone, {})
    builder.lowering.stream(result.relation)
    return result.relation


def join_of(query: str, options: str = "") -> LogicalLookupJoin:
    relation = planned(query, options)
    assert not is_updating(relation, lambda scan: False)
    (join,) = (each for each in walk_relations(relation) if isinstance(each, LogicalLookupJoin))
    return join


def asked_by(join: LogicalLookupJoin) -> list[str]:
    return [join.table.field(column).name for _, column in join.looked_up]


def test_a_table_is_asked_by_the_columns_that_are_equal() -> None:
    join = join_of(
        "SELECT o.id, p.name, p.up FROM orders AS o JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON o.id = p.id"
    )
    assert (asked_by(join), join.kind, join.condition) == (["id"], "inner", None)
    wider = join_of(
        "SELECT * FROM orders AS o LEFT JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON p.id = o.who AND o.what = p.land"
    )
    assert (asked_by(wider), wider.kind) == (["id", "land"], "left")
    assert [f.name for f in wider.fields] == ["id", "who", "what", "ts", "pt", "id", "name", "land", "up"]
    assert wider.rowtime is not None, "the left side's event time stays one"
    more = join_of(
        "SELECT * FROM orders AS o JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON o.id = p.id AND p.name > o.what AND o.what = p.up"
    )
    assert (asked_by(more), len(more.keys)) == (["id"], 2)
    assert more.condition is not None
    view = join_of(
        "SELECT o.id, a.name FROM orders AS o JOIN abroad FOR SYSTEM_TIME AS OF o.pt AS a ON o.id = a.number"
    )
    assert asked_by(view) == ["id"]


def test_windows_and_aggregates_stand_behind_it() -> None:
    planned("""
        SELECT land, COUNT(*) FROM (SELECT o.ts, p.land FROM orders AS o JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON o.id = p.id)
        GROUP BY land, TUMBLE(ts, INTERVAL '1' MINUTE)""")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("o RIGHT JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON o.id = p.id", "a RIGHT JOIN of versions"),
        ("o JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON o.id > p.id", "equals one of the left side"),
        ("o JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON o.what = p.up", "equals one of the left side"),
        ("o JOIN people FOR SYSTEM_TIME AS OF o.id AS p ON o.id = p.id", "no time attribute"),
        ("o JOIN people FOR SYSTEM_TIME AS OF PROCTIME() AS p ON o.id = p.id", "no time attribute"),
        ("o JOIN files FOR SYSTEM_TIME AS OF o.pt AS p ON o.id = p.id", "files cannot be looked up in"),
    ],
)
def test_what_is_refused(query: str, words: str) -> None:
    with pytest.raises(DefinitionError, match=words) as refused:
        planned(f"SELECT o.id FROM orders AS {query}")
    assert error_kind(refused.value) == "unsupported_query"


# --- rows --------------------------------------------------------------------------------------------------------------

INT, STRING = SqlType("INT"), SqlType("VARCHAR", (10,))


@dataclass
class Table:
    """A table that notes what it is asked."""

    held: list[dict[str, Any]]
    cache: CacheLimits = field(default_factory=CacheLimits)
    identity: str = "none"
    asked: list[list[Any]] = field(default_factory=list)

    def rows(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        wanted = [tuple(row.values()) for row in keys.to_pylist()]
        assert len(set(wanted)) == len(wanted)
        assert not any(None in row for row in wanted)
        self.asked.append(wanted)
        chosen = [row for row in self.held if (row["k"],) in wanted]
        random.Random(len(wanted)).shuffle(chosen)
        return pa.RecordBatch.from_pylist(chosen, schema=pa.schema([("k", pa.int32()), ("v", pa.string())]))

    def describe(self) -> str:
        return "a table"


def program(table: Table, *, is_outer: bool, condition: Any = None) -> LookupJoinProgram:
    context = EvaluationContext(ZoneInfo("UTC"))
    return LookupJoinProgram(
        table, (("a", "k"),), ("a",), CalcProgram((), context), ("a", "b"), ("k", "v"), is_outer, condition, context
    )


def batch(rows: list[tuple[Any, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([a for a, _ in rows], pa.int32()), pa.array([b for _, b in rows], pa.string())], ["a", "b"]
    )


HELD = [{"k": 1, "v": "x"}, {"k": 1, "v": "y"}, {"k": 2, "v": None}, {"k": 9, "v": "z"}]
ROWS = [(1, "x"), (None, "x"), (3, "q"), (2, "x"), (1, "z"), (2, None)]


def joined(rows: list[tuple[Any, Any]], *, is_outer: bool, same: bool = False) -> list[tuple[Any, ...]]:
    made: list[tuple[Any, ...]] = []
    for a, b in rows:
        matches = [r for r in HELD if r["k"] == a and (not same or (b is not None and b == r["v"]))]
        made += [(a, b, r["k"], r["v"]) for r in matches]
        if is_outer and not matches:
            made.append((a, b, None, None))
    return made


@pytest.mark.parametrize("is_outer", [False, True])
@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("rows", [ROWS, ROWS[1:3], [], [(7, "x")] * 3])
def test_each_row_comes_with_those_of_its_key(rows: list[Any], is_outer: bool, same: bool) -> None:
    table = Table(HELD)
    condition = SqlCall("=", (ColumnRef("b", STRING), ColumnRef("v", STRING)), SqlType("BOOLEAN")) if same else None
    made, places = program(table, is_outer=is_outer, condition=condition).run(batch(rows))
    got = [tuple(row.values()) for row in made.to_pylist()]
    assert Counter(got) == Counter(joined(rows, is_outer=is_outer, same=same))
    assert places is not None
    assert [rows[place] for place in places.tolist()] == [row[:2] for row in got]
    assert sorted(places.tolist()) == places.tolist(), "rows stay in their order"
    assert sorted(key for (key,) in table.asked[0]) == sorted({a for a, _ in rows if a is not None})
    assert len(table.asked) == 1, "one query for all keys of a batch"


def test_queries_that_see_a_table_otherwise_keep_answers_of_their_own() -> None:
    table = Table(HELD, CacheLimits(max_rows=100), identity="shared by two queries")
    whole = program(table, is_outer=False)
    keys_alone = CalcProgram((CalcStep(("k",), (ColumnRef("k", INT),)),), whole.context)
    narrow = replace(whole, right=keys_alone, right_names=("k",))
    for each, names in ((whole, ["a", "b", "k", "v"]), (narrow, ["a", "b", "k"])) * 2:
        for rows in (ROWS[:1], ROWS):
            assert each.run(batch(rows))[0].schema.names == names
    assert [len(asked) for asked in table.asked] == [1, 2, 1, 2], "each asked once for what it had not"


def test_keys_of_several_columns() -> None:
    keys = DistinctKeys.of([pa.array([1, 1, 2, None, 1]), pa.array(["a", "b", "a", "a", "a"])])
    assert keys.codes.tolist()[0] == keys.codes.tolist()[4]
    assert len(keys.firsts) == 3
    assert keys.codes.tolist()[3] == 3
    assert len(set(keys.codes.tolist())) == 4


# --- the cache -----------------------------------------------------------------------------------------------------------


class Asked:
    """Answers keys with as many rows as they say, and notes them."""

    def __init__(self) -> None:
        self.keys: list[list[int]] = []

    def __call__(self, keys: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        values = keys.column(0).to_pylist()
        self.keys.append(values)
        owners = np.repeat(np.arange(len(values)), [value % 3 for value in values])
        rows = [f"{values[owner]}" for owner in owners.tolist()]
        return pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], ["v"]), owners


def wanted(cache: LookupCache, ask: Asked, *keys: int) -> None:
    rows, owners = cache.answer(pa.RecordBatch.from_arrays([pa.array(keys, pa.int64())], ["k"]), ask)
    assert rows.column(0).to_pylist() == [str(key) for key in keys for _ in range(key % 3)]
    assert owners.tolist() == [number for number, key in enumerate(keys) for _ in range(key % 3)]


def test_what_was_asked_is_kept_and_the_longest_unwanted_goes_first() -> None:
    cache, ask = LookupCache(CacheLimits(max_rows=3), lambda: 0), Asked()
    wanted(cache, ask, 1, 2, 3)
    wanted(cache, ask, 1, 3)
    wanted(cache, ask, 4, 1)
    wanted(cache, ask, 2)
    assert ask.keys == [[1, 2, 3], [4], [2]]
    assert len(cache) == 3
    wanted(cache, ask, *range(10, 20))
    assert len(cache) == 3


def test_what_is_old_is_asked_again() -> None:
    now = [0.0]
    ask = Asked()
    cache = LookupCache(CacheLimits(max_rows=9, after_write_ms=100, after_access_ms=60), lambda: now[0])
    wanted(cache, ask, 1, 2)
    now[0] = 50
    wanted(cache, ask, 1)
    now[0] = 70
    wanted(cache, ask, 1, 2)
    assert ask.keys == [[1, 2], [2]], "key 2 was not wanted for 60 ms"
    now[0] = 100
    wanted(cache, ask, 1, 2)
    assert ask.keys == [[1, 2], [2], [1]], "key 1 was asked for 100 ms ago"


def test_keys_without_rows_are_kept_as_the_options_say() -> None:
    for keeps, asked in ((True, [[3, 1]]), (False, [[3, 1], [3]])):
        cache, ask = LookupCache(CacheLimits(max_rows=9, keeps_missing=keeps), lambda: 0), Asked()
        wanted(cache, ask, 3, 1)
        wanted(cache, ask, 3, 1)
        assert ask.keys == asked


def test_rows_that_nobody_can_want_any_more_are_left_out() -> None:
    cache, ask = LookupCache(CacheLimits(max_rows=100), lambda: 0), Asked()
    for round in range(60):
        wanted(cache, ask, *range(round * 1000, round * 1000 + 1000))
    assert cache._rows is not None
    assert cache._rows.num_rows < 12_000
    assert len(cache) == 100
    wanted(cache, ask, 59_950, 59_951)
    assert len(ask.keys) == 60
