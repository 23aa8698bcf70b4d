"""A logic of three values against Python's None, and branches that are not computed for rows that do not take them."""

from __future__ import annotations

import itertools
import pickle
from datetime import UTC
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.sql.expressions.evaluation import EvaluationContext, Program, evaluate
from poundlock.sql.functions.function import EvaluationError
from support.sql_expressions import kind, tree, values

Truth = bool | None
ROWS: list[tuple[Truth, ...]] = list(itertools.product([True, False, None], repeat=3))
TRUTHS: dict[str, tuple[str, list[Any]]] = {
    name: ("BOOLEAN", [row[place] for row in ROWS]) for place, name in enumerate("abc")
}


def both(x: Truth, y: Truth) -> Truth:
    return False if x is False or y is False else None if x is None or y is None else True


def negated(x: Truth) -> Truth:
    return None if x is None else not x


def either(x: Truth, y: Truth) -> Truth:
    return negated(both(negated(x), negated(y)))


def conditions() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.sampled_from([("a",), ("b",), ("c",), ("TRUE",), ("FALSE",)]),
        lambda inner: (
            st.tuples(st.sampled_from(["AND", "OR", "="]), inner, inner)
            | st.tuples(st.sampled_from(["NOT", "IS TRUE", "IS NOT FALSE", "IS UNKNOWN"]), inner)
        ),
        max_leaves=8,
    )


def text_of(made: Any) -> str:
    if len(made) == 1:
        return str(made[0])
    if len(made) == 3:
        return f"({text_of(made[1])} {made[0]} {text_of(made[2])})"
    return f"(NOT {text_of(made[1])})" if made[0] == "NOT" else f"({text_of(made[1])} {made[0]})"


def truth_of(made: Any, row: tuple[Truth, ...]) -> Truth:
    if len(made) == 1:
        name = made[0]
        return name == "TRUE" if name in ("TRUE", "FALSE") else row["abc".index(name)]
    x, *rest = (truth_of(each, row) for each in made[1:])
    match made[0]:
        case "AND":
            return both(x, rest[0])
        case "OR":
            return either(x, rest[0])
        case "=":
            return None if x is None or rest[0] is None else x == rest[0]
        case "NOT":
            return negated(x)
        case "IS TRUE":
            return x is True
        case "IS NOT FALSE":
            return x is not False
    return x is None


@given(conditions())
def test_conditions_are_of_three_values(made: Any) -> None:
    assert values(text_of(made), TRUTHS) == [truth_of(made, row) for row in ROWS]


@given(
    st.lists(st.integers(-3, 3) | st.none(), min_size=1, max_size=5),
    st.lists(st.integers(-3, 3) | st.none(), min_size=1, max_size=4),
)
def test_in_is_an_or_of_comparisons(numbers: list[int | None], listed: list[int | None]) -> None:
    columns: dict[str, tuple[str, list[Any]]] = {"x": ("INT", numbers)}
    items = ", ".join("CAST(NULL AS INT)" if each is None else str(each) for each in listed)
    expected: list[Truth] = []
    for number in numbers:
        made: Truth = False
        for each in listed:
            made = either(made, None if number is None or each is None else number == each)
        expected.append(made)
    assert values(f"x IN ({items})", columns) == expected
    assert values(f"x NOT IN ({items})", columns) == [negated(each) for each in expected]
    # The same where the list is no list of constants.
    assert values(f"x IN ({items}, x + 1 - 1)", columns) == [
        either(each, None if x is None else True) for each, x in zip(expected, numbers, strict=True)
    ]


@given(st.lists(st.integers(-3, 3) | st.none(), min_size=1, max_size=6))
def test_no_branch_is_computed_for_rows_that_do_not_take_it(numbers: list[int | None]) -> None:
    columns: dict[str, tuple[str, list[Any]]] = {"x": ("INT", numbers)}

    def divided(x: int) -> int:
        return int(12 / x)

    chosen = [divided(x) if x else -1 for x in numbers]
    assert values("CASE WHEN x <> 0 THEN 12 / x ELSE -1 END", columns) == chosen
    assert values("IF(x <> 0, 12 / x, -1)", columns) == chosen
    assert values("CASE x WHEN 0 THEN -1 WHEN 1 THEN 12 ELSE COALESCE(12 / x, -1) END", columns) == chosen
    assert values("COALESCE(12 / NULLIF(x, 0), -1)", columns) == chosen
    safe: list[Truth] = [None if x is None else x != 0 and divided(x) > 4 for x in numbers]
    assert values("x <> 0 AND 12 / x > 4", columns) == safe
    assert values("NOT (x = 0 OR 12 / x <= 4)", columns) == safe


def test_a_branch_that_is_taken_fails() -> None:
    with pytest.raises(EvaluationError):
        values("CASE WHEN x >= 0 THEN 12 / x ELSE -1 END", {"x": ("INT", [0, 1])})
    with pytest.raises(EvaluationError):
        values("x IS NULL OR 12 / x > 1", {"x": ("INT", [None, 0])})


PARTS = {
    "i": ("INT", [1, None, 0, 4]),
    "s": ("STRING", ["a", "bb", None, "dddd"]),
    "d": ("DECIMAL(12, 3)", None),
    "b": ("BOOLEAN", [True, None, False, True]),
    "xs": ("ARRAY<INT>", [[1], None, [], [4, None, 6]]),
    "m": ("MAP<STRING, INT>", [[("k", 1)], None, [], [("a", 1), ("k", None)]]),
    "r": ("ROW<a INT, c STRING>", [{"a": 1, "c": "x"}, None, {"a": None, "c": None}, {"a": 4, "c": "y"}]),
}


@pytest.mark.parametrize(
    "expression",
    [
        "i + 1", "i / 3", "s || 'x'", "d * 2", "d / 3", "MOD(d, 2)", "CAST(d AS STRING)", "b AND i > 0", "xs[i]", "m['k']", "r.a",
        "CARDINALITY(xs)", "CAST(xs AS STRING)", "CAST(m AS STRING)", "CAST(r AS STRING)", "CAST(xs AS ARRAY<STRING>)",
        "CASE WHEN i > 0 THEN 8 / i ELSE i END", "s LIKE '%d'", "s IN ('a', 'dddd')", "GREATEST(i, 2)", "ROUND(d, 1)", "-d",
        "CAST(s AS CHAR(3))", "CAST(d AS INT)", "CAST(i AS DECIMAL(5, 2))", "ARRAY[i, 2]", "MAP[COALESCE(s, 'z'), i]", "ROW(i, s)", "d IS NULL",
        "COALESCE(s, CAST(i AS STRING))", "TRY_CAST(s AS INT)", "SIGN(d)", "CAST(m AS MAP<STRING, STRING>)", "r = r",
    ],
)  # fmt: skip
def test_rows_of_a_part_of_a_batch_are_the_rows(expression: str) -> None:
    columns = dict(PARTS) | {"d": ("DECIMAL(12, 3)", [Decimal("1.5"), Decimal("-2.25"), None, Decimal("3.125")])}
    made = tree(expression, {name: of for name, (of, _) in columns.items()})
    arrays = [pa.array(column, kind(of).arrow) for of, column in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    whole = evaluate(made, batch, EvaluationContext(UTC)).to_pylist()
    for begin, count in ((0, 4), (1, 3), (2, 2), (3, 1), (1, 1), (4, 0)):
        part = evaluate(made, batch.slice(begin, count), EvaluationContext(UTC))
        part.validate(full=True)
        assert part.type == made.type.arrow
        assert part.to_pylist() == whole[begin : begin + count]


def test_a_program_is_pickled_without_what_it_has_computed() -> None:
    columns = {"i": "INT"}
    program = Program((("n", tree("i + 2 * 3", columns)), ("c", tree("'x' || 'y'"))), tree("i > 1", columns))
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2, None, 3], pa.int32())], names=["i"])
    result = program.run(batch, EvaluationContext(UTC)).to_pylist()
    assert result == [{"n": 8, "c": "xy"}, {"n": 9, "c": "xy"}]
    copied = pickle.loads(pickle.dumps(program))
    assert copied == program
    assert copied.run(batch, EvaluationContext(UTC)).to_pylist() == result
    assert program.run(batch.slice(0, 1), EvaluationContext(UTC)).num_rows == 0


def test_an_error_of_a_value_crosses_processes() -> None:
    with pytest.raises(EvaluationError) as failed:
        values("CAST(s AS INT)", {"s": ("STRING", ["12", "x"])})
    copied = pickle.loads(pickle.dumps(failed.value))
    assert (copied.what, copied.next, copied.kind) == (failed.value.what, failed.value.next, "cast_failed")


@pytest.mark.parametrize("call", ["LPAD(s, 2147483647, ' ')", "REPEAT(s, 2147483647)"])
def test_texts_that_no_column_has_room_for_are_an_error_in_words(call: str) -> None:
    with pytest.raises(EvaluationError, match="gives more than 2 GB for 2 rows"):
        values(call, {"s": ("STRING", ["ab", None])})
