"""Look-ups in the runs of some key groups: a batch's keys at once, all entries of a table, without decoding anything.

Of an entry that several runs have, the newest is true; what a newer run cut away from older ones is never seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import flags_in, indices_of
from poundlock.state.manifest import Fragment, subtract
from poundlock.state.runs.columns import Rows, empty_rows
from poundlock.state.runs.run import Removal, Run, SectionKey, rank, will_look_at, will_touch

Span = tuple[int, int]
Places = npt.NDArray[np.int64]

_LONG, _FEW = 100_000, 64  # rows of a run, and keys that are looked up in it, from and up to which places are guessed
_NEAR = 128  # rows, a quarter of a page


@dataclass(frozen=True, slots=True)
class VisibleRun:
    """A run and the key groups it is to be looked at for: ranges (first, stop)."""

    run: Run
    groups: Sequence[Span]


@dataclass(frozen=True, slots=True)
class Matches:
    """Entries of some keys in one run."""

    places: Places  # which of the keys asked for each entry is of
    subkeys: pa.Array | None  # of the entries; None where a key has one entry
    values: pa.Array  # of the entries; null where it was deleted


class View:
    """The runs of some key groups, newest first.

    Args:
        fragments: ranges of groups and the ids of their runs, oldest first.
        cuts: what is gone from all of them.
    """

    def __init__(
        self, fragments: Sequence[Fragment], runs: Mapping[int, Run], max_parallelism: int, cuts: Sequence[Removal] = ()
    ) -> None:
        self.max_parallelism = max_parallelism
        self._cuts = cuts
        spans: dict[int, list[Span]] = {}
        for fragment in fragments:
            for number in fragment.runs:
                known = spans.setdefault(number, [])
                if known and known[-1][1] == fragment.first:
                    known[-1] = known[-1][0], fragment.stop
                else:
                    known.append((fragment.first, fragment.stop))
        # A run never has an older one's number: numbers are given when runs are decided on, checkpoint by checkpoint.
        self.runs = [VisibleRun(runs[number], spans[number]) for number in sorted(spans, reverse=True)]

    def section_keys(self) -> set[SectionKey]:
        """Return the keys of all sections that any run has."""
        return {key for visible in self.runs for key in visible.run.sections}

    def visible(self, key: SectionKey) -> Iterator[tuple[Run, list[Span], list[Removal]]]:
        """Yield each run that has a section, newest first: the groups it is seen for, and cuts of newer runs that are of a time."""
        own = [cut for cut in self._cuts if cut.key == key]
        gone: list[Span] = [(cut.first, cut.stop) for cut in own if cut.before is None]
        timed: list[Removal] = [cut for cut in own if cut.before is not None]
        for visible in self.runs:
            if key in visible.run.sections:
                left = subtract(visible.groups, gone)
                if left:
                    yield visible.run, left, list(timed)
            for cut in visible.run.cuts.get(key, ()):
                # A cut of a run is true only of groups that the run is there for: others have another history.
                for first, stop in visible.groups:
                    span = max(first, cut.first), min(stop, cut.stop)
                    if span[0] >= span[1]:
                        continue
                    if cut.before is None:
                        gone.append(span)
                    else:
                        timed.append(Removal(*key, *span, cut.before))

    def table(self, key: SectionKey) -> TableView | None:
        """Return a table that is sorted by hash, None if no run has it."""
        parts = []
        for run, spans, _ in self.visible(key):
            rows = run.section_rows(key) or empty_rows()
            parts += [part for span in spans if len(part := in_groups(rows, *span, self.max_parallelism))]
        return TableView(parts) if parts else None


def in_groups(rows: Rows, first: int, stop: int, max_parallelism: int) -> Rows:
    """Return those of some rows, sorted by hash, that are in a range of key groups."""
    return rows.slice(rank(rows.hashes, first, max_parallelism), rank(rows.hashes, stop, max_parallelism))


class TableView:
    """One table: all rows of it, newest first, deleted ones and those that are no longer true included."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.parts = parts

    def find(self, hashes: npt.NDArray[np.uint64], keys: pa.Array, *, several: bool) -> Iterator[Matches]:
        """Yield the entries of keys, newest runs first; of one key and subkey the first that comes is true.

        Args:
            hashes: of the keys, ascending.
            keys: the encoded keys, large_binary.
            several: whether a key may have several entries; otherwise a key that a run has is not looked for in older runs.
        """
        waiting: Places = np.arange(len(hashes))
        for part in self.parts:
            if not len(waiting):
                return
            places, rows = _matches(part.hashes, hashes, waiting, several)
            if not len(rows):
                continue
            indices = indices_of(rows)
            if _far_apart(part.hashes, rows):
                will_look_at(part, rows)
            same = flags_in(pc.equal(part.keys.take(indices), keys.take(indices_of(places))))
            if not same.all():
                places, rows = places[same], rows[same]
                indices = indices_of(rows)
            if not len(rows):
                continue
            subkeys = part.subkeys
            yield Matches(places, None if subkeys is None else subkeys.take(indices), part.values.take(indices))
            if not several:
                waiting = np.setdiff1d(waiting, places, assume_unique=True)


def _matches(
    held: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64], waiting: Places, several: bool
) -> tuple[Places, Places]:
    """Return pairs of a place in `wanted` and a row of `held` with the same hash; both arrays are ascending."""
    asked = wanted[waiting]
    a, b = np.searchsorted(asked, held[[0, -1]])  # what lies outside of the run's hashes is not looked for
    b = int(np.searchsorted(asked, held[-1], "right"))
    if a >= b:
        return waiting[:0], waiting[:0]
    asked, places = asked[a:b], waiting[a:b]
    rows = first_rows(held, asked)
    there = held[rows] == asked
    rows, places, asked = rows[there], places[there], asked[there]
    following = np.minimum(rows + 1, len(held) - 1)
    if not several and not ((held[following] == asked) & (following > rows)).any():
        return places, rows
    counts = np.searchsorted(held, asked, "right") - rows
    return np.repeat(places, counts), _ranges(rows, counts)


def _far_apart(held: npt.NDArray[np.uint64], asked: npt.NDArray[Any]) -> bool:
    """Return whether so few of so many rows are looked for that each has a page of its own."""
    return len(held) >= _LONG and len(asked) <= _FEW


def first_rows(held: npt.NDArray[np.uint64], asked: npt.NDArray[np.uint64]) -> Places:
    """Return where each hash stands in others, or would: `np.searchsorted`, which reads fewer pages of a long run.

    Hashes lie evenly, so that the place of one is known to some hundred rows, and to some ten once the hash there is read. A search by
    halves reads a page for each half; in a mapped file that is larger than memory a page costs more than all else.

    Args:
        held: ascending; asked likewise, none above the last of `held`.
    """
    n = len(held)
    if not _far_apart(held, asked):
        return np.searchsorted(held, asked)
    numbers, least = asked.astype(np.float64), float(held[0])
    rows_each = n / max(float(held[-1]) - least, 1.0)
    places = np.minimum((numbers - least) * rows_each, n - 1).astype(np.int64)
    will_touch(held.ctypes.data + places * held.itemsize)
    for _ in range(2):
        nearer = places + (numbers - held[places].astype(np.float64)) * rows_each
        places = np.clip(nearer, 0, n - 1).astype(np.int64)
    rows = np.empty(len(asked), np.int64)
    for number, (place, one) in enumerate(zip(places.tolist(), asked, strict=True)):
        low, high = max(place - _NEAR, 0), min(place + _NEAR, n - 1)
        if (low and held[low] >= one) or held[high] < one:
            low, high = 0, n - 1  # they do not lie evenly here
        rows[number] = low + np.searchsorted(held[low : high + 1], one)
    return rows


def _ranges(starts: Places, counts: Places) -> Places:
    """Return start, start + 1, … of each range, one behind the other."""
    if not len(starts):
        return starts
    ends: Any = np.cumsum(counts)
    result: Places = np.arange(ends[-1]) + np.repeat(starts - (ends - counts), counts)
    return result
