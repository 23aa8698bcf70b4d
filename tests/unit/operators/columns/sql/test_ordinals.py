"""The order of columns against that of single values, over types of every kind, nested in one another and cut out of longer columns."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.formats.convert import column_values
from poundlock.operators.columns.sql.ordinals import ordinals
from poundlock.operators.value_order import compare, distinct_key
from support.examples import examples

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8 << 48))[0]
"""The NaN of x86, which has a sign; Python's own has none."""
FLOATS = st.sampled_from([0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan, OTHER_NAN])
FLAT: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.null(): st.none(),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-3, 3),
    pa.int64(): st.sampled_from([-(1 << 63), -1, 0, 1, (1 << 63) - 1]),
    pa.uint64(): st.sampled_from([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
    pa.float32(): FLOATS,
    pa.float64(): FLOATS,
    pa.string(): st.text("aé\U0001f600\uffff", max_size=3),
    pa.large_string(): st.text("ab", max_size=3),
    pa.binary(): st.binary(max_size=2),
    pa.large_binary(): st.binary(max_size=2),
    pa.binary(2): st.binary(min_size=2, max_size=2),
    pa.decimal128(10, 2): st.decimals(-10, 10, places=2),
    pa.decimal256(60, 2): st.sampled_from([Decimal("-1.00"), Decimal("0.01"), Decimal("9" * 50 + ".99")]),
    pa.date32(): st.dates(dt.date(1960, 1, 1), dt.date(1980, 1, 1)),
    pa.date64(): st.dates(dt.date(1960, 1, 1), dt.date(1980, 1, 1)),
    pa.time32("s"): st.times().map(lambda time: time.replace(microsecond=0)),
    pa.time64("us"): st.times(),
    pa.timestamp("us", "UTC"): st.datetimes(
        dt.datetime(1960, 1, 1), dt.datetime(1980, 1, 1), timezones=st.just(dt.UTC)
    ),
    pa.duration("us"): st.timedeltas(dt.timedelta(-2), dt.timedelta(2)),
}


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Return values of a type, nulls within them included."""
    if kind in FLAT:
        return FLAT[kind]
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: st.none() | values_of(field.type) for field in kind})
    if pa.types.is_map(kind):
        return st.dictionaries(values_of(kind.key_type), st.none() | values_of(kind.item_type), max_size=3)
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    return st.lists(st.none() | values_of(kind.value_type), min_size=size or 0, max_size=3 if size is None else size)


def wrapped(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    structs = st.lists(kinds, max_size=3).map(lambda each: pa.struct([(f"f{i}", kind) for i, kind in enumerate(each)]))
    lists = [kinds.map(pa.list_), kinds.map(pa.large_list), kinds.map(lambda kind: pa.list_(kind, 2))]
    return st.one_of(structs, *lists)


KINDS = st.recursive(st.sampled_from(list(FLAT)), wrapped, max_leaves=4)
MAPS = st.builds(
    pa.map_, st.sampled_from([pa.string(), pa.int64(), pa.float64()]), st.recursive(KINDS, wrapped, max_leaves=3)
)


def column(data: st.DataObject, kind: pa.DataType) -> pa.Array:
    """Return a column of a type, cut out of a longer one."""
    values = data.draw(st.lists(st.none() | values_of(kind), max_size=12))
    some = [data.draw(values_of(kind)) for _ in range(data.draw(st.integers(0, 2)))]
    return pa.array([*some, *values, *some], kind).slice(len(some), len(values))


@examples(200)
@given(data=st.data(), kind=KINDS)
def test_the_order_of_columns_is_that_of_single_values(data: st.DataObject, kind: pa.DataType) -> None:
    given_column = column(data, kind)
    assert ordinals(given_column).dtype == "int64"
    pairs = zip(column_values(given_column), ordinals(given_column).tolist(), strict=True)
    present = [(value, place) for value, place in pairs if value is not None]
    for one, place in present:
        for other, behind in present:
            sign = compare(one, other)
            assert (place > behind) - (place < behind) == (sign > 0) - (sign < 0)
            assert (distinct_key(one) == distinct_key(other)) is (sign == 0)


@examples(100)
@given(data=st.data(), kind=MAPS | MAPS.map(pa.list_) | MAPS.map(lambda each: pa.struct([("m", each)])))
def test_maps_are_equal_where_they_have_the_same_entries(data: st.DataObject, kind: pa.DataType) -> None:
    given_column = column(data, kind)
    pairs = zip(column_values(given_column), ordinals(given_column).tolist(), strict=True)
    present = [(value, place) for value, place in pairs if value is not None]
    for one, place in present:
        for other, also in present:
            assert (place == also) is (distinct_key(one) == distinct_key(other))


def test_entries_of_a_map_may_stand_in_any_order_and_the_last_of_a_key_counts() -> None:
    entries = [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 7), ("b", 2), ("a", 1)], [("a", 7), ("b", 2)], []]
    places = ordinals(pa.array(entries, pa.map_(pa.string(), pa.int64()))).tolist()
    assert places[0] == places[1] == places[2]
    assert len({places[0], places[3], places[4]}) == 3


@pytest.mark.parametrize(
    "ascending",
    [
        [[], [None], [None, 1.0], [-math.inf], [-0.0], [0.0, None], [0.0, 0.0], [1.0], [math.inf], [math.nan]],
        [{"a": None, "b": 9.0}, {"a": 1.0, "b": None}, {"a": 1.0, "b": 2.0}, {"a": math.nan, "b": None}],
        [{"a": [1, 2], "b": 5}, {"a": [1, 2], "b": 6}, {"a": [1, 2, 0], "b": 0}, {"a": [1, 256], "b": 0}],
    ],
)
def test_the_order_is_that_of_spark(ascending: list[Any]) -> None:
    places = ordinals(pa.array(ascending)).tolist()
    assert all(one < other for one, other in pairwise(places))
    assert all(compare(one, other) < 0 for one, other in pairwise(ascending))


@pytest.mark.parametrize("distinct", [255, 256, 70_000])
def test_items_of_any_number_of_different_values(distinct: int) -> None:
    numbers = [*range(distinct)]
    column = pa.array([[number] for number in numbers])
    assert ordinals(column).tolist() == numbers
