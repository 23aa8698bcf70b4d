"""Rows in groups against a plain dictionary, with hashes that meet by chance and on purpose."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.columns import groups as groups_module
from poundlock.operators.columns.groups import grouped, grouped_by_code, overlapping

KEYS = st.binary(max_size=20) | st.sampled_from(
    [b"", b"a", b"a\0", b"12345678", b"123456789", b"1234567\0\0", b"x" * 16]
)
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 3)), max_size=60)


def wanted(rows: list[tuple[bytes, int]], hashes: list[int]) -> set[tuple[int, ...]]:
    """Return the places of the rows of each group, in the order they came."""
    groups: dict[tuple[int, int, bytes], list[int]] = {}
    for place, ((key, slice_), hash_) in enumerate(zip(rows, hashes, strict=True)):
        groups.setdefault((slice_, hash_, key), []).append(place)
    return {tuple(places) for places in groups.values()}


@given(rows=ROWS, bits=st.sampled_from([0, 1, 2, 64]), width=st.sampled_from([1, 7, 1 << 40]))
def test_groups_are_those_of_a_dictionary(rows: list[tuple[bytes, int]], bits: int, width: int) -> None:
    # With few bits nearly all keys share a hash; the high ones differ, or the low ones, or neither.
    hashes = [hash(key) % (1 << bits) * (0x9E3779B97F4A7C15 if bits == 64 else 1) % (1 << 64) for key, _ in rows]
    slices = np.array([slice_ * width - 5 for _, slice_ in rows], np.int64)
    keys = pa.array([key for key, _ in rows], pa.binary())
    found = grouped(np.array(hashes, np.uint64), keys, slices, width)
    places = [found.order[a : a + n].tolist() for a, n in zip(found.starts, found.counts, strict=True)]
    assert {tuple(each) for each in places} == wanted(rows, hashes)
    assert sorted(found.order.tolist()) == list(range(len(rows)))
    firsts = found.firsts.tolist()
    ranks = [(rows[first][1], hashes[first]) for first in firsts]
    assert ranks == sorted(ranks), "groups stand by slice and hash"


@given(rows=ROWS, bits=st.sampled_from([0, 1, 64]), width=st.sampled_from([1, 7]))
def test_groups_by_number_are_those_of_the_keys(rows: list[tuple[bytes, int]], bits: int, width: int) -> None:
    keys = pa.array([key for key, _ in rows], pa.binary())
    numbered = keys.dictionary_encode()
    hash_of = {key: hash(key) % (1 << bits) for key, _ in rows}
    slices = np.array([slice_ * width - 5 for _, slice_ in rows], np.int64)
    of_keys = np.array([hash_of[key] for key in numbered.dictionary.to_pylist()], np.uint64)
    by_number = grouped_by_code(np.array(numbered.indices, np.int32), of_keys, numbered.dictionary, slices, width)
    of_rows = np.array([hash_of[key] for key, _ in rows], np.uint64)
    by_key = grouped(of_rows, keys, slices, width)
    assert by_number is not None
    assert by_number.order.tolist() == by_key.order.tolist()
    assert by_number.starts.tolist() == by_key.starts.tolist()


def test_more_keys_and_slices_than_fit_are_not_grouped_by_number() -> None:
    keys = pa.array([str(number).encode() for number in range(300)], pa.binary())
    codes, hashes = np.arange(300, dtype=np.int32), np.arange(300, dtype=np.uint64)
    assert grouped_by_code(codes, hashes, keys, np.arange(300) * 10, 10) is None
    assert grouped_by_code(codes, hashes, keys, np.zeros(300, np.int64)) is not None


@given(
    rows=st.lists(st.tuples(KEYS, st.integers(-99, 99)), max_size=40),
    bits=st.sampled_from([0, 1, 64]),
    wide=st.sampled_from([1, 1 << 50]),
)
def test_stretches_of_one_key_that_touch_are_a_group(rows: list[tuple[bytes, int]], bits: int, wide: int) -> None:
    hashes = np.array([hash(key) % (1 << bits) for key, _ in rows], np.uint64)
    starts = np.array([start * wide for _, start in rows], np.int64)
    found = overlapping(hashes, pa.array([key for key, _ in rows], pa.binary()), starts, starts + 5 * wide)
    groups: list[list[int]] = []
    for place in sorted(range(len(rows)), key=lambda place: (rows[place], place)):
        if groups and rows[groups[-1][-1]][0] == rows[place][0] and rows[place][1] - rows[groups[-1][-1]][1] <= 5:
            groups[-1].append(place)
        else:
            groups.append([place])
    places = [found.order[a : a + n].tolist() for a, n in zip(found.starts, found.counts, strict=True)]
    assert sorted(places) == sorted(groups)


@given(rows=ROWS)
def test_a_column_may_be_a_part_of_another(rows: list[tuple[bytes, int]]) -> None:
    before = [(b"before", 0), (b"x" * 33, 1)]
    keys = pa.array([key for key, _ in [*before, *rows, (b"behind", 9)]], pa.large_binary())[2:-1]
    hashes = np.zeros(len(rows), np.uint64)
    groups = grouped(hashes, keys)
    places = {tuple(groups.order[a : a + n].tolist()) for a, n in zip(groups.starts, groups.counts, strict=True)}
    assert places == wanted([(key, 0) for key, _ in rows], [0] * len(rows))


def test_where_the_hash_has_no_room_rows_are_sorted_by_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "_LEAST_HASH_BITS", 64)
    hashes = np.array([3, 1, 3, 2], np.uint64)
    groups = grouped(hashes, None, np.array([5, 5, 0, 5]))
    assert groups.order.tolist() == [2, 1, 3, 0]
    assert groups.counts.tolist() == [1, 1, 1, 1]


def test_hashes_that_differ_in_their_last_bits_alone_are_put_in_order() -> None:
    rng = np.random.default_rng(7)
    hashes = (np.uint64(1) << np.uint64(63)) + rng.integers(0, 50, 3000).astype(np.uint64)
    groups = grouped(hashes, None, rng.integers(0, 2, 3000) * 10_000, 10_000)
    assert len(groups) == 100
    assert groups.counts.sum() == 3000
