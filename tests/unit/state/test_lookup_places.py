"""Where a hash stands among many is guessed, and is where a search by halves has it."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
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
    """Hashes that note which of their places are looked at; a search by halves is noted as a look at all of those that it is in."""

    seen: set[int]
    begin: int  # the place that its first one has in the whole

    def __array_finalize__(self, other: Any) -> None:
        self.seen = getattr(other, "seen", set())
        self.begin = 0

    def __getitem__(self, places: Any) -> Any:
        if isinstance(places, slice):
            piece: Watched = super().__getitem__(places)
            piece.begin = self.begin + places.start
            return piece
        self.seen.update((self.begin + np.atleast_1d(np.arange(len(self))[places])).ravel().tolist())
        return np.asarray(self)[places]

    def __array_function__(self, function: Any, types: Any, arguments: Any, named: Any) -> Any:
        self.seen.update(range(self.begin, self.begin + len(self)))
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


def test_where_hashes_lie_unevenly_a_piece_of_the_run_is_looked_at_and_not_all_halves() -> None:
    """Of a run with some key groups that were merged and a few rows of all others."""
    chance = np.random.default_rng(13)
    merged = chance.integers(5 << 57, 9 << 57, ROWS - 4_000, np.uint64)
    held = np.sort(np.append(merged, chance.integers(0, 1 << 63, 4_000, np.uint64))).view(Watched)
    rows = np.arange(500, ROWS, 3_500)
    (found,) = first_rows([Search(held, np.asarray(held)[rows])])
    assert found.tolist() == rows.tolist()
    assert len(held.seen) <= 2 + 65 + 120 * len(rows) + 2 * ROWS // 64  # two pieces have an end of what was merged


def mapped_file(folder: Path, pages: int) -> pa.Buffer:
    (folder / "file").write_bytes(bytes(pages * mmap.PAGESIZE))
    return pa.memory_map(str(folder / "file")).read_buffer()


class Library:
    """The C library, with what it was asked for: (first page, pages) of each range, by each call."""

    def __init__(self, first: int, does: int) -> None:
        self.calls: list[list[tuple[int, int]]] = []
        self.each: list[tuple[int, int]] = []  # those that were asked for one by one
        self._first, self._does = first, does  # so many ranges of a call are done; below 0: it is refused
        self._real = ctypes.CDLL(None)

    def _pages(self, address: int, length: int) -> tuple[int, int]:
        return (address - self._first) // mmap.PAGESIZE, length // mmap.PAGESIZE

    def syscall(self, number: int, process: int, ranges: Any, count: Any, advice: int, flags: int) -> int:
        numbers = list((ctypes.c_int64 * (2 * count.value)).from_address(ranges.value)) if count.value else []
        asked = list(zip(numbers[::2], numbers[1::2], strict=True))
        if asked:
            self.calls.append([self._pages(*one) for one in asked])
        if self._does < 0:
            return -1
        done = min(self._does, count.value)
        real: int = self._real.syscall(number, process, ranges, ctypes.c_size_t(done), advice, flags)
        assert real in (-1, sum(length for _, length in asked[:done]))
        return sum(length for _, length in asked[:done])

    def madvise(self, start: Any, length: Any, advice: int) -> int:
        self.each.append(self._pages(start.value, length.value))
        result: int = self._real.madvise(start, length, advice)
        return result


def watch(monkeypatch: pytest.MonkeyPatch, content: pa.Buffer, does: int = 1 << 20) -> Library:
    library = Library(content.address, does)
    monkeypatch.setattr(paging, "_libc", lambda: library)
    monkeypatch.setattr(paging, "_own_process", functools.lru_cache(paging._own_process.__wrapped__))
    return library


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the call")
@pytest.mark.parametrize("does", [1 << 20, 700, 0, -1])
def test_pages_are_asked_for_in_one_call_and_those_that_it_does_not_take_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: int
) -> None:
    pages = 3_000
    content = mapped_file(tmp_path, pages)
    library = watch(monkeypatch, content, does)
    places = content.address + np.arange(0, content.size, 1_024, dtype=np.int64)
    paging.will_touch([(places, places + 8)])
    calls = [[(page, 1) for page in range(first, min(first + 1024, pages))] for first in range(0, pages, 1024)]
    assert library.calls == ([] if does < 0 else calls)
    assert library.each == [one for call in calls for one in call[max(does, 0) :]]


def test_where_python_cannot_open_a_handle_of_a_process_pages_are_asked_for_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = mapped_file(tmp_path, 3)
    library = watch(monkeypatch, content)
    monkeypatch.setattr(paging, "os", SimpleNamespace(getpid=os.getpid))
    places = content.address + np.array([0, 2], np.int64) * mmap.PAGESIZE
    paging.will_touch([(places, places + 8)])
    assert (library.calls, library.each) == ([], [(0, 1), (2, 1)])


def test_ranges_that_others_hold_are_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = mapped_file(tmp_path, 20)
    library = watch(monkeypatch, content, 0)
    starts, stops = np.array([[9, 2, 3, 5], [9, 5, 4, 7]], np.int64) * mmap.PAGESIZE + content.address
    paging.will_touch([(starts, stops), (starts[:0], stops[:0]), (starts[1:2] + 1, starts[1:2] + 1)])
    paging.will_touch([])
    paging.will_touch([(starts[:0], stops[:0])])
    assert [one for one in library.each if one[1]] == [(2, 3), (5, 2)]


def test_all_pages_of_an_entry_are_asked_for_and_of_the_entries_of_one_key_few_ranges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranges: list[tuple[list[int], list[int]]] = []
    monkeypatch.setattr(
        paging, "will_touch", lambda some: ranges.extend((first.tolist(), behind.tolist()) for first, behind in some)
    )
    values = binary_array([b"", b"x" * 10_000, None, b"y"] * 500).slice(2)
    rows = Rows(np.arange(1_998, dtype=np.uint64), values, None, values)
    paging.will_look_at([(rows, np.append(np.arange(100, 1_100), 1_500)), (rows, np.arange(3)), (rows, np.arange(0))])
    ends = np.frombuffer(values.buffers()[1], np.int64)
    offsets, data = ends.ctypes.data + 16, values.buffers()[2].address
    for first, behind in ranges[0:2]:
        assert first == [offsets + 8 * row for row in (100, 1_500)]
        assert behind == [offsets + 8 * row for row in (1_101, 1_502)]
    for first, behind in ranges[6:8]:
        assert first == [data + ends[row + 2] for row in (100, 1_500)]
        assert behind == [data + ends[row + 2] for row in (1_100, 1_501)]
    assert ranges[2] == ([offsets], [offsets + 8 * 4])
    assert len(ranges) == 12


def test_what_newer_runs_have_is_not_looked_for_in_older_ones() -> None:
    held = np.arange(10, dtype=np.uint64)
    keys = binary_array([b"%d" % one for one in range(10)])
    parts = [Rows(held.copy().view(Watched), keys, None, keys) for _ in range(4)]
    (match,) = TableView(parts).find(held[3:5], keys.slice(3, 2), several=False)
    assert match.places.tolist() == [0, 1]
    assert [bool(part.hashes.seen) for part in parts] == [True, True, False, False]  # type: ignore[attr-defined]


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
