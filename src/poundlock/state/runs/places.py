"""Where hashes stand among the ascending hashes of runs, with few pages of long runs looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from poundlock.state.runs.columns import Hashes
from poundlock.state.runs.paging import Places, bytes_of, will_touch

_LONG, _FEW = 100_000, 64  # rows of a run, and keys that are looked up in it, from and up to which places are guessed
_NEAR = 24  # rows around a guess that are looked through: five times as far as most are from it
_NEARBY = _NEAR + _NEAR // 2  # rows around the guess before it, whose pages are asked for
_PIECES = 64  # of a run whose hashes do not lie evenly, in each of which it is tried again


@dataclass(frozen=True, slots=True)
class Search:
    """Hashes that are looked for in a run."""

    held: Hashes  # ascending, not empty
    asked: Hashes  # ascending, from the first of `held` to the last

    @property
    def is_sparse(self) -> bool:
        """Whether so few of so many rows are looked for that each has a page of its own."""
        return len(self.held) >= _LONG and len(self.asked) <= _FEW


def first_rows(searches: Sequence[Search]) -> list[Places]:
    """Return for each search where each hash stands, or would: `np.searchsorted`, which reads fewer pages of long runs.

    Hashes lie evenly, so that the place of one is known to some hundred rows, and to some ten once the hash there is read. A search by
    halves reads a page for each half; in a mapped file that is larger than memory a page costs more than all else. Of all runs the
    pages are asked for together.
    """
    guessed = iter(_guessed([search for search in searches if search.is_sparse]))
    return [next(guessed) if search.is_sparse else np.searchsorted(search.held, search.asked) for search in searches]


def stops(search: Search, rows: Places) -> Places:
    """Return the row behind the last one of each hash, where its first one is known: what `np.searchsorted` has on the right."""
    if not search.is_sparse:
        return np.searchsorted(search.held, search.asked, "right")
    pairs = zip(rows.tolist(), search.asked, strict=True)
    return np.array([_stop(search.held, row, one) for row, one in pairs], np.int64)


def _stop(held: Hashes, row: int, one: np.uint64) -> int:
    """Return the row behind the last one of a hash: looked for from its first row on, which is near where a key has few."""
    width = 1
    while row + width < len(held) and held[row + width] == one:
        width *= 2
    low = row + width // 2
    return low + int(np.searchsorted(held[low : row + width], one, "right"))


def _guessed(searches: Sequence[Search], *, again: bool = True) -> list[Places]:
    """Return the rows of searches that are sparse; `again`: hashes that do not lie evenly are looked for in pieces of their run."""
    if not searches:
        return []
    counts = [len(search.asked) for search in searches]
    borders = np.cumsum(counts)[:-1]

    def each(values: Sequence[float]) -> npt.NDArray[Any]:
        """Return what is known of each run at each of its hashes."""
        return np.repeat(np.array(values), counts)

    def at(places: Places) -> Hashes:
        """Return what runs hold at places of each of their hashes."""
        parts = np.split(places, borders)
        return np.concatenate([search.held[part] for search, part in zip(searches, parts, strict=True)])

    def touch(first: Places, final: Places) -> None:
        will_touch([(starts + first * 8, starts + final * 8 + 8)])

    starts = each([search.held.ctypes.data for search in searches])
    last = each([len(search.held) - 1 for search in searches])
    least = each([float(search.held[0]) for search in searches])
    most = each([float(search.held[-1]) for search in searches])
    rows_each = (last + 1) / np.maximum(most - least, 1.0)
    asked = np.concatenate([search.asked for search in searches])
    numbers = asked.astype(np.float64)
    places = np.minimum((numbers - least) * rows_each, last).astype(np.int64)
    touch(places, places)
    for turn in range(2):
        nearer = places + (numbers - at(places).astype(np.float64)) * rows_each
        places = np.clip(nearer, 0, last).astype(np.int64)
        if not turn:
            touch(np.maximum(places - _NEARBY, 0), np.minimum(places + _NEARBY, last))
    low = np.maximum(np.minimum(places, last - _NEAR) - _NEAR, 0)
    around = at(np.minimum(low[:, np.newaxis] + np.arange(2 * _NEAR + 1), last[:, np.newaxis]))
    before = (around < asked[:, np.newaxis]).sum(axis=1)
    rows = np.split(low + before, borders)
    # Where they do not lie evenly a hash may stand outside of what was looked through.
    outside = ((before == 0) & (low > 0)) | (before == around.shape[1])
    for search, own, lost in zip(searches, rows, np.split(outside, borders), strict=True):
        if lost.any():
            missed = Search(search.held, search.asked[lost])
            own[lost] = _in_pieces(missed) if again else np.searchsorted(missed.held, missed.asked)
    return rows


def _in_pieces(search: Search) -> Places:
    """Return the rows of hashes that do not lie evenly in the whole run, as where some key groups were merged and others were not."""
    held, asked = search.held, search.asked
    borders = np.linspace(0, len(held) - 1, _PIECES + 1).astype(np.int64)
    will_touch([bytes_of(held, borders, borders + 1)])
    piece = np.maximum(np.searchsorted(held[borders], asked), 1)
    low, high = borders[piece - 1], borders[piece]
    pairs = zip(low.tolist(), high.tolist(), range(len(asked)), strict=True)
    pieces = [Search(held[a : b + 1], asked[one : one + 1]) for a, b, one in pairs]
    rows: Places = low + np.concatenate(_guessed(pieces, again=False))
    return rows
