"""Where a hash stands among many is guessed, and is where a search by halves has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from poundlock.state.runs import lookup
from poundlock.state.runs.lookup import first_rows
from poundlock.state.scratch import ScratchState

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
        assert first_rows(held, asked).tolist() == np.searchsorted(held, asked).tolist()


def test_it_reads_a_few_places_and_not_all_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    held = evenly(np.random.default_rng(3))
    asked = held[500:150_000:5_000]
    whole: list[int] = []

    class Counting:
        """numpy, with how long the arrays are that are searched."""

        def __getattr__(self, name: str) -> object:
            if name != "searchsorted":
                return getattr(np, name)

            def searched(array: npt.NDArray[np.uint64], value: Any) -> Any:
                whole.append(len(array))
                return np.searchsorted(array, value)

            return searched

    monkeypatch.setattr(lookup, "np", Counting())
    assert first_rows(held, asked).tolist() == list(range(500, 150_000, 5_000))
    assert max(whole) <= 257


def test_a_store_finds_by_guesses_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_LONG", 10)
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
