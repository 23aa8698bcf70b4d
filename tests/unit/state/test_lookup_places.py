"""Where a hash stands among many is guessed, and is where a search by halves has it."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.formats.arrays import binary_array
from poundlock.state.runs import paging, places
from poundlock.state.runs.columns import Rows
from poundlock.state.runs.lookup import TableView
from poundlock.state.runs.places import Search, first_rows, stops
from poundlock.state.scratch import ScratchState
from support.examples import examples

ROWS = 200_000


def evenly(chance: np.random.Generator) -> npt.NDArray[np.uint64]:
    return np.sort(chance.integers(1 << 60, 1 << 61, ROWS, np.uint64))


def in_heaps(chance: np.random.Generator) -> npt.NDArray[np.uint64]:
    heaps = chance.integers(0, 1 << 63, 20, np.uint64)
    return np.sort(heaps[chance.integers(0, 20, ROWS)] + chance.integers(0, 1000, ROWS, np.uint64))


def crowded_at_one_end(chance: np.random.Generator) -> npt.NDArray[np.uint64]:
    return np.sort((2.0 ** chance.uniform(0, 63, ROWS)).astype(np.uint64))


def all_one(chance: np.random.Generator) -> npt.NDArray[np.uint64]:
    return np.full(ROWS, chance.integers(0, 1 << 63, dtype=np.uint64))


@pytest.mark.parametrize("made", [evenly, in_heaps, crowded_at_one_end, all_one])
def test_a_guess_is_where_a_search_is(made: Callable[[np.random.Generator], npt.NDArray[np.uint64]]) -> None:
    chance = np.random.default_rng(7)
    held = made(chance)
    for _ in range(50):
        some = held[chance.integers(0, ROWS, 30)]
        near = np.maximum(some, 1) - np.uint64(1)
        asked = np.sort(np.concatenate([some, near[near >= held[0]], held[[0, -1]]]))
        assert first_rows([Search(held, asked)])[0].tolist() == np.searchsorted(held, asked).tolist()


class Watched(np.ndarray[Any, Any]):
    """Hashes that note which of their places are looked at; a search by halves is noted as a look at all of them."""

    seen: set[int]

    def __array_finalize__(self, other: Any) -> None:
        self.seen = getattr(other, "seen", set())

    def __getitem__(self, places: Any) -> Any:
        self.seen.update(np.atleast_1d(np.arange(len(self))[places]).ravel().tolist())
        return np.asarray(self)[places]

    def __array_function__(self, function: Any, types: Any, arguments: Any, named: Any) -> Any:
        self.seen.update(range(len(self)))
        return function(*(np.asarray(each) for each in arguments), **named)


def test_it_reads_a_few_places_near_each_and_not_all_halves() -> None:
    chance = np.random.default_rng(3)
    runs = [evenly(chance).view(Watched) for _ in range(3)]
    rows = [np.arange(500 + run, 150_000, 5_000) for run in range(3)]
    searches = [Search(held, np.asarray(held)[some]) for held, some in zip(runs, rows, strict=True)]
    assert [found.tolist() for found in first_rows(searches)] == [some.tolist() for some in rows]
    for held, some in zip(runs, rows, strict=True):
        assert len(held.seen) <= 2 + 60 * len(some)
        assert held.seen - {0, ROWS - 1} <= {near for row in some.tolist() for near in range(row - 2_000, row + 2_000)}


def test_few_and_many_are_asked_in_one_call() -> None:
    chance = np.random.default_rng(5)
    runs = [evenly(chance), np.sort(chance.integers(0, 1 << 63, 50, np.uint64)), evenly(chance), evenly(chance)]
    asked = [
        np.sort(held[chance.integers(0, len(held), count)]) for held, count in zip(runs, (3, 20, 500, 1), strict=True)
    ]
    searches = [Search(held, some) for held, some in zip(runs, asked, strict=True)]
    assert [search.is_sparse for search in searches] == [True, False, False, True]
    for search, found in zip(searches, first_rows(searches), strict=True):
        assert found.tolist() == np.searchsorted(search.held, search.asked).tolist()
    assert first_rows([]) == []


def test_where_the_rows_of_a_hash_end() -> None:
    chance = np.random.default_rng(11)
    held = np.sort(np.repeat(evenly(chance), chance.integers(1, 9, ROWS))[:ROWS])
    held[5_000:9_000] = held[5_000]
    held[-3:] = held[-1]
    asked = np.concatenate([held[[0, 5_000, -1]], held[chance.integers(0, ROWS, 40)], [held[77] + np.uint64(1)]])
    search = Search(held, np.sort(asked))
    (rows,) = first_rows([search])
    assert search.is_sparse
    assert stops(search, rows).tolist() == np.searchsorted(held, search.asked, "right").tolist()


@pytest.mark.parametrize("refuses", [False, True])
def test_pages_are_asked_for_in_one_call_or_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    pages = 3_000
    (tmp_path / "file").write_bytes(bytes(pages * mmap.PAGESIZE))
    content = pa.memory_map(str(tmp_path / "file")).read_buffer()
    calls: list[int] = []

    class Library:
        """The C library, with what it was called for."""

        def syscall(self, number: int, process: int, ranges: Any, count: Any, advice: int, flags: int) -> int:
            calls.append(count.value)
            return -1 if refuses else libc.syscall(number, process, ranges, count, advice, flags)

        def madvise(self, start: Any, length: Any, advice: int) -> int:
            calls.append(0)
            result: int = libc.madvise(start, length, advice)
            return result

    libc = ctypes.CDLL(None)
    monkeypatch.setattr(paging, "_libc", Library)
    paging._own_process.cache_clear()
    paging.will_touch([content.address + np.arange(0, content.size, 1_000, dtype=np.int64)])
    paging._own_process.cache_clear()
    assert calls[0] == 0
    assert calls[1:] == ([0] * pages if refuses else [1024, 1024, pages - 2048])


hashes = st.lists(st.integers(0, 30), min_size=0, max_size=12).map(sorted)


@examples(300)
@given(st.lists(hashes, max_size=6), st.lists(st.integers(0, 30), min_size=1, unique=True), st.booleans())
def test_runs_are_looked_at_together_only_where_no_hash_is_in_two(
    runs: list[list[int]], wanted: list[int], several: bool
) -> None:
    """What a table finds is what a look at each run in turn finds: the newest run that has a key, or all that have it."""
    held = [runs_of if several else sorted(set(runs_of)) for runs_of in runs]
    parts = [
        Rows(np.array(of, np.uint64), binary_array([b"%d" % one for one in of]), None,
             binary_array([b"%d.%d.%d" % (age, one, row) for row, one in enumerate(of)]))
        for age, of in enumerate(held)
    ]  # fmt: skip
    asked = sorted(wanted)
    found = [
        (asked[place], value.decode())
        for match in TableView(parts).find(
            np.array(asked, np.uint64), binary_array([b"%d" % one for one in asked]), several=several
        )
        for place, value in zip(match.places.tolist(), match.values.to_pylist(), strict=True)
    ]
    expected: list[tuple[int, str]] = []
    for age, of in enumerate(held):
        known = set() if several else {one for one, _ in expected}
        expected += [(one, f"{age}.{one}.{row}") for row, one in enumerate(of) if one in wanted and one not in known]
    assert sorted(found) == sorted(expected)
    for one in asked:  # of one key newer entries come first
        ages = [int(value.split(".")[0]) for key, value in found if key == one]
        assert ages == sorted(ages)


def test_a_store_finds_by_guesses_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_LONG", 10)
    store = ScratchState(8, 1)
    for number in range(4):
        state = store.open(0, 0, 0)
        names = [f"user-{i}" for i in range(number, 2_000, number + 1)]
        state.prefetch(names)
        for name in names:
            state.table("count")[name] = number
        store.write()
    for first in range(0, 2_000, 400):
        state = store.open(0, 0, 0)
        asked = range(first, first + 40)
        state.prefetch([f"user-{i}" for i in asked] + ["nobody", "nothing"])
        table = state.table("count")
        found = [table.get(f"user-{i}") for i in asked]
        assert found == [max(n for n in range(4) if i >= n and (i - n) % (n + 1) == 0) for i in asked]
        assert table.get("nobody") is None
        store.write()
