"""Look-ups in the runs of some key groups: a batch's keys at once, all entries of a table, without decoding anything.

Of an entry that several runs have, the newest is true; what a newer run cut away from older ones is never seen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import flags_in, indices_of, ranges
from poundlock.state.manifest import Fragment, subtract
from poundlock.state.runs.columns import Rows, empty_rows
from poundlock.state.runs.paging import Places, will_look_at
from poundlock.state.runs.places import Search, first_rows, stops
from poundlock.state.runs.run import Removal, Run, SectionKey, rank

Span = tuple[int, int]


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
            if spans[0][0] <= run.file.first and run.file.stop <= spans[0][1]:
                parts.append(rows)  # all of it: its hashes need not be looked at
            else:
                parts += [in_groups(rows, *span, self.max_parallelism) for span in spans]
        parts = [part for part in parts if len(part)]
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
        for stretch in _apart(self.parts):
            seen = []
            for part, places, rows in stretch.rows_of(hashes, waiting, several):
                indices = indices_of(rows)
                same = flags_in(pc.equal(part.keys.take(indices), keys.take(indices_of(places))))
                if not same.all():
                    places, rows = places[same], rows[same]
                    indices = indices_of(rows)
                if not len(rows):
                    continue
                seen.append(places)
                subkeys = part.subkeys
                yield Matches(places, None if subkeys is None else subkeys.take(indices), part.values.take(indices))
            if seen and not several:
                waiting = np.setdiff1d(waiting, np.concatenate(seen), assume_unique=True)
                if not len(waiting):
                    return

    def find_between(
        self, first: npt.NDArray[np.uint64], last: npt.NDArray[np.uint64], keys: pa.Array
    ) -> Iterator[Matches]:
        """Yield the entries of keys, newest runs first, where each key's are in a range of hashes; a key may have several.

        Args:
            first: the least hash of each range, in any order.
            last: the greatest one.
            keys: the encoded keys, large_binary.
        """
        for part in self.parts:
            starts = np.searchsorted(part.hashes, first)
            counts = np.searchsorted(part.hashes, last, "right") - starts
            places, rows = np.repeat(np.arange(len(first)), counts), ranges(starts, counts)
            same = flags_in(pc.equal(part.keys.take(indices_of(rows)), keys.take(indices_of(places))))
            rows = rows[same]
            if len(rows):
                indices, subkeys = indices_of(rows), part.subkeys
                yield Matches(
                    places[same], None if subkeys is None else subkeys.take(indices), part.values.take(indices)
                )


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Rows of runs that follow one another by age, of which no two can have the same hash: they are looked at together."""

    parts: Sequence[Rows]
    least: npt.NDArray[np.uint64]  # the first hash of each
    most: npt.NDArray[np.uint64]  # the last one

    def rows_of(
        self, hashes: npt.NDArray[np.uint64], waiting: Places, several: bool
    ) -> list[tuple[Rows, Places, Places]]:
        """Return of each part that has any: pairs of a place in `hashes`, one of those that wait, and a row with the same hash."""
        asked = hashes[waiting]
        starts, ends = np.searchsorted(asked, self.least), np.searchsorted(asked, self.most, "right")
        spans = [(part, a, b) for part, a, b in zip(self.parts, starts.tolist(), ends.tolist(), strict=True) if a < b]
        searches = [Search(part.hashes, asked[a:b]) for part, a, b in spans]
        pairs, sparse = [], []
        for (part, a, b), search, rows in zip(spans, searches, first_rows(searches), strict=True):
            places, rows = _matches(search, waiting[a:b], rows, several)
            if len(rows):
                pairs.append((part, places, rows))
                if search.is_sparse:
                    sparse.append((part, rows))
        will_look_at(sparse)
        return pairs


def _apart(parts: Iterable[Rows]) -> Iterator[_Stretch]:
    """Yield rows of runs, newest first, in stretches as long as they can be."""
    stretch: list[Rows] = []
    ends: list[Span] = []  # the first hash of each of them and the last
    ascending: list[Span] = []
    for part in parts:
        if not len(part):
            continue
        span = least, most = int(part.hashes[0]), int(part.hashes[-1])
        at = bisect_left(ascending, span)
        if (at and ascending[at - 1][1] >= least) or (at < len(ascending) and ascending[at][0] <= most):
            yield _Stretch(stretch, *np.array(ends, np.uint64).T)
            stretch, ends, ascending, at = [], [], [], 0
        stretch.append(part)
        ends.append(span)
        ascending.insert(at, span)
    if stretch:
        yield _Stretch(stretch, *np.array(ends, np.uint64).T)


def _matches(search: Search, waiting: Places, rows: Places, several: bool) -> tuple[Places, Places]:
    """Return pairs of a place of those that wait and a row with the same hash, where the first row of each is known."""
    held, asked = search.held, search.asked
    there = held[rows] == asked
    if not there.all():
        rows, waiting, asked = rows[there], waiting[there], asked[there]
    following = np.minimum(rows + 1, len(held) - 1)
    if not several and not ((held[following] == asked) & (following > rows)).any():
        return waiting, rows
    counts = stops(Search(held, asked), rows) - rows
    return np.repeat(waiting, counts), ranges(rows, counts)
