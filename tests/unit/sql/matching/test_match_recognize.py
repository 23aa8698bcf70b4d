"""MATCH_RECOGNIZE from its text to what comes out for rows, and what is refused before anything runs."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from poundlock.errors import DefinitionError
from poundlock.formats.convert import column_values, declared_rows
from poundlock.operators.keyed.group import MAX, KeyGroup
from poundlock.operators.keyed.output import GroupBatch
from poundlock.operators.matching.operator import MatchOperator
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.functions.function import EvaluationError
from poundlock.sql.lowering.match_rows import MatchColumns
from poundlock.sql.lowering.schemas import schema_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import LogicalMatch, LogicalRelation, OrderKey, walk_relations
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import RunsQuery
from poundlock.sql.statements.session import SqlSession, error_kind
from poundlock.stream.matching import AfterMatch, MatchNode

CONTEXT = EvaluationContext(UTC)
TABLE = """CREATE TABLE t (k STRING, n INT, x DOUBLE, m DECIMAL(10, 2), s STRING, r ROW<a INT>, ts TIMESTAMP(3),
    pt AS PROCTIME(), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'json')"""
INSTANTS = TABLE.replace("ts TIMESTAMP(3)", "ts TIMESTAMP_LTZ(3)")
BEGIN = datetime(2026, 1, 5, 10)


def relation_of(query: str, table: str = TABLE) -> LogicalRelation:
    script, session = f"{table};\n{query}", SqlSession()
    results = [session.take(statement, script) for statement in statements_of(script)]
    assert isinstance(results[-1], RunsQuery)
    return results[-1].relation


def written(
    measures: str = "a.n AS n", define: str = "b AS b.n > a.n", *, pattern: str = "a b", keys: str = "k", order: str = "ts",
    after: str = "", within: str = "", rows: str = "ONE ROW PER MATCH", behind: str = "",
) -> str:  # fmt: skip
    """Return a query."""
    by = f"PARTITION BY {keys}" if keys else ""
    ordered = f"ORDER BY {order}" if order else ""
    return (
        f"SELECT * FROM t MATCH_RECOGNIZE ({by} {ordered} MEASURES {measures} {rows} {after} PATTERN ({pattern}) {within}"
        f" DEFINE {define}) {behind}"
    )


def match_of(relation: LogicalRelation) -> LogicalMatch:
    (made,) = [each for each in walk_relations(relation) if isinstance(each, LogicalMatch)]
    return made


def answers(query: str, rows: list[dict[str, Any]], table: str = TABLE) -> list[tuple[Any, ...]]:
    """Return what comes out for rows of one key, which are a second apart: computed with the parts of which a job has its steps."""
    match = match_of(relation_of(query, table))
    columns = MatchColumns(match, CONTEXT)
    program = pickle.loads(pickle.dumps(columns.program()))
    zone = UTC if match.input.fields[-2].type.root == "TIMESTAMP_LTZ" else None
    fixed = {"pt": BEGIN.replace(tzinfo=UTC)}
    given = [
        {
            field.column: {**row, **fixed, "ts": BEGIN.replace(tzinfo=zone) + timedelta(seconds=at)}.get(field.name)
            for field in match.input.fields
        }
        for at, row in enumerate(rows)
    ]
    batch = declared_rows("t", schema_of(match.input.fields), given)
    for own, expression in columns.computed:
        batch = batch.append_column(own.column, evaluate(expression, batch, CONTEXT))
    node = MatchNode(
        "m", [], [[]], ["ts"], "x int", {}, pattern=match.pattern, after=match.after, program=program, within_ms=match.within_ms,
    )  # fmt: skip
    operator, group = MatchOperator(node), KeyGroup(0)
    values = list(zip(*[column_values(batch.column(name)) for name in program.columns], strict=True))
    begin = int(BEGIN.replace(tzinfo=UTC).timestamp() * 1000)
    list(
        operator.process(
            group,
            GroupBatch([None] * len(rows), values or [()] * len(rows), [begin + at * 1000 for at in range(len(rows))]),
        )
    )
    out = [value for chunk in operator.advance_watermark(group, MAX) for value in chunk.values]
    types = {each.column: each.type for each in program.values}
    results = declared_rows("m", schema_of([Field(name, name, types[name]) for name in program.outputs]), out)
    return list(zip(*[column_values(evaluate(each, results, CONTEXT)) for each in match.measures], strict=True))


def numbers(*values: int | None, **others: Any) -> list[dict[str, Any]]:
    return [{"k": "one", "n": value, **others} for value in values]


# --- what comes out -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measures", "wanted"),
    [
        ("a.n AS x", 1),
        ("b.n AS x", 8),
        ("LAST(b.n) AS x", 8),
        ("FINAL LAST(b.n) AS x", 8),
        ("LAST(b.n, 1) AS x", 5),
        ("LAST(b.n, 3) AS x", None),
        ("FIRST(b.n) AS x", 3),
        ("FIRST(b.n, 1) AS x", 5),
        ("FIRST(b.n * 2 + a.n, 1) AS x", None),  # a has no second row
        ("FIRST(b.n * 2, 1) + a.n AS x", 11),
        ("COALESCE(LAST(b.n, 3), -1) AS x", -1),
        ("n AS x", 9),
        ("FIRST(n) AS x", 1),
        ("LAST(n, 1) AS x", 8),
        ("SUM(b.n) AS x", 16),
        ("SUM(n) AS x", 26),
        ("SUM(b.n * 2) + 1 AS x", 33),
        ("AVG(b.n) AS x", 5),
        ("AVG(CAST(b.n AS DOUBLE)) AS x", 16 / 3),
        ("COUNT(b.n) AS x", 3),
        ("COUNT(z.n) AS x", 0),
        ("SUM(z.n) AS x", None),
        ("AVG(z.n) AS x", None),
        ("MIN(b.n) AS x", 3),
        ("MAX(b.s) AS x", "s8"),
        ("AVG(b.m) AS x", Decimal("5.333333")),
        ("SUM(b.m) AS x", Decimal("16.00")),
        ("SUM(b.x) AS x", 8.0),
        ("MAX(b.n) - MIN(b.n) AS x", 5),
        ("b.r.a AS x", 80),
        ("UPPER(LAST(b.s)) AS x", "S8"),
        ("LAST(b.ts) AS x", BEGIN + timedelta(seconds=3)),
        ("MATCH_ROWTIME() AS x", BEGIN + timedelta(seconds=4)),
        ("MATCH_ROWTIME(ts) AS x", BEGIN + timedelta(seconds=4)),
        ("SUM(100 / NULLIF(b.n, 3)) AS x", 32),  # which is not computed for rows of no match
    ],
)
def test_measures(measures: str, wanted: Any) -> None:
    rows = [
        {"k": "one", "n": n, "s": f"s{n}", "m": Decimal(n), "x": n / 2, "r": {"a": n * 10}} for n in (1, 3, 5, 8, 9, 0)
    ]
    query = written(
        measures,
        "b AS b.n < 9, c AS c.n = 9, z AS z.n < 0",
        pattern="a z? b+ c",
        after="AFTER MATCH SKIP PAST LAST ROW",
    )
    assert answers(query, rows) == [("one", wanted)]


@pytest.mark.parametrize(
    ("define", "pattern", "rows", "wanted"),
    [
        # of the row alone, by columns
        ("a AS a.n > 2, b AS n = 1", "a b", (1, 3, 1, 1), [3]),
        # of earlier rows
        ("b AS b.n > a.n", "a b", (3, 2, 4), [2]),
        ("b AS b.n > LAST(b.n, 1) OR LAST(b.n, 1) IS NULL, c AS TRUE", "a b+? c", (3, 1, 4), [3]),
        ("b AS LAST(b.n, 1) IS NULL OR b.n > LAST(b.n, 1), c AS c.n = 0", "a b+ c", (3, 1, 4, 0), [3, 1]),
        ("b AS b.n = LAST(n, 1) + 1", "a b", (3, 5, 6), [5]),
        ("b AS b.n = FIRST(n) + 1", "a b", (3, 5, 6), [5]),
        # aggregates have the row itself among those of its variable
        ("a AS SUM(a.n) < 6, b AS TRUE", "a+ b", (2, 3, 4), [2, 3]),
        ("a AS SUM(a.n) <= 5, b AS b.n > AVG(a.n)", "a+ b", (2, 3, 4), [2, 3]),
        ("a AS COUNT(a.n) < 3, b AS b.n > MAX(a.n) + MIN(a.n)", "a+ b", (2, 3, 4, 9), [3]),
        ("b AS b.n > SUM(n) - b.n", "a b", (3, 1, 2), [1]),
        # null is not true, and what comes after a null is looked at too
        ("a AS a.n > 0, b AS b.n > a.n", "a b", (None, 1, None, 2, 3), [2]),
        # parts that may fail are computed where they are needed
        ("a AS a.n <> 0, b AS 6 / a.n > b.n", "a b", (0, 0, 2, 2, 9), [2]),
        ("a AS a.n = 0 OR 6 / a.n = 3, b AS b.n = 7", "a b", (0, 7, 2, 7), [0, 2]),
        ("b AS CAST(b.s AS INT) > a.n, a AS a.n >= 0", "a b", (1, 4), [1]),
    ],
)
def test_conditions(define: str, pattern: str, rows: tuple[int | None, ...], wanted: list[int]) -> None:
    query = written("FIRST(n) AS n", define, pattern=pattern)
    assert [n for _, n in answers(query, numbers(*rows, s="7"))] == wanted


def test_what_of_a_condition_is_of_the_row_alone_is_computed_by_columns() -> None:
    match = match_of(
        relation_of(
            written(
                "LAST(b.s) AS l, SUM(b.n + 1) AS t",
                "a AS a.n * 2 > 7 AND a.s LIKE 'x%', b AS b.n + 1 > a.n AND 6 / b.n > 1",
            )
        )
    )
    columns = MatchColumns(match, CONTEXT)
    program = columns.program()
    assert sorted(own.type.root for own, _ in columns.computed) == ["BOOLEAN", "INT"]
    by_name = {field.name: field.column for field in match.input.fields}
    assert set(program.columns) == {
        by_name["k"],
        by_name["n"],
        by_name["s"],
        *(own.column for own, _ in columns.computed),
    }


def test_a_failure_is_one_of_rows_that_are_looked_at() -> None:
    query = written(define="a AS a.n < 5, b AS 6 / a.n > b.n")
    assert answers(query, numbers(0)) == []
    with pytest.raises(EvaluationError, match="division by zero"):
        answers(query, numbers(0, 1))


def test_within_and_the_next_match() -> None:
    rows = numbers(1, 5, 2, 6, 3, 7)
    up = "b AS b.n > a.n"
    assert [n for _, n in answers(written(define=up), rows)] == [1, 2, 3]
    assert [
        n for _, n in answers(written(define=up, pattern="a c? b", after="AFTER MATCH SKIP TO NEXT ROW"), rows)
    ] == [1, 5, 2, 6, 3]
    assert [
        n
        for _, n in answers(
            written(define="b AS b.n > a.n + 3, c AS c.n > 0", pattern="a c*? b", within="WITHIN INTERVAL '2' SECOND"),
            rows,
        )
    ] == [1, 2, 3]
    assert [
        n
        for _, n in answers(
            written(define="b AS b.n > a.n + 4", pattern="a c*? b", within="WITHIN INTERVAL '4' SECOND"), rows
        )
    ] == [1, 2]


# --- what is known before ------------------------------------------------------------------------------------------------


def test_fields_and_times_of_the_result() -> None:
    measures = "a.ts AS started, MATCH_ROWTIME() AS mt, MATCH_PROCTIME() AS mp, COUNT(b.n) AS c, AVG(b.m) AS avg_"
    relation = relation_of(written(measures, keys="k, s", behind="AS m"))
    made = [(each.name, str(each.type), each.time) for each in relation.fields]
    assert made == [
        ("k", "STRING", None),
        ("s", "STRING", None),
        ("started", "TIMESTAMP(3)", None),
        ("mt", "TIMESTAMP(3)", "rowtime"),
        ("mp", "TIMESTAMP_LTZ(3)", "proctime"),
        ("c", "BIGINT", None),
        ("avg_", "DECIMAL(38, 6)", None),
    ]
    given = relation_of(written("MATCH_ROWTIME(ts) AS mt, MATCH_ROWTIME() AS plain"), INSTANTS)
    assert [str(each.type) for each in given.fields[1:]] == ["TIMESTAMP_LTZ(3)", "TIMESTAMP(3)"]


def test_instants_are_times_too() -> None:
    query = written("MATCH_ROWTIME(ts) AS mt, LAST(b.ts) AS at_b")
    moment = BEGIN.replace(tzinfo=UTC) + timedelta(seconds=1)
    assert answers(query, numbers(1, 2), INSTANTS) == [("one", moment, moment)]


def test_order_keys_and_the_next_match_as_they_are_written() -> None:
    match = match_of(
        relation_of(written(order="ts, n DESC, s NULLS LAST", after="AFTER MATCH SKIP TO LAST b", keys=""))
    )
    columns = {each.name: each.column for each in match.input.fields}
    assert match.order == (
        OrderKey(columns["ts"]),
        OrderKey(columns["n"], is_descending=True, nulls_first=False),
        OrderKey(columns["s"], is_descending=False, nulls_first=False),
    )
    assert (match.keys, match.after, match.by_clock) == ((), AfterMatch("to last", "b"), False)
    assert match_of(relation_of(written())).after == AfterMatch("to next row")
    assert match_of(relation_of(written(order="pt"))).by_clock


def test_a_match_has_an_alias_and_stands_in_sub_queries() -> None:
    assert [f.name for f in relation_of(f"SELECT m.n + 1 AS x FROM ({written()}) AS m WHERE m.n > 1").fields] == ["x"]
    renamed = relation_of(written(behind="AS m (a, b) WHERE m.b > 1"))
    assert [f.name for f in renamed.fields] == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "kind", "words"),
    [
        (written(rows="ALL ROWS PER MATCH"), "unsupported_query", "ALL ROWS PER MATCH"),
        (written(pattern="a | b"), "unsupported_query", "alternatives"),
        (written(pattern="a b+"), "unsupported_query", "greedy"),
        (written(order=""), "unsupported_query", "ordered by a time attribute"),
        (written(order="n, ts"), "unsupported_query", "ordered by a time attribute"),
        (written(order="ts DESC"), "unsupported_query", "ascending"),
        (written(order="ts + INTERVAL '1' SECOND"), "unsupported_query", "by an expression"),
        (written(keys="UPPER(k)"), "unsupported_query", "by an expression"),
        (written(keys="r.a"), "unsupported_query", "a field of r"),
        (written(keys="kk"), "unknown_column", "no column kk"),
        (written("a.nn AS n"), "unknown_column", "no column nn"),
        (written("c.n AS n"), "unknown_column", "no variable c in PATTERN"),
        (written("nn AS n"), "unknown_column", "no column nn"),
        (written("a.n, b.n AS n"), "syntax", "without a name"),
        (written(define="c AS c.n > 1"), "unknown_column", "no variable c in PATTERN"),
        (written(define="b AS b.n > 1, b AS b.n > 2"), "other", "defined twice"),
        (written(define="b AS b.n"), "type_mismatch", "DEFINE needs a condition"),
        (written(after="AFTER MATCH SKIP TO LAST c"), "unknown_column", "no variable c in PATTERN"),
        (written(within="WITHIN INTERVAL '1' MONTH"), "unsupported_query", "span of time"),
        (written(within="SUBSET w = (a, b)"), "unsupported_query", "SUBSET"),
        (written("RUNNING LAST(a.n) AS n"), "unsupported_query", "RUNNING"),
        (written(define="b AS b.n > PREV(b.n)"), "unsupported_query", "PREV"),
        (written("NEXT(a.n) AS n"), "unsupported_query", "NEXT"),
        (written("LAST(a.n, b.n) AS n"), "unsupported_query", "LAST with b.n"),
        (written("LAST(FIRST(a.n)) AS n"), "unsupported_query", "FIRST within"),
        (written("LAST(SUM(a.n)) AS n"), "unsupported_query", "SUM within"),
        (written("SUM(LAST(a.n)) AS n"), "unsupported_query", "LAST within"),
        (written("SUM(a.n * b.n) AS n"), "unsupported_query", "SUM of several variables"),
        (written("COUNT(*) AS n"), "unsupported_query", "COUNT of no column"),
        (written("COUNT(DISTINCT a.n) AS n"), "unsupported_query", "COUNT DISTINCT"),
        (written("LISTAGG(a.s) AS n"), "unsupported_query", "LISTAGG"),
        (written("SUM(a.s) AS n"), "type_mismatch", "SUM of STRING"),
        (written("SUM(a.n) OVER (ORDER BY a.ts) AS n"), "unsupported_query", "an OVER"),
        (written("CLASSIFIER() AS n"), "unsupported_query", "CLASSIFIER"),
        (written("MATCH_ROWTIME(n) AS n"), "unsupported_query", "MATCH_ROWTIME of n"),
        (written("MATCH_ROWTIME() AS n", order="pt"), "unsupported_query", "order of the clock"),
        (written(define="b AS MATCH_ROWTIME() > a.ts"), "unsupported_query", "MATCH_ROWTIME in DEFINE"),
        (written("a.n AS n", "b AS b.n IN (SELECT n FROM t)"), "unsupported_query", "sub-query"),
    ],
)  # fmt: skip
def test_what_is_refused(query: str, kind: str, words: str) -> None:
    with pytest.raises(DefinitionError, match=words) as error:
        relation_of(query)
    assert error_kind(error.value) == kind, str(error.value)
    assert error.value.next
    assert "line " in str(error.value)
