"""SQL aggregates: nulls, exactness, and one result however the elements come together."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError
from poundlock.operators.keyed import codec
from poundlock.operators.windows.aggregates import BY, KINDS, SqlAggregate, SqlAggregates

ONE = [kind for kind in KINDS if kind not in BY]
EACH = [SqlAggregate(kind=kind, column="v") for kind in ONE]
IGNORING = [SqlAggregate(kind=kind, column="v", ignore_nulls=True) for kind in ("first", "last")]
ALL = SqlAggregates([SqlAggregate(kind="count"), *EACH, *IGNORING])


def of(*values: Any) -> dict[str, Any]:
    """Return the results of all aggregates by name."""
    names = ["count(*)", *ONE, "first ignoring nulls", "last ignoring nulls"]
    return dict(zip(names, ALL.of([{"v": v} for v in values]), strict=True))


def test_nulls_are_passed_over() -> None:
    assert of(None, 3, None, 1, 3, None) == {
        "count(*)": 6,
        "count": 3,
        "sum": 7,
        "min": 1,
        "max": 3,
        "avg": 7 / 3,
        "first": None,
        "last": None,
        "collect_list": [3, 1, 3],
        "count_distinct": 2,
        "first ignoring nulls": 3,
        "last ignoring nulls": 3,
    }


def test_of_nothing_there_is_null() -> None:
    for values, count in (((), 0), ((None, None), 2)):
        assert of(*values) == {
            "count(*)": count,
            "count": 0,
            "sum": None,
            "min": None,
            "max": None,
            "avg": None,
            "first": None,
            "last": None,
            "collect_list": [],
            "count_distinct": 0,
            "first ignoring nulls": None,
            "last ignoring nulls": None,
        }


def test_decimals_are_added_up_exactly() -> None:
    # 38 digits, as many as Spark has; Python by itself would round to 28.
    big = Decimal("99999999999999999999999999999999999.99")
    found = of(big, Decimal("0.01"))
    assert found["sum"] == Decimal("1E35")
    assert found["sum"].as_tuple().exponent == -2
    assert found["avg"] == Decimal("5E34")


def test_nan_is_the_greatest_and_equals_itself() -> None:
    found = of(math.nan, 1.0, math.nan, 2.0)
    assert (found["min"], found["count_distinct"]) == (1.0, 3)
    assert math.isnan(found["max"])
    assert math.isnan(of(math.nan)["min"])
    assert math.isnan(of(1.0, math.nan)["max"])


def test_lists_can_be_counted_apart() -> None:
    assert ALL.of([{"v": None}])[9] == 0
    distinct = SqlAggregates([SqlAggregate(kind="count_distinct", column=0)])
    assert distinct.of([([1, 2],), ([1, 2],), ([2, 1],), ({"a": 1},)]) == (3,)


elements = st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(-5, 5)), max_size=12)


@given(elements, st.integers(0, 12), st.integers(0, 12))
def test_it_does_not_matter_how_elements_come_together(given_: list[tuple[str, Any]], one: int, two: int) -> None:
    """As batches, one by one, merged, and through bytes in between."""
    wanted = {key: ALL.of([{"v": v} for k, v in given_ if k == key]) for key, _ in given_}
    table: dict[Any, Any] = {}
    for part in (given_[: min(one, two)], given_[min(one, two) : max(one, two)], given_[max(one, two) :]):
        ALL.add_batch(table, [k for k, _ in part], [{"v": v} for _, v in part])
        bytes_of = codec.encode_each(list(table.values()))
        table = dict(zip(table, map(codec.decode, bytes_of), strict=True))
    assert {key: ALL.result(held) for key, held in table.items()} == wanted
    parts: list[dict[Any, Any]] = [{}, {}]
    for i, (key, value) in enumerate(given_):
        held = parts[i >= one]
        held[key] = ALL.add({"v": value}, held[key]) if key in held else ALL.first({"v": value})
    for key, held in parts[1].items():
        parts[0][key] = ALL.merge(parts[0][key], held) if key in parts[0] else held
    assert {key: ALL.result(held) for key, held in parts[0].items()} == wanted


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: SqlAggregate(kind="median", column="v"), "'median' is no aggregate"),  # type: ignore[arg-type]
        (lambda: SqlAggregate(kind="sum"), "sum of no column"),
        (lambda: SqlAggregates([]), "no aggregates"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        make()
