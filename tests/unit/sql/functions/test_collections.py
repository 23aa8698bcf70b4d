"""Functions of arrays and maps, compared with Python's lists and dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.sql.functions.collections import FUNCTIONS, common_type
from poundlock.sql.functions.function import Given
from poundlock.sql.types import STRING, SqlType
from support.examples import examples
from support.sql_functions import Functions

ARRAYS = Functions(FUNCTIONS)

FEW = examples(15)
ELEMENTS = st.none() | st.integers(-2, 3)
LISTS = st.none() | st.lists(ELEMENTS, max_size=5)
TEXTS = st.none() | st.lists(st.none() | st.sampled_from(["", "a", "é", "ab"]), max_size=4)
INTS = pa.list_(pa.int32())
INT, DECIMAL = SqlType("INT"), SqlType("DECIMAL", (5, 2))


def each(function: Callable[..., Any], *columns: list[Any]) -> list[Any]:
    """Return what a function makes of the values of each row, None where the first is."""
    return [None if row[0] is None else function(*row) for row in zip(*columns, strict=True)]


def distinct(values: list[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


@given(st.lists(st.tuples(LISTS, ELEMENTS), min_size=1, max_size=6))
@FEW
def test_one_element(rows: list[tuple[list[int | None] | None, int | None]]) -> None:
    lists, elements = (list(column) for column in zip(*rows, strict=True))
    array, element = pa.array(lists, INTS), pa.array(elements, pa.int32())
    assert ARRAYS.call("ARRAY_CONTAINS", array, element) == each(lambda of, one: one in of, lists, elements)
    assert ARRAYS.call("ARRAY_APPEND", array, element) == each(lambda of, one: [*of, one], lists, elements)
    assert ARRAYS.call("ARRAY_PREPEND", array, element) == each(lambda of, one: [one, *of], lists, elements)
    assert ARRAYS.call("ARRAY_REMOVE", array, element) == each(
        lambda of, one: [each for each in of if each != one], lists, elements
    )
    assert ARRAYS.call("ARRAY_POSITION", array, element) == each(
        lambda of, one: None if one is None else of.index(one) + 1 if one in of else 0, lists, elements
    )


@given(st.lists(st.tuples(LISTS, LISTS), min_size=1, max_size=6))
@FEW
def test_sets(rows: list[tuple[list[int | None] | None, list[int | None] | None]]) -> None:
    first, second = (list(column) for column in zip(*rows, strict=True))
    one, other = pa.array(first, INTS), pa.array(second, INTS)

    def both(function: Callable[[list[Any], list[Any]], list[Any]]) -> list[Any]:
        return [None if None in row else function(*row) for row in zip(first, second, strict=True)]

    assert ARRAYS.call("ARRAY_DISTINCT", one) == each(distinct, first)
    assert ARRAYS.call("ARRAY_CONCAT", one, other, one) == both(lambda a, b: a + b + a)
    assert ARRAYS.call("ARRAY_UNION", one, other) == both(lambda a, b: distinct(a + b))
    assert ARRAYS.call("ARRAY_EXCEPT", one, other) == both(lambda a, b: distinct([x for x in a if x not in b]))
    assert ARRAYS.call("ARRAY_INTERSECT", one, other) == both(lambda a, b: distinct([x for x in a if x in b]))


@given(st.lists(LISTS, min_size=1, max_size=6), st.integers(-4, 4), st.integers(-4, 4), st.booleans())
@FEW
def test_order(lists: list[list[int | None] | None], start: int, end: int, upwards: bool) -> None:
    array = pa.array(lists, INTS)

    def ordered(values: list[int | None]) -> list[int | None]:
        numbers = sorted((each for each in values if each is not None), reverse=not upwards)
        nulls = [None] * values.count(None)
        return [*nulls, *numbers] if upwards else [*numbers, *nulls]

    def part(values: list[int | None]) -> list[int | None]:
        first = max(start + len(values) + 1 if start < 0 else start, 1)
        last = end + len(values) + 1 if end < 0 else end
        return values[first - 1 : max(min(last, len(values)) if last else 1, 0)]

    assert ARRAYS.call("ARRAY_REVERSE", array) == each(lambda of: of[::-1], lists)
    assert ARRAYS.call("ARRAY_SORT", array, upwards) == each(ordered, lists)
    assert ARRAYS.call("ARRAY_SLICE", array, start, end) == each(part, lists)
    assert ARRAYS.call("ARRAY_SLICE", array, 2) == each(lambda of: of[1:], lists)
    present = each(lambda of: [each for each in of if each is not None], lists)
    assert ARRAYS.call("ARRAY_MAX", array) == each(lambda of: max(of, default=None), present)
    assert ARRAYS.call("ARRAY_MIN", array) == each(lambda of: min(of, default=None), present)


@given(st.lists(TEXTS, min_size=1, max_size=6))
@FEW
def test_texts(lists: list[list[str | None] | None]) -> None:
    array = pa.array(lists, pa.list_(pa.string()))
    assert ARRAYS.call("ARRAY_JOIN", array, "-é") == each(
        lambda of: "-é".join(each for each in of if each is not None), lists
    )
    assert ARRAYS.call("ARRAY_JOIN", array, "-", "?") == each(
        lambda of: "-".join("?" if each is None else each for each in of), lists
    )
    assert ARRAYS.call("ARRAY_MAX", array) == each(
        lambda of: max((each for each in of if each is not None), default=None), lists
    )


MAPS = st.none() | st.dictionaries(st.sampled_from("abc"), ELEMENTS, max_size=3)


@given(st.lists(st.tuples(MAPS, MAPS), min_size=1, max_size=6))
@FEW
def test_maps(rows: list[tuple[dict[str, int | None] | None, dict[str, int | None] | None]]) -> None:
    kind = pa.map_(pa.string(), pa.int32())
    first, second = (list(column) for column in zip(*rows, strict=True))
    one, other = (
        pa.array([None if each is None else list(each.items()) for each in column], kind) for column in (first, second)
    )
    assert ARRAYS.call("MAP_KEYS", one) == each(lambda of: list(of), first)
    assert ARRAYS.call("MAP_VALUES", one) == each(lambda of: list(of.values()), first)
    assert ARRAYS.call("MAP_ENTRIES", one) == each(
        lambda of: [{"key": key, "value": value} for key, value in of.items()], first
    )
    assert ARRAYS.call("MAP_FROM_ARRAYS", pa.array(ARRAYS.call("MAP_KEYS", one), pa.list_(pa.string())),
                       pa.array(ARRAYS.call("MAP_VALUES", one), INTS)) == one.to_pylist()  # fmt: skip
    united = ARRAYS.call("MAP_UNION", one, other)
    assert [each if each is None else dict(each) for each in united] == [
        None if None in row else {**row[0], **row[1]} for row in zip(first, second, strict=True)
    ]


def test_a_key_that_is_null_ends_the_job() -> None:
    keys = pa.array([["a", None]], pa.list_(pa.string()))
    with pytest.raises(TerminalError, match="a key is NULL"):
        ARRAYS.call("MAP_FROM_ARRAYS", keys, pa.array([[1, 2]], INTS))


def test_elements_that_are_rows_are_compared_whole() -> None:
    kind = pa.list_(pa.struct([("sku", pa.string()), ("n", pa.int32())]))
    one, other = {"sku": "p", "n": None}, {"sku": "p", "n": 7}
    array = pa.array([[one, other, one], [], None, [None, other]], kind)
    assert ARRAYS.call("ARRAY_DISTINCT", array) == [[one, other], [], None, [None, other]]
    assert ARRAYS.call("ARRAY_CONTAINS", array, pa.array([one] * 4, kind.value_type)) == [True, False, None, False]


def test_an_element_is_the_only_one() -> None:
    assert ARRAYS.call("ELEMENT", pa.array([[1], [], None, [None]], INTS)) == [1, None, None, None]
    with pytest.raises(TerminalError, match="more than one element"):
        ARRAYS.call("ELEMENT", pa.array([[1, 2]], INTS))


def test_keys_and_values_are_equally_many() -> None:
    keys = pa.array([["a"], None], pa.list_(pa.string()))
    assert ARRAYS.call("MAP_FROM_ARRAYS", keys, pa.array([[1], [1, 2]], INTS)) == [[("a", 1)], None]
    with pytest.raises(TerminalError, match="not equally long"):
        ARRAYS.call("MAP_FROM_ARRAYS", keys, pa.array([[1, 2], []], INTS))


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (INT, SqlType("BIGINT"), "BIGINT"),
        (INT, SqlType("DOUBLE"), "DOUBLE"),
        (INT, DECIMAL, "DECIMAL(12, 2)"),
        (DECIMAL, SqlType("DECIMAL", (4, 3)), "DECIMAL(6, 3)"),
        (DECIMAL, SqlType("DOUBLE"), "DOUBLE"),
        (SqlType("CHAR", (1,)), SqlType("CHAR", (3,)), "VARCHAR(3)"),
        (SqlType("CHAR", (3,)), SqlType("CHAR", (3,)), "CHAR(3)"),
        (SqlType("CHAR", (3,)), STRING, "STRING"),
        (SqlType("ARRAY", of=(INT.not_null(),)), SqlType("ARRAY", of=(SqlType("BIGINT"),)), "ARRAY<BIGINT>"),
        (SqlType("TIMESTAMP", (3,)), SqlType("TIMESTAMP", (6,)), "TIMESTAMP(6)"),
    ],
)
def test_types_in_common(first: SqlType, second: SqlType, common: str) -> None:
    assert str(common_type(first, second)) == str(common_type(second, first)) == common


def test_elements_are_cast_to_a_common_type() -> None:
    array, wide = Given(SqlType("ARRAY", of=(INT,))), Given(SqlType("ARRAY", of=(SqlType("BIGINT"),)))
    union = ARRAYS.named["ARRAY_UNION"]
    assert union.accepts is not None
    assert union.accepts([array, wide]) == [wide.type, None]
    assert str(union.returns([array, wide])) == "ARRAY<BIGINT>"
    contains = ARRAYS.named["ARRAY_CONTAINS"]
    assert contains.accepts is not None
    assert contains.accepts([wide, Given(INT)]) == [None, SqlType("BIGINT")]
    assert contains.accepts([array, Given(SqlType("BIGINT"))]) == [wide.type, None]
    assert contains.accepts([array, Given(STRING, is_literal=True)]) == [None, INT]


def test_what_arrays_do_not_do_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no type in common"):
        ARRAYS.type_of("ARRAY_UNION", pa.array([[1]], INTS), pa.array([["a"]], pa.list_(pa.string())))
    with pytest.raises(DefinitionError, match="ARRAY_JOIN does not take ARRAY<INT>"):
        ARRAYS.type_of("ARRAY_JOIN", pa.array([[1]], INTS), "-")
    contains = ARRAYS.named["ARRAY_CONTAINS"]
    assert contains.accepts is not None
    with pytest.raises(DefinitionError, match=r"write ARRAY_CONTAINS\(array, any\)"):
        contains.accepts([Given(INT)])
    with pytest.raises(DefinitionError, match=r"MAP_KEYS does not take \(NULL\)"):
        ARRAYS.type_of("MAP_KEYS", None)


def test_decimals_keep_their_type() -> None:
    array = pa.array([[Decimal("1.50"), Decimal("2.25")]], pa.list_(pa.decimal128(5, 2)))
    assert ARRAYS.call("ARRAY_MAX", array) == [Decimal("2.25")]
    assert str(ARRAYS.type_of("ARRAY_MAX", array)) == "DECIMAL(5, 2)"
