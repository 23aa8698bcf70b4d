"""Columns and aggregates read out of Spark SQL without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from poundlock.errors import DefinitionError
from poundlock.operators.windows.aggregates import SqlAggregate
from poundlock.plan.sql_text import named_column, parse_aggregates, resolve_column, result_type


@pytest.mark.parametrize(
    ("text", "path", "name"),
    [
        ("user", ("user",), "user"),
        (" user ", ("user",), "user"),
        ("USER", ("USER",), "USER"),
        ("`a b`", ("a b",), "a b"),
        ("`a``b`", ("a`b",), "a`b"),
        ("user AS u", ("user",), "u"),
        ("user u", ("user",), "u"),
        ("user as `u v`", ("user",), "u v"),
        ("left.user", ("left", "user"), "user"),
        ("right.`x y` as z", ("right", "x y"), "z"),
        ("a.b.c", ("a", "b", "c"), "c"),
        ("date", ("date",), "date"),
        ("timestamp", ("timestamp",), "timestamp"),
        ("user -- a comment", ("user",), "user"),
    ],
)
def test_a_column(text: str, path: tuple[str, ...], name: str) -> None:
    found = named_column(text)
    assert found is not None
    assert (found.path, found.name) == (path, name)


@pytest.mark.parametrize(
    "text",
    ["upper(user)", "n * 2", "-n", "1", "'a'", "null", "TRUE", "current_date", "a[0]", "*", "a.*", "(a)", "a + b c", "", "a.1", "not a", "a :: int", "'a' b", "date '2020-01-01'", "`a"],
)  # fmt: skip
def test_what_is_no_column(text: str) -> None:
    assert named_column(text) is None


def test_a_column_is_found_in_another_case() -> None:
    schema = pa.schema([("User", pa.string()), ("n", pa.int32()), ("N", pa.int32())])
    assert resolve_column(schema, "user", "w") == "User"
    assert resolve_column(schema, "n", "w") == "n"
    with pytest.raises(DefinitionError, match="there is no column 'x'"):
        resolve_column(schema, "x", "w")
    two = pa.schema([("aB", pa.string()), ("Ab", pa.string())])
    with pytest.raises(DefinitionError, match="may mean any of aB, Ab"):
        resolve_column(two, "ab", "w")


@pytest.mark.parametrize(
    ("text", "aggregate", "argument"),
    [
        ("count(*)", SqlAggregate(kind="count"), None),
        ("COUNT( 1 ) AS n", SqlAggregate(kind="count"), None),
        ("count('x')", SqlAggregate(kind="count"), None),
        ("count(NULL)", SqlAggregate(kind="count", column=0), "NULL"),
        ("count(n)", SqlAggregate(kind="count", column=0), "n"),
        ("count(DISTINCT lower(user)) users", SqlAggregate(kind="count_distinct", column=0), "lower(user)"),
        ("sum(n * 2) as total", SqlAggregate(kind="sum", column=0), "n * 2"),
        ("(sum(n))", SqlAggregate(kind="sum", column=0), "n"),
        ("mean(CASE WHEN a = ',' THEN f(b, c) END)", SqlAggregate(kind="avg", column=0), "CASE WHEN a = ',' THEN f(b, c) END"),
        ("first(a)", SqlAggregate(kind="first", column=0), "a"),
        ("first(a, true)", SqlAggregate(kind="first", column=0, ignore_nulls=True), "a"),
        ("last(a, false)", SqlAggregate(kind="last", column=0), "a"),
        ("last_value(a) IGNORE NULLS as x", SqlAggregate(kind="last", column=0, ignore_nulls=True), "a"),
        ("first(a IGNORE NULLS)", SqlAggregate(kind="first", column=0, ignore_nulls=True), "a"),
        ("first_value(a) RESPECT NULLS", SqlAggregate(kind="first", column=0), "a"),
        ("array_agg(a.b)", SqlAggregate(kind="collect_list", column=0), "a.b"),
    ],
)  # fmt: skip
def test_an_aggregate(text: str, aggregate: SqlAggregate, argument: str | None) -> None:
    parsed = parse_aggregates([text], "w")
    assert parsed.aggregates == [aggregate]
    assert parsed.arguments == ([] if argument is None else [argument])


@pytest.mark.parametrize(
    "text",
    [
        "sum(n) + 1", "count(*) as n, sum(a) as total", "n", "upper(n)", "sum(DISTINCT n)", "count(a, b)", "count(DISTINCT a, b)", "sum()", "sum(*)", "count_distinct(a)",
        "sum(n) FILTER (WHERE n > 1)", "collect_list(a) WITHIN GROUP (ORDER BY b)", "collect_list(a) RESPECT NULLS", "first(a, b)",
        "sum(n) OVER (PARTITION BY a)", "approx_count_distinct(a)", "sum(n", "", "first(a, true) ignore nulls",
        "min_by(a)", "min_by(a, b, c)", "max_by(DISTINCT a)", "min(a, b)", "max_by(a, )",
    ],
)  # fmt: skip
def test_what_is_no_known_aggregate_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be computed by a window") as caught:
        parse_aggregates([text], "w")
    assert "each aggregate as a text of its own" in str(caught.value)
    assert "count(DISTINCT …)" in str(caught.value)
    assert "count_distinct" not in str(caught.value).replace(repr(text), "")


def test_a_value_by_another() -> None:
    parsed = parse_aggregates(["max_by(a.b, n)", "min_by(upper(a), n) as least", "sum(n)"], "w")
    assert parsed.aggregates == [
        SqlAggregate(kind="max_by", column=0, by=1),
        SqlAggregate(kind="min_by", column=2, by=1),
        SqlAggregate(kind="sum", column=1),
    ]
    assert parsed.arguments == ["a.b", "n", "upper(a)"]
    assert parsed.names == ["max_by(a.b, n)", "least", "sum(n)"]
    assert result_type(parsed.aggregates[0], pa.string(), "w", pa.int64()) == pa.string()
    with pytest.raises(DefinitionError, match="w: there is no max_by of values of type map"):
        result_type(parsed.aggregates[0], pa.string(), "w", pa.map_(pa.string(), pa.int32()))


def test_equal_arguments_are_computed_once() -> None:
    parsed = parse_aggregates(["sum(n)", "max(n) as top", "count(*)", "min(m)"], "w")
    assert parsed.arguments == ["n", "m"]
    assert [each.column for each in parsed.aggregates] == [0, 0, None, 1]
    assert parsed.names == ["sum(n)", "top", "count(1)", "min(m)"]


def test_only_spark_knows_what_it_calls_an_expression() -> None:
    assert parse_aggregates(["sum(n * 2)", "sum(n * 2) as total"], "w").names == [None, "total"]


@pytest.mark.parametrize(
    ("kind", "argument"), [("sum", pa.string()), ("avg", pa.bool_()), ("min", pa.map_(pa.string(), pa.int32()))]
)
def test_an_aggregate_of_a_type_that_it_does_not_take_is_refused(kind: str, argument: pa.DataType) -> None:
    with pytest.raises(DefinitionError, match=f"w: there is no {kind} of values of type"):
        result_type(SqlAggregate(kind=kind, column=0), argument, "w")  # type: ignore[arg-type]
