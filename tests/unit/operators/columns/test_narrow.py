"""Whole numbers on their way: few bytes, and the same numbers."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.columns.narrow import greatest, narrowed, raised, widened

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(
    st.one_of(
        st.lists(INT64), INT64.flatmap(lambda least: st.lists(st.integers(least, min(least + 300, (1 << 63) - 1))))
    )
)
def test_numbers_come_back(values: list[int]) -> None:
    column = pa.array(values, pa.int64())
    assert widened(*narrowed("n", column)).equals(column)


@given(st.lists(st.integers(0, 1 << 40)), st.integers(0, 1 << 40))
def test_numbers_are_raised_on_their_way(values: list[int], by: int) -> None:
    field, sent = narrowed("n", pa.array(values, pa.int64()))
    assert greatest(field, sent) == max(values, default=-1)
    assert widened(*raised(field, sent, by)).to_pylist() == [value + by for value in values]


@given(st.lists(st.lists(st.integers(0, 1 << 40))), st.integers(0, 1 << 40), st.integers(0, 3))
def test_numbers_of_lists_are_too(values: list[list[int]], by: int, first: int) -> None:
    field, sent = narrowed("n", pa.array(values, pa.list_(pa.int64())))
    sent, left = sent.slice(first), values[first:]
    assert greatest(field, sent) == max([number for items in left for number in items], default=-1)
    assert widened(*raised(field, sent, by)).to_pylist() == [[number + by for number in items] for items in left]


@pytest.mark.parametrize(
    ("values", "kind"),
    [([5, 260], pa.uint8()), ([5, 261], pa.uint16()), ([-1, 65534], pa.uint16()), ([0, 1 << 32], pa.int64()), ([0, 65536], pa.uint32())],
)  # fmt: skip
def test_as_few_bytes_as_they_need(values: list[int], kind: pa.DataType) -> None:
    assert narrowed("n", pa.array(values, pa.int64()))[1].type == kind


@pytest.mark.parametrize("column", [pa.array([1, None]), pa.array([1.5]), pa.array([], pa.int64()), pa.array(["a"])])
def test_others_stay_as_they_are(column: pa.Array) -> None:
    field, sent = narrowed("n", column)
    assert sent is column
    assert widened(field, sent) is column
