"""From a script to trees: types, names, what is refused, where and with which words, and the hook of the query analysis."""

from __future__ import annotations

from typing import Any

import pytest
from sqlglot import exp

from poundlock.sql.errors import SqlError
from poundlock.sql.expressions.analysis import ExpressionAnalysis
from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal, columns_of
from poundlock.sql.script import ParsedStatement, statements_of
from support.sql_expressions import kind, scope_of, tree, value

COLUMNS = {
    "id": "INT", "customer": "STRING", "amount": "DECIMAL(10, 2)", "ok": "BOOLEAN", "ts": "TIMESTAMP(3)", "day_": "DATE", "f": "DOUBLE",
    "r": "ROW<a INT NOT NULL, b ROW<c STRING>>", "xs": "ARRAY<INT>", "m": "MAP<STRING, BIGINT>", "never": "INT NOT NULL",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("'abc'", "CHAR(3) NOT NULL"), ("5", "INT NOT NULL"), ("5000000000", "BIGINT NOT NULL"), ("0.50", "DECIMAL(3, 2) NOT NULL"),
        ("1E3", "DOUBLE NOT NULL"), ("X'00ff'", "BINARY(2) NOT NULL"), ("NULL", "NULL"), ("TRUE", "BOOLEAN NOT NULL"), ("UNKNOWN", "BOOLEAN"),
        ("TIMESTAMP '2026-01-05 10:00:00.12'", "TIMESTAMP(2) NOT NULL"), ("DATE '2026-01-05'", "DATE NOT NULL"), ("TIME '10:00:00'", "TIME(0) NOT NULL"),
        ("INTERVAL '1' DAY", "INTERVAL SECOND(3) NOT NULL"), ("INTERVAL '1' YEAR", "INTERVAL MONTH NOT NULL"),
        ("CASE WHEN ok THEN 'a' ELSE 'bb' END", "VARCHAR(2) NOT NULL"), ("CASE WHEN ok THEN 'a' END", "CHAR(1)"), ("CASE WHEN ok THEN 'a' ELSE customer END", "STRING"),
        ("CASE WHEN ok THEN 1 ELSE amount END", "DECIMAL(12, 2)"), ("CASE id WHEN 1 THEN DATE '2026-01-05' ELSE ts END", "TIMESTAMP(3)"),
        ("COALESCE(id, 0)", "INT NOT NULL"), ("COALESCE(amount, id)", "DECIMAL(12, 2)"), ("NULLIF(never, 1)", "INT"), ("IFNULL(id, f)", "DOUBLE"),
        ("IF(ok, id, 5000000000)", "BIGINT"), ("GREATEST(never, 2)", "INT NOT NULL"), ("never + 1", "INT NOT NULL"), ("id + never", "INT"),
        ("never = 1", "BOOLEAN NOT NULL"), ("id = 1", "BOOLEAN"), ("id IS NULL", "BOOLEAN NOT NULL"), ("ok AND id = 1", "BOOLEAN"), ("NOT ok", "BOOLEAN"),
        ("customer || 'x'", "STRING"), ("'a' || 'bc'", "CHAR(3) NOT NULL"), ("r.a", "INT"), ("t.r.b.c", "STRING"), ("ROW(1, 'x')", "ROW<`EXPR$0` INT NOT NULL, `EXPR$1` CHAR(1) NOT NULL> NOT NULL"),
        ("xs[1]", "INT"), ("m['k']", "BIGINT"), ("ARRAY[1, 2.5]", "ARRAY<DECIMAL(11, 1) NOT NULL> NOT NULL"), ("MAP['a', 1]", "MAP<CHAR(1) NOT NULL, INT NOT NULL> NOT NULL"),
        ("CAST(id AS STRING)", "STRING"), ("CAST(never AS BIGINT)", "BIGINT NOT NULL"), ("TRY_CAST(never AS BIGINT)", "BIGINT"), ("CAST(NULL AS DATE)", "DATE"),
        ("ts + INTERVAL '1' DAY", "TIMESTAMP(3)"), ("INTERVAL '1' DAY + ts", "TIMESTAMP(3)"), ("day_ + INTERVAL '1' MONTH", "DATE"), ("2 * INTERVAL '1' DAY", "INTERVAL SECOND(3) NOT NULL"),
        ("TYPEOF(never)", "CHAR(12) NOT NULL"), ("EXTRACT(DAY FROM ts)", "BIGINT"), ("JSON_VALUE(customer, '$.a' RETURNING INT)", "INT"), ("-amount", "DECIMAL(10, 2)"),
    ],
)  # fmt: skip
def test_types(text: str, written: str) -> None:
    made = tree(text, COLUMNS).type
    assert f"{made}{'' if made.is_nullable else ' NOT NULL'}" == written


@pytest.mark.parametrize(
    ("text", "kind_", "place", "says"),
    [
        ("id + custmer", "unknown_column", 13, "did you mean customer?"), ("r.x", "unknown_column", 8, "use one of a, b"), ("id.x", "unknown_column", 8, "is no row"),
        ("UPPR(customer)", "unknown_function", 8, "did you mean UPPER?"), ("1 + FROB(2)", "unknown_function", 12, "there is no function FROB"),
        ("ts > 5", "type_mismatch", 8, "not comparable"), ("id AND ok", "type_mismatch", 8, "write a condition"), ("customer || id", "type_mismatch", 8, "CAST"),
        ("ts + 1", "type_mismatch", 8, "INTERVAL '1' DAY"), ("ok + 1", "type_mismatch", 8, "not two numbers"), ("xs + 1", "type_mismatch", 8, "not two numbers"),
        ("CAST(ts AS INT)", "type_mismatch", 13, "TO_TIMESTAMP_LTZ"), ("CAST(id AS FOO)", "unknown_type", 13, "there is no type FOO"),
        ("xs[0]", "wrong_arguments", 8, "counted from 1"), ("id[1]", "type_mismatch", 8, "has no elements"), ("m[1, 2]", "wrong_arguments", 8, "between [ and ]"),
        ("UPPER(customer, 'x')", "wrong_arguments", 8, "UPPER(text)"), ("NULLIF(id)", "wrong_arguments", 8, "NULLIF(x, y)"), ("SQRT(ok)", "wrong_arguments", 8, "of numbers"),
        ("COALESCE(id, customer)", "type_mismatch", 8, "one type"), ("CASE WHEN id THEN 1 END", "type_mismatch", 18, "needs a condition"), ("id IN (1, ts)", "type_mismatch", 8, "not comparable"),
        ("CASE WHEN ok THEN xs ELSE id END", "type_mismatch", 18, "none in common"), ("EXTRACT(FOO FROM ts)", "wrong_arguments", 25, "there is no unit FOO"),
        ("DATE '2026-02-30'", "bad_literal", 13, "DATE '2026-01-05'"), ("TIMESTAMP '2026-01-05'", "bad_literal", 18, "yyyy-MM-dd HH:mm:ss"), ("TIME '25:00:00'", "bad_literal", 13, "TIME '10:00:00'"),
        ("INTERVAL '1' FORTNIGHT", "bad_literal", 17, "no unit"), ("INTERVAL '1:2' DAY TO SECOND", "bad_literal", 17, "1 02:03:04"), ("X'abc'", "bad_literal", 1, "two digits"),
        ("SUM(id)", "illegal_aggregate", 8, "SELECT or HAVING"), ("id IN (SELECT 1)", "unsupported_query", 8, "sub-query"), ("ARRAY[]", "wrong_arguments", 1, "has no type"),
        ("customer LIKE 'a!b' ESCAPE '!'", "wrong_arguments", 8, "write !! for !"), ("customer LIKE id", "type_mismatch", 8, "CAST it to STRING"), ("xs < xs", "type_mismatch", 8, "has no order"),
    ],
)  # fmt: skip
def test_what_is_refused_says_where_and_what_to_write(text: str, kind_: str, place: int, says: str) -> None:
    with pytest.raises(SqlError) as refused:
        tree(text, COLUMNS)
    assert (refused.value.kind, refused.value.place.column) == (kind_, place), str(refused.value)
    assert says in str(refused.value)
    assert refused.value.next


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", 93_784_500), ("INTERVAL '-1' HOUR", -3_600_000), ("INTERVAL -'1-06' YEAR TO MONTH", -18), ("INTERVAL '90' MINUTES", 5_400_000),
        ("INTERVAL '1.25' SECOND", 1250), ("INTERVAL '10:30' HOUR TO MINUTE", 37_800_000), ("INTERVAL '2' QUARTER", 6), ("INTERVAL '2' WEEK", 1_209_600_000),
    ],
)  # fmt: skip
def test_intervals(text: str, result: int) -> None:
    assert value(text) == result


def test_the_hook_is_asked_first_for_every_part() -> None:
    script = "SELECT SUM(id) + 1 > CARDINALITY(xs) FROM t"
    (statement,) = statements_of(script)
    assert isinstance(statement, ParsedStatement)
    asked: list[Any] = []

    def hook(node: exp.Expr) -> Expression | None:
        asked.append(type(node))
        return ColumnRef("sum_0", kind("INT")) if isinstance(node, exp.Sum) else None

    scope = scope_of(script, "t", {name: kind(of) for name, of in COLUMNS.items()})
    made = ExpressionAnalysis(script, scope, hook).condition(statement.expression.expressions[0], "HAVING")
    assert list(columns_of(made)) == ["sum_0", "xs"]
    assert asked[:3] == [exp.GT, exp.Add, exp.Sum]


def test_a_condition_is_boolean() -> None:
    script = "SELECT id + 1, NULL"
    (statement,) = statements_of(script)
    assert isinstance(statement, ParsedStatement)
    analysis = ExpressionAnalysis(script, scope_of(script, "t", {"id": kind("INT")}))
    number, null = statement.expression.expressions
    with pytest.raises(SqlError, match="WHERE needs a condition, and this is INT") as refused:
        analysis.condition(number)
    assert refused.value.kind == "type_mismatch"
    assert analysis.condition(null) == Literal(None, kind("BOOLEAN"))
