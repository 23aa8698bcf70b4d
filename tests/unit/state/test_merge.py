"""Merges: of each entry the newest, and how much is written again."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.formats.arrays import binary_array, ranks_of
from poundlock.state.runs import columns
from poundlock.state.runs.columns import NO_TIME, Rows, concat
from poundlock.state.runs.merge import expire, in_chunks, merge_rows, runs_to_merge
from poundlock.state.runs.timers import merge_timers, sequences, timer_entries, timer_rows

entries = st.dictionaries(
    st.tuples(st.integers(0, 3), st.sampled_from([b"a", b"b", b"ab"]), st.sampled_from([b"", b"x", b"y"])),
    st.one_of(st.none(), st.binary(max_size=3)),
    max_size=8,
)


def rows_of(part: dict[Any, Any]) -> Rows:
    ordered = sorted(part)
    return Rows(
        np.array([hash_ for hash_, _, _ in ordered], np.uint64),
        binary_array([key for _, key, _ in ordered]),
        binary_array([subkey for _, _, subkey in ordered]),
        binary_array([part[entry] for entry in ordered]),
    )


@given(st.lists(entries, max_size=5), st.booleans())
def test_the_newest_of_each_entry_stays_in_order(parts: list[dict[Any, Any]], drop: bool) -> None:
    merged = merge_rows([rows_of(part) for part in parts], drop_deleted=drop)
    expected: dict[Any, Any] = {}
    for part in reversed(parts):
        expected.update(part)
    wanted = [(*entry, expected[entry]) for entry in sorted(expected) if not (drop and expected[entry] is None)]
    found = zip(
        merged.hashes.tolist(),
        merged.keys.to_pylist(),
        merged.subkeys_or_none().to_pylist(),
        merged.values.to_pylist(),
        strict=True,
    )
    assert list(found) == wanted


@given(st.lists(entries, max_size=5), st.booleans(), st.integers(0, 200))
def test_merging_in_chunks_is_merging_the_whole(parts: list[dict[Any, Any]], drop: bool, limit: int) -> None:
    rows = [rows_of(part) for part in parts]
    chunks = list(in_chunks(rows, limit=limit))
    for chunk in chunks:
        assert sum(part.nbytes for part in chunk) <= limit or len({int(h) for part in chunk for h in part.hashes}) == 1
    whole = merge_rows(rows, drop_deleted=drop)
    assert listed(concat([merge_rows(chunk, drop_deleted=drop) for chunk in chunks])) == listed(whole)


def listed(rows: Rows) -> list[tuple[Any, ...]]:
    texts = rows.keys.to_pylist(), rows.subkeys_or_none().to_pylist(), rows.values.to_pylist()
    return list(zip(rows.hashes.tolist(), *texts, rows.times_or_none().tolist(), strict=True))


@given(st.lists(st.binary(max_size=4), max_size=20))
def test_byte_order_is_the_order_of_bytes(values: list[bytes]) -> None:
    order = ranks_of(binary_array(values))[0].tolist()
    for a, rank_a in zip(values, order, strict=True):
        for b, rank_b in zip(values, order, strict=True):
            assert (a < b, a == b) == (rank_a < rank_b, rank_a == rank_b)


def test_rows_with_and_without_subkeys_and_times_may_be_joined() -> None:
    plain = Rows(np.array([1], np.uint64), binary_array([b"a"]), None, binary_array([None]))
    timed = Rows(
        np.array([2], np.uint64),
        binary_array([b"b"]),
        binary_array([b"w"]),
        binary_array([b"v"]),
        np.array([5], np.int64),
    )
    both = concat([plain, timed])
    assert both.subkeys_or_none().to_pylist() == [b"", b"w"]
    assert both.times_or_none().tolist() == [NO_TIME, 5]
    assert len(columns.empty_rows()) == 0
    assert len(concat([])) == 0


def test_what_has_expired_is_deleted_and_takes_no_bytes() -> None:
    rows = Rows(
        np.arange(4, dtype=np.uint64),
        binary_array([b"a", b"b", b"c", b"d"]),
        None,
        binary_array([b"old", b"new", b"any", None]),
        np.array([10, 11, NO_TIME, 3], np.int64),
    )
    left = expire(rows, 10)
    assert left.values.to_pylist() == [None, b"new", b"any", None]
    assert left.values.nbytes < rows.values.nbytes
    assert expire(rows, 9).values.to_pylist() == [b"old", b"new", b"any", None]


# --- timers -------------------------------------------------------------------------------------------------------------

changes = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([b"a", b"b"]), st.booleans()), max_size=8
)  # time, key, whether it is registered


@given(st.lists(changes, max_size=5), st.data())
def test_merged_timers_fire_as_they_were_first_registered(parts: list[Any], data: st.DataObject) -> None:
    rows, alive, number = [], [], 0
    for part in parts:
        last: dict[Any, list[int | None]] = {}
        for time, key, registered in part:
            if registered:
                if (time, key) not in alive:
                    alive.append((time, key))
                of = last.setdefault((time, key), [])
                if not of or of[-1] is None:
                    of.append(number)
                number += 1
            else:
                if (time, key) in alive:
                    alive.remove((time, key))
                last[time, key] = [None]  # what was registered before in the same checkpoint is not written
        flat = [(time, key, place) for (time, key), places in last.items() for place in places]
        rows.append(
            timer_rows(
                np.zeros(len(flat), np.uint64),
                binary_array([key for _, key, _ in flat]),
                None,
                np.array([time for time, _, _ in flat], np.int64),
                [place for _, _, place in flat],
            )
        )
    newest_first = rows[::-1]
    while len(newest_first) > 1 and data.draw(st.booleans()):  # as merges of some runs would
        first = data.draw(st.integers(0, len(newest_first) - 2))
        whole = first + 2 == len(newest_first) and data.draw(st.booleans())
        newest_first[first : first + 2] = [merge_timers(newest_first[first : first + 2], drop_deleted=whole)]
    merged = merge_timers(newest_first, drop_deleted=True)
    assert [(time, key) for time, key, _ in timer_entries(merged)] == sorted(alive, key=lambda timer: timer[0])
    assert (sequences(merged.values) >= 0).all()


# --- when ---------------------------------------------------------------------------------------------------------------


def amplification(rows: int, added: int, checkpoints: int, fan_in: int) -> tuple[float, int]:
    """Return rows written for each row added, and the most runs there were; no row is ever written twice by its owner."""
    runs, written, most = [rows], 0, 0
    for _ in range(checkpoints):
        count = runs_to_merge(runs, added, fan_in)
        merged = min(added + sum(runs[len(runs) - count :]), max(rows, added))
        runs[len(runs) - count :] = [merged]
        written += merged
        most = max(most, len(runs))
    return written / (added * checkpoints), most


@pytest.mark.parametrize("rows", [10_000, 1_000_000, 100_000_000])
@pytest.mark.parametrize("fan_in", [2, 4, 8])
def test_rows_are_written_a_few_times_and_runs_are_few(rows: int, fan_in: int) -> None:
    times, most = amplification(rows, 1000, 3000, fan_in)
    levels = np.log(3000) / np.log(fan_in) + 2
    assert times < levels + 2
    assert most <= (fan_in - 1) * levels + 2


def test_nothing_is_merged_for_few_or_unlike_runs() -> None:
    assert runs_to_merge([], 100, 4) == 0
    assert runs_to_merge([10_000, 100], 100, 4) == 0
    assert runs_to_merge([10_000, 100, 100, 100], 100, 4) == 3
    assert runs_to_merge([100, 100, 100], 100, 4) == 3
    assert runs_to_merge([400, 400, 400, 100, 100, 100], 100, 4) == 6
    assert runs_to_merge([1_000_000] * 2, 1, 4) == 0


@given(st.lists(st.integers(0, 1000), max_size=12), st.integers(0, 1000), st.integers(2, 8))
def test_any_sizes_have_an_answer(sizes: list[int], added: int, fan_in: int) -> None:
    assert 0 <= runs_to_merge(sizes, added, fan_in) <= len(sizes)


def test_amplification_grows_slowly() -> None:
    random.seed(1)
    small, _ = amplification(10_000, 1000, 60, 8)
    large, _ = amplification(10_000_000, 1000, 60, 8)
    assert large <= 1.5 * small
