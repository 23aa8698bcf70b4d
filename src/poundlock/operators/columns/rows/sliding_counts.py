"""Windows of the last rows of a key that slide, by columns: at every so many rows of the key comes out what its last rows add up to.

The rows of a key are cut into panes of as many as divide both the size of a window and its slide, so that every window is whole panes:
a row is added up once, and a window merges its panes. State has of a key the panes that windows to come are made of, and nothing of
rows in the gaps between windows. Tumbling windows are those of which the slide is the size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of, indices_of, joined, ranges
from poundlock.operators.columns.aggregation import Aggregation
from poundlock.operators.columns.groups import Groups
from poundlock.operators.columns.operator import ColumnChunk, ColumnOperator, ResultColumns
from poundlock.operators.columns.rows.keys import RowKeys, RowsByKey
from poundlock.operators.columns.rows.panes import KeptPanes
from poundlock.operators.columns.rows.table import KeyTable
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.windows.base import CONTENTS

_AT_ONCE = 1 << 18  # panes that are merged at a time, and that are read of state, where there are all of each key


@dataclass(frozen=True)
class ColumnSlidingCounts:
    """Windows of a number of rows that slide, and their rows as columns. Picklable.

    Args:
        n: how many rows a window has.
        slide: how many rows of a key lie between the ends of two windows.
        full_only: whether the first window of a key is the first full one. Otherwise it comes out at the row number `slide`.
        keys: of a row.
        arguments: the columns that aggregates are of.
        output: the columns of results.
    """

    n: int
    slide: int
    full_only: bool
    keys: RowKeys
    arguments: tuple[str, ...]
    aggregates: Aggregation
    output: ResultColumns

    def operator(self) -> ColumnSlidingCountOperator:
        """Return a new operator."""
        return ColumnSlidingCountOperator(self)

    @property
    def pane(self) -> int:
        """How many rows a pane has."""
        return gcd(self.n, self.slide)

    @property
    def described(self) -> tuple[str, ...]:
        """What state holds, as its manifest says it."""
        full = ", full ones only" if self.full_only else ""
        return *self.aggregates.described, f"panes of {self.pane} rows, windows of {self.n} every {self.slide}{full}"

    @property
    def _first(self) -> int:
        return self.n if self.full_only else self.slide

    def fires(self, rows: Numbers) -> Flags:
        """Return whether a window ends with the row of a key that has a number; the first row has the number 1."""
        fires: Flags = (rows >= self._first) & ((rows - self._first) % self.slide == 0)
        return fires

    def begins(self, ends: Numbers) -> Numbers:
        """Return in which pane of their key windows begin that end with rows of some numbers."""
        return np.maximum(ends - self.n, 0) // self.pane

    def needed(self, rows: Numbers) -> Numbers:
        """Return which pane is the first that windows to come are made of, where so many rows of a key have come."""
        behind = self._first + ((rows - self._first) // self.slide + 1) * self.slide
        return self.begins(np.where(rows < self._first, self._first, behind))

    def counted(self, rows: Numbers) -> Numbers:
        """Return what stands for so many rows of a key: where no window reaches over an end of the slide, those behind the last."""
        return rows % self.slide if self.slide >= self.n else rows


@dataclass(frozen=True, slots=True)
class _Panes:
    """The panes of some keys, key after key and in order: those of state, and behind them what rows that came add up to.

    Args:
        groups: the parts of each pane: of state, and from the number `held` on of rows.
        held: how many parts are of state.
        numbers: of each pane among those of its key, counted from its first row.
        firsts: where the panes of each key begin.
    """

    groups: Groups
    held: int
    numbers: Numbers
    firsts: Numbers

    @classmethod
    def of(cls, kept_of: Numbers, kept: Numbers, came_of: Numbers, came: Numbers, keys: int) -> _Panes:
        """Return panes.

        Args:
            kept_of: the key of each part of state; `kept` the number of its pane.
            came_of: the key of each part of rows; `came` the number of its pane.
            keys: how many there are.
        """
        key_of, numbers = np.concatenate([kept_of, came_of]), np.concatenate([kept, came])
        order = np.argsort(key_of, kind="stable")
        key_of, numbers = key_of[order], numbers[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (key_of[1:] != key_of[:-1]) | (numbers[1:] != numbers[:-1])
        starts = np.flatnonzero(begins)
        return cls(Groups(order, starts), len(kept), numbers[starts], np.searchsorted(key_of[starts], np.arange(keys)))

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def changed(self) -> Flags:
        """Which panes have rows that came; the last part of a pane tells it."""
        changed: Flags = self.groups.order[self.groups.starts + self.groups.counts - 1] >= self.held
        return changed

    def at(self, keys: Numbers, numbers: Numbers) -> Numbers:
        """Return the places of panes of keys that have some numbers."""
        firsts = self.firsts[keys]
        places: Numbers = firsts + numbers - self.numbers[firsts]
        return places


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows that fire.

    Args:
        keys: the number of the key of each.
        starts: the place of its first pane among panes, or among what panes add up to.
        counts: how many panes it has.
        filled_by: the row that filled it.
    """

    keys: Numbers
    starts: Numbers
    counts: Numbers
    filled_by: Numbers

    @classmethod
    def joined(cls, parts: Sequence[_Windows]) -> _Windows:
        """Return the windows of all parts."""
        return cls(
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.filled_by for part in parts]),
        )

    def pieces(self) -> Iterator[_Windows]:
        """Yield the windows in the order of the rows that filled them, so many at a time that their panes are not too many."""
        order = np.argsort(self.filled_by)
        ends = np.cumsum(self.counts[order])
        start = 0
        while start < len(order):
            before = int(ends[start - 1]) if start else 0
            stop = max(int(np.searchsorted(ends, before + _AT_ONCE, "right")), start + 1)
            some = order[start:stop]
            yield _Windows(self.keys[some], self.starts[some], self.counts[some], self.filled_by[some])
            start = stop

    def cover(self, panes: int) -> Flags:
        """Return which of so many panes are in a window."""
        change = np.zeros(panes + 1, np.int64)
        np.add.at(change, self.starts, 1)
        np.add.at(change, self.starts + self.counts, -1)
        covered: Flags = np.cumsum(change[:-1]) > 0
        return covered


class ColumnSlidingCountOperator(ColumnOperator):
    """Sliding windows of a number of rows."""

    def __init__(self, counts: ColumnSlidingCounts) -> None:
        super().__init__()
        self._of, self._aggregates = counts, counts.aggregates
        self._table = KeyTable(CONTENTS, "sliding counts", holds=counts.described)

    def bind(self, group: KeyGroup) -> None:
        self._table.declare(group)

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        keys = RowsByKey.of(rows, self._of.keys)
        size = max(_AT_ONCE * self._of.pane // self._of.n, 1)
        windows: list[_Windows] = []
        sums: list[list[pa.Array]] = []
        before = 0
        for first in range(0, len(keys), size):
            full, added = self._add(rows, keys.slice(first, min(first + size, len(keys))))
            windows.append(replace(full, keys=full.keys + first, starts=full.starts + before))
            sums.append(added)
            before += len(added[0])
        if windows:
            every = [joined(column) for column in zip(*sums, strict=True)]
            yield from self._fire(_Windows.joined(windows), every, keys)

    def _fire(self, windows: _Windows, sums: Sequence[pa.Array], keys: RowsByKey) -> Iterator[ColumnChunk]:
        """Yield the results of windows in the order of the rows that filled them; `sums`: what panes add up to."""
        output = self._of.output
        for some in windows.pieces():
            panes = Groups(ranges(some.starts, some.counts), np.cumsum(some.counts) - some.counts)
            held = self._aggregates.merge(sums, panes)
            results = self._aggregates.results(held, [result.type for result in output.results])
            yield from output.chunks(keys.keys.take(indices_of(some.keys)), results)

    def _add(self, rows: pa.RecordBatch, keys: RowsByKey) -> tuple[_Windows, list[pa.Array]]:
        """Add rows of some keys to what state has of these; return the windows that they fill, and what panes of those add up to."""
        of = self._of
        places, values = self._table.look_up(self.rows, keys)
        kept = KeptPanes.of(values)
        before = np.zeros(len(keys), np.int64)
        before[places] = kept.rows
        groups = keys.groups
        key_of_row = np.repeat(np.arange(len(keys)), groups.counts)
        number = np.arange(1, len(key_of_row) + 1) - groups.starts[key_of_row] + before[key_of_row]
        came = (number - 1) % of.pane == 0
        came[groups.starts] = True
        parts = Groups(groups.order, np.flatnonzero(came))
        # The panes that state has of a key are the last ones.
        last = np.repeat((kept.rows - 1) // of.pane, kept.counts)
        from_last = np.repeat(np.cumsum(kept.counts), kept.counts) - 1 - np.arange(len(last))
        panes = _Panes.of(
            np.repeat(places, kept.counts),
            last - from_last,
            key_of_row[parts.starts],
            (number[parts.starts] - 1) // of.pane,
            len(keys),
        )
        windows = self._full(panes, key_of_row, number, groups.order)
        wanted = panes.changed | windows.cover(len(panes))
        sums = self._sums(panes, wanted, kept, rows, parts)
        self._keep(keys, places, before + groups.counts, panes, kept, sums, wanted)
        return replace(windows, starts=(np.cumsum(wanted) - 1)[windows.starts]), sums

    def _full(self, panes: _Panes, key_of_row: Numbers, number: Numbers, row_of: Numbers) -> _Windows:
        """Return the windows that rows fill.

        Args:
            number: of each row among those of its key; `row_of`: its place among all.
        """
        last = np.flatnonzero(self._of.fires(number))
        keys, ends = key_of_row[last], number[last]
        first = self._of.begins(ends)
        return _Windows(keys, panes.at(keys, first), ends // self._of.pane - first, row_of[last])

    def _sums(
        self, panes: _Panes, wanted: Flags, kept: KeptPanes, rows: pa.RecordBatch, parts: Groups
    ) -> list[pa.Array]:
        """Return what the rows of each wanted pane add up to; no other pane of state is read.

        Args:
            parts: the rows of each part that came.
        """
        order = panes.groups.order
        of_wanted = np.repeat(wanted, panes.groups.counts)
        chosen = np.zeros(len(order), np.bool_)
        chosen[order[of_wanted]] = True
        held = self._aggregates.decode(kept.panes.take(indices_of(np.flatnonzero(chosen[: panes.held]))))
        columns = [rows.column(name) for name in self._of.arguments]
        if len(parts.order) < rows.num_rows:  # aggregates are given no other rows than those of groups
            columns = [column.take(indices_of(parts.order)) for column in columns]
            parts = Groups(np.arange(len(parts.order)), parts.starts)
        added = self._aggregates.partial(columns, parts)
        place = np.cumsum(chosen) - 1
        counts = panes.groups.counts[wanted]
        both = [joined([one, other]) for one, other in zip(held, added, strict=True)]
        return self._aggregates.merge(both, Groups(place[order[of_wanted]], np.cumsum(counts) - counts))

    def _keep(
        self,
        keys: RowsByKey,
        places: Numbers,
        rows: Numbers,
        panes: _Panes,
        kept: KeptPanes,
        sums: Sequence[pa.Array],
        wanted: Flags,
    ) -> None:
        """Put the panes that windows to come are made of, and remove what is as it was before the first row.

        Args:
            places: of the keys that state has something of.
            rows: how many rows of each key have come.
        """
        of = self._of
        key_of = np.repeat(np.arange(len(keys)), np.diff(panes.firsts, append=len(panes)))
        stays = panes.numbers >= of.needed(rows)[key_of]
        written = stays & panes.changed
        new = indices_of((np.cumsum(wanted) - 1)[written])
        every = joined([kept.panes, self._aggregates.encode([column.take(new) for column in sums])])
        source = np.where(written, len(kept.panes) + np.cumsum(written) - 1, panes.groups.firsts)
        counts = np.bincount(key_of[stays], minlength=len(keys)).astype(np.int64)
        rows = of.counted(rows)
        is_there = (rows > 0) | (counts > 0)
        values = KeptPanes(rows, counts, every.take(indices_of(source[stays]))).packed()
        known = is_there.copy()
        known[places] = True
        changed = np.flatnonzero(known)
        there = column_of(changed, pa.int64(), is_there[changed])
        self._table.put(self.group, keys.hashes[changed], keys.keys.take(indices_of(changed)), values.take(there))

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        self._table.store(self.rows)
