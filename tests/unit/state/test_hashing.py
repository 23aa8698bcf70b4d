"""Hashes of keys: what they are for all time, the same for Arrow and Python, and which key group they mean."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError
from poundlock.state.hashing import first_hash, groups_of, groups_of_task, hashes_of, key_hashes

GOLDEN: list[tuple[Any, int]] = [
    (None, 0x0000000000000000),
    (True, 0x72624ED677E533C2),
    (0, 0x629D09BE3DB8D07E),
    (-1, 0x9F173232DC404F7B),
    (1 << 70, 0xC34CDC54EF68935B),
    (0.5, 0xF6A601D9C472D114),
    (math.nan, 0x6E242F87B6AC22D2),
    ("", 0x0000000000000000),
    ("user", 0xAAFC772A958380C3),
    ("ä", 0x8F046F78079C1E7E),
    ("12345678", 0xD214D12557CD9B8C),
    ("x" * 300, 0xAA41053DBEB9287D),
    (b"x", 0x197E1FC672B314D3),
    (Decimal("1.50"), 0x8F674B4DED12E393),
    (date(2020, 2, 29), 0x048D0198E8AED6CC),
    (datetime(2020, 2, 29, 1, 2, 3), 0xB9394F36E2BE8F65),
    (timedelta(seconds=1), 0x2315617B3B6EAE80),
    (time(1, 2, 3), 0x1B943076873CC8C7),
    (("a", 1), 0xEA25A13F0EC91911),
    (("a", None), 0x6C6D668995A9CE93),
    ((("a",), 1), 0xEDB7E5DA204D8DE4),
    (frozenset({1}), 0x33DCB6D22B068ECD),
]


def test_hashes_are_the_same_for_all_time() -> None:
    # State on disk is found by these numbers: they must never change.
    assert [hex(int(hashes_of([key])[0])) for key, _ in GOLDEN] == [hex(value) for _, value in GOLDEN]
    assert hashes_of([key for key, _ in GOLDEN]).tolist() == [value for _, value in GOLDEN]


COLUMNS: list[tuple[list[Any], pa.DataType]] = [
    ([1, -5, None, 3], pa.int64()),
    ([1, 5, None, 3], pa.uint8()),
    ([1 << 63, 5, None], pa.uint64()),
    ([1.5, -0.0, math.nan, None], pa.float32()),
    ([1.5, -0.0, math.nan, None], pa.float64()),
    (["a", "ä" * 200, "", None, "x" * 9, "y" * 257], pa.string()),
    (["a", "ä" * 200, "", None], pa.large_string()),
    ([b"a", b"", b"x" * 300, None], pa.binary()),
    ([b"abcd", None], pa.binary(4)),
    ([True, False, None], pa.bool_()),
    ([Decimal("1.00"), Decimal("-3.25"), Decimal("12345678901234567890123.00"), None], pa.decimal128(30, 2)),
    ([date(2020, 1, 1), date(1, 1, 1), None], pa.date32()),
    ([datetime(2020, 1, 1, 2, 3, 4, 5), datetime(1960, 1, 1), None], pa.timestamp("us")),
    ([datetime(2020, 1, 1, 2, 3, 4, 5000, tzinfo=UTC), None], pa.timestamp("ms", "UTC")),
    ([timedelta(seconds=-3), None], pa.duration("ms")),
    ([time(1, 2, 3, 4), None], pa.time64("us")),
    ([time(1, 2, 3), None], pa.time32("s")),
    ([None], pa.null()),
]


@pytest.mark.parametrize(("values", "kind"), COLUMNS, ids=[str(kind) for _, kind in COLUMNS])
def test_a_column_has_the_hashes_of_its_values(values: list[Any], kind: pa.DataType) -> None:
    whole = pa.array(values, kind)
    forms = [whole, whole.slice(1), whole.slice(0, 0), pa.chunked_array([whole.slice(0, 1), whole.slice(1)])]
    if kind != pa.null():
        forms.append(whole.dictionary_encode())
    for column in forms:
        python = column.to_pylist()
        assert key_hashes([column]).tolist() == hashes_of(python).tolist()
        assert key_hashes([column, column]).tolist() == hashes_of(list(zip(python, python, strict=True))).tolist()
        assert [int(hashes_of([value])[0]) for value in python] == hashes_of(python).tolist()


def test_equal_keys_have_equal_hashes_whatever_their_width() -> None:
    assert key_hashes([pa.array([7], pa.int8())]).tolist() == key_hashes([pa.array([7], pa.uint64())]).tolist()
    assert key_hashes([pa.array([0.5], pa.float32())]).tolist() == hashes_of([0.5]).tolist()
    assert hashes_of([0.0]).tolist() == hashes_of([-0.0]).tolist()
    assert hashes_of([math.nan]).tolist() == hashes_of([-math.nan]).tolist()


def test_keys_of_different_kinds_differ() -> None:
    keys = [None, True, 1, 1.0, "1", b"1", Decimal(1), (1,), ("1",), (1, None), (None, 1), frozenset({1})]
    assert len(set(hashes_of(keys).tolist())) == len(keys)


@given(
    st.lists(
        st.one_of(st.text(max_size=12), st.integers(), st.floats(), st.none(), st.binary(max_size=20)), max_size=20
    )
)
def test_a_key_has_the_same_hash_alone_and_among_others(keys: list[Any]) -> None:
    assert hashes_of(keys).tolist() == [int(hashes_of([key])[0]) for key in keys]


def test_what_cannot_be_a_key_is_refused() -> None:
    with pytest.raises(DefinitionError, match="cannot be a key"):
        key_hashes([pa.array([[1]])])
    with pytest.raises(DefinitionError, match="not valid Unicode"):
        hashes_of(["\ud800"])
    with pytest.raises(DefinitionError, match="state cannot keep a object"):
        hashes_of([object()])
    with pytest.raises(DefinitionError, match="no column"):
        key_hashes([])


@pytest.mark.parametrize(
    "keys",
    [
        [f"user-{i}" for i in range(20_000)],
        list(range(0, 20_000 * 128, 128)),
        [(i, "x") for i in range(20_000)],
        [i * 0.25 for i in range(20_000)],
        [date.fromordinal(i + 1) for i in range(20_000)],
    ],
    ids=["texts", "multiples", "composite", "floats", "dates"],
)
def test_keys_are_spread_evenly_and_do_not_collide(keys: list[Any]) -> None:
    hashes = hashes_of(keys)
    assert len(set(hashes.tolist())) == len(keys)
    sizes = np.bincount(groups_of(hashes, 16), minlength=16)
    assert 1100 < sizes.min() <= sizes.max() < 1400


@given(st.integers(1, 32_768), st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=20), st.data())
def test_groups_are_ranges_of_the_hash(groups: int, hashes: list[int], data: st.DataObject) -> None:
    edges = [data.draw(st.integers(0, groups)) for _ in range(3)]
    near = [first_hash(edge, groups) + step for edge in edges for step in (-1, 0)]
    every = np.array(sorted(h for h in (*hashes, *near) if 0 <= h < 1 << 64), np.uint64)
    found = groups_of(every, groups)
    assert found.tolist() == sorted(found.tolist())
    assert 0 <= found[0] <= found[-1] < groups
    for value, group in zip(every.tolist(), found.tolist(), strict=True):
        assert first_hash(group, groups) <= value < first_hash(group + 1, groups)


@given(st.integers(1, 500), st.data())
def test_every_group_has_one_task(groups: int, data: st.DataObject) -> None:
    tasks = data.draw(st.integers(1, groups))
    ranges = [range(*groups_of_task(task, tasks, groups)) for task in range(tasks)]
    assert [group for some in ranges for group in some] == list(range(groups))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1, "as even as can be"


def test_what_has_no_key_is_in_the_first_group() -> None:
    assert groups_of(hashes_of([None]), 32_768).tolist() == [0]


@pytest.mark.parametrize(("tasks", "groups"), [(2, 1), (0, 4), (1, 0), (1, 40_000)])
def test_numbers_that_cannot_be_are_refused(tasks: int, groups: int) -> None:
    with pytest.raises(DefinitionError):
        groups_of_task(0, tasks, groups)
