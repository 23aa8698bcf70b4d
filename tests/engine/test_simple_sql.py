"""Expressions that tasks evaluate by themselves: Spark gives the same values and types, whatever the data and its mode."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from poundlock.formats import ddl
from poundlock.formats.chunk import Batch
from poundlock.plan.simple_sql import NeedsSpark, sql_operator
from poundlock.stream.nodes import SourceNode, SqlNode

pytestmark = pytest.mark.engine

_DDL = "id int, i int, j int, l bigint, d double, e double, s string, u string, b boolean, c boolean, day date, t timestamp"
_SCHEMA = ddl.parse(_DDL)
_VALUES: dict[str, list[Any]] = {
    "i": [0, 1, -1, 2**31 - 1, -(2**31), None], "j": [1, None, 0, -5, 7], "l": [1, 2**53 + 1, -(2**63), 2**63 - 1, 0, None],
    "d": [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 1e308, 5e-324, None], "e": [1.5, math.nan, None, -0.0, 0.1, 0.0, -2.0],
    "s": ["", "a", "b", "é", "\U0001f600", "\uffff", "A", None], "u": ["a", None, "ab", "", "é"], "b": [True, False, None],
    "c": [False, None, True, True], "day": [date(1, 1, 1), date(2024, 2, 29), None], "t": [datetime(2024, 1, 1, tzinfo=UTC), None],
}  # fmt: skip
_COUNT = 120
# A smaller example says no more than the text of the expression, and looking for one takes a query of Spark each time.
_SETTINGS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


def _rows() -> list[dict[str, Any]]:
    cycles = {name: itertools.cycle(values) for name, values in _VALUES.items()}
    return [{"id": number, **{name: next(cycle) for name, cycle in cycles.items()}} for number in range(_COUNT)]


_INTS = ["i", "j", "l", "0", "1", "-1", "5", "2147483648", "-2147483648", "9007199254740993"]
_DOUBLES = ["d", "e"]
_DOUBLE_LITERALS = ["0", "1", "-1", "1.5", "0.1", "-0.0", "100", "-2.25"]
_TEXTS = ["s", "u", "''", "'a'", "'é'", "'b'"]
_TRUTHS = ["b", "c", "true", "false"]
_ORDER = ["=", "<>", "!=", "==", ">", ">=", "<", "<="]


def _doubles() -> Any:
    sums = st.tuples(st.sampled_from(_DOUBLES), st.sampled_from("+-*"), st.sampled_from(_DOUBLES + _DOUBLE_LITERALS))
    plain = st.sampled_from(_DOUBLES)
    some = st.one_of(plain, sums.map(lambda x: f"{x[0]} {x[1]} {x[2]}"), plain.map(lambda x: f"-{x}"))
    nested = st.tuples(some, st.sampled_from("+-*"), some).map(lambda x: f"({x[0]}) {x[1]} ({x[2]})")
    loose = st.tuples(some, st.sampled_from("+-*"), plain).map(lambda x: f"{x[0]} {x[1]} {x[2]}")
    return st.one_of(some, nested, loose)


def _compared(values: Any, others: Any, operators: list[str]) -> Any:
    return st.tuples(values, st.sampled_from(operators), others).map(lambda x: f"{x[0]} {x[1]} {x[2]}")


def _predicates() -> Any:
    ints, texts, truths = (st.sampled_from(each) for each in (_INTS, _TEXTS, _TRUTHS))
    columns = st.sampled_from(["i", "d", "s", "b", "day", "t", "l"])
    literals = {"i": ["0", "1", "-5"], "s": ["'a'", "''", "'b'"], "d": ["0", "1.5", "-1"]}
    members = st.sampled_from(sorted(literals)).flatmap(
        lambda column: st.lists(st.sampled_from(literals[column]), min_size=1, max_size=3).map(
            lambda found: f"{column} IN ({', '.join(found)})"
        )
    )
    return st.one_of(
        _compared(ints, ints, _ORDER),
        _compared(_doubles(), st.one_of(_doubles(), st.sampled_from(_DOUBLE_LITERALS)), _ORDER),
        _compared(texts, texts, _ORDER),
        _compared(truths, truths, ["=", "<>"]),
        st.sampled_from(["day = day", "t >= t", "day <> day", "t < t"]),
        columns.map(lambda column: f"{column} IS NULL"),
        columns.map(lambda column: f"{column} IS NOT NULL"),
        members,
        members.map(lambda text: text.replace(" IN ", " NOT IN ")),
        st.tuples(ints, ints, ints).map(lambda x: f"{x[0]} BETWEEN {x[1]} AND {x[2]}"),
        st.tuples(st.sampled_from(_DOUBLES), st.sampled_from(_DOUBLE_LITERALS)).map(lambda x: f"{x[0]} NOT BETWEEN {x[1]} AND 1"),
        truths,
    )  # fmt: skip


def _conditions() -> Any:
    def deeper(inner: Any) -> Any:
        return st.one_of(
            st.tuples(inner, st.sampled_from(["AND", "OR", "and"]), inner).map(lambda x: f"{x[0]} {x[1]} {x[2]}"),
            st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda x: f"({x[0]} {x[1]} {x[2]})"),
            inner.map(lambda text: f"NOT {text}"),
            inner.map(lambda text: f"NOT ({text})"),
            st.tuples(inner, inner).map(lambda x: f"({x[0]}) = ({x[1]})"),
            inner.map(lambda text: f"({text}) IS NULL"),
            # How these bind is the grammar's; where ours might differ from Spark's they are left to Spark.
            inner.map(lambda text: f"{text} IS NULL"),
            st.tuples(inner, inner).map(lambda x: f"{x[0]} = {x[1]}"),
        )

    return st.recursive(_predicates(), deeper, max_leaves=5)


@pytest.fixture(scope="module")
def rows(jvm: Any) -> Any:
    found = jvm.createDataFrame([tuple(row.values()) for row in _rows()], _DDL).coalesce(1).cache()
    assert found.count() == _COUNT
    return found


@pytest.fixture(params=["true", "false"])
def ansi(jvm: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    before = jvm.conf.get("spark.sql.ansi.enabled")
    jvm.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    jvm.conf.set("spark.sql.ansi.enabled", before)


def _ours(texts: list[str]) -> tuple[list[str], pa.RecordBatch]:
    """Return the columns that tasks compute, and their values."""
    batch = Batch(pa.RecordBatch.from_pylist(_rows(), _SCHEMA))
    simple = [
        f"{text} AS c{number}"
        for number, text in enumerate(texts)
        if not isinstance(sql_operator(_node("select", f"{text} AS c{number}"), _SCHEMA), NeedsSpark)
    ]
    made = sql_operator(_node("select", "id", *simple), _SCHEMA)
    assert not isinstance(made, NeedsSpark)
    found: list[Any] = []
    made[0].process(batch, lambda tag, chunk: found.append(chunk.batch))
    return simple, found[0]


def _node(kind: Any, *texts: str) -> SqlNode:
    return SqlNode("q", [SourceNode("s", [], object())], kind, list(texts))


def _bits(value: Any) -> Any:
    """Tell 0.0 from -0.0; NaN is NaN."""
    return ("nan" if math.isnan(value) else value.hex()) if isinstance(value, float) else value


@pytest.mark.usefixtures("ansi")
@settings(max_examples=8, phases=[Phase.generate], **_SETTINGS)
@given(texts=st.lists(st.one_of(_conditions(), _doubles()), min_size=60, max_size=60, unique=True))
def test_values_and_types_are_sparks(rows: Any, texts: list[str]) -> None:
    simple, ours = _ours(texts)
    assert len(simple) >= 40  # else there is nothing to see
    sparks = rows.selectExpr("id", *simple)
    types = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in sparks.schema.fields)
    assert ddl.parse(types).equals(ours.schema)
    collected = sorted(sparks.collect(), key=lambda row: row["id"])
    wrong = [
        (text, _rows()[number], theirs[place + 1], mine)
        for place, text in enumerate(simple)
        for number, (theirs, mine) in enumerate(zip(collected, ours.column(place + 1).to_pylist(), strict=True))
        if _bits(theirs[place + 1]) != _bits(mine)
    ]
    assert wrong[:3] == []


@settings(max_examples=4, phases=[Phase.generate], **_SETTINGS)
@given(texts=st.lists(_conditions(), min_size=8, max_size=8, unique=True))
def test_conditions_keep_the_rows_that_spark_keeps(rows: Any, texts: list[str]) -> None:
    for text in texts:
        made = sql_operator(_node("where", text), _SCHEMA)
        if isinstance(made, NeedsSpark):
            continue
        found: list[Any] = []
        batch = Batch(pa.RecordBatch.from_pylist(_rows(), _SCHEMA))
        made[0].process(batch, lambda tag, chunk, found=found: found.append(chunk.batch))  # type: ignore[misc]
        ours = [row for each in found for row in each.column(0).to_pylist()]
        assert ours == [row["id"] for row in rows.where(text).select("id").collect()], text
