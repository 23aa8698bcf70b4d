"""Taken files are known by their hashes, and sorted with few of them in memory."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.connectors.files.source import taken_files
from poundlock.connectors.files.source.discovery import DiscoveryLog
from poundlock.connectors.files.source.taken_files import TakenFiles, by_age
from poundlock.storage import Entry, LocalStorage


@given(batches=st.lists(st.lists(st.integers(0, 99), unique=True), max_size=8), asked=st.lists(st.integers(0, 99)))
def test_what_was_taken_is_known_and_nothing_else(batches: list[list[int]], asked: list[int]) -> None:
    taken, known = TakenFiles(), set[int]()
    for batch in batches:
        new = [number for number in batch if number not in known]
        taken.add("/in", [f"f{number}" for number in new])
        known.update(new)
    assert len(taken) == len(known)
    missing = taken.missing("/in", [f"f{number}" for number in asked])
    assert missing.tolist() == [number not in known for number in asked]
    assert taken.missing("/other", [f"f{number}" for number in known]).all(), "another folder has other files"


@given(taken=st.lists(st.integers(0, 5)), asked=st.lists(st.integers(0, 5)))
def test_hashes_that_are_half_alike_are_told_apart(taken: list[int], asked: list[int]) -> None:
    def half(root: str, paths: list[str]) -> taken_files.Digests:
        return np.array([[int(path) % 2, int(path)] for path in paths], np.uint64).reshape(-1, 2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taken_files, "_digests", half)
        files = TakenFiles()
        for number in taken:
            files.add("", [str(number)])
        assert files.missing("", [str(n) for n in asked]).tolist() == [number not in taken for number in asked]


@given(ages=st.lists(st.integers(0, 9)), at_a_time=st.integers(1, 7))
def test_files_come_by_age_and_path_however_few_are_sorted_at_a_time(ages: list[int], at_a_time: int) -> None:
    entries = [Entry(f"{number * 7 % 13}-{number}", number, age, "t" * (number % 2)) for number, age in enumerate(ages)]
    random.Random(1).shuffle(entries)
    assert [*by_age(iter(entries), at_a_time)] == sorted(entries, key=lambda e: (e.modified_ms, e.path))


def test_a_log_of_many_files_has_few_of_them_in_memory(tmp_path: object) -> None:
    storage = LocalStorage(str(tmp_path))
    log = DiscoveryLog(storage, per_entry=10)
    names = [f"f{number:04d}" for number in range(500)]
    assert log.add("/in", (Entry(name, 1, 0) for name in names), note_empty=False) == 500
    again = DiscoveryLog(storage, per_entry=10)
    assert (len(again), again.complete) == (50, True)
    assert [file.path for number in range(50) for file in again.files(number)] == names
    assert again.add("/in", (Entry(name, 1, 0) for name in [*names, "new"]), note_empty=False) == 1
    assert [file.path for file in again.files(50)] == ["new"]
    for each in (log, again):
        assert len(each._held) <= 3
