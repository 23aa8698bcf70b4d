"""Windows of a number of rows with SQL aggregates, by columns: the rows of a key are cut where its windows are full.

Of a key that has an open window there is the number of its rows so far and what they add up to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, column_of, indices_of, joined, numbers_in
from poundlock.operators.columns.encoding import decode_accumulators, encode_accumulators
from poundlock.operators.columns.groups import Groups
from poundlock.operators.columns.operator import ColumnChunk, ColumnOperator, ResultColumns
from poundlock.operators.columns.rows.keys import RowKeys, RowsByKey, behind
from poundlock.operators.columns.rows.table import KeyTable
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.windows.base import CONTENTS

_COUNT = pa.int64()


@dataclass(frozen=True)
class ColumnCounts:
    """Windows of a number of rows, and their rows as columns. Picklable.

    Args:
        n: how many rows a window has.
        keys: of a row.
        arguments: the columns that aggregates are of.
        output: the columns of results.
    """

    n: int
    keys: RowKeys
    arguments: tuple[str, ...]
    aggregates: ColumnAggregates
    output: ResultColumns

    def operator(self) -> ColumnCountOperator:
        """Return a new operator."""
        return ColumnCountOperator(self)


class ColumnCountOperator(ColumnOperator):
    """Tumbling windows of a number of rows."""

    def __init__(self, counts: ColumnCounts) -> None:
        super().__init__()
        self._of, self._aggregates = counts, counts.aggregates
        self._table = KeyTable(CONTENTS, "counts", holds=counts.aggregates.described)

    def bind(self, group: KeyGroup) -> None:
        self._table.declare(group)

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        keys = RowsByKey.of(rows, self._of.keys)
        places, values = self._table.look_up(self.rows, keys)
        before, *held = decode_accumulators(values, [_COUNT, *self._aggregates.types])
        open_rows = np.zeros(len(keys), np.int64)
        open_rows[places] = numbers_in(before)
        windows, key_of = self._cut(keys.groups, open_rows)
        firsts = np.searchsorted(key_of, np.arange(len(keys)))
        counts = windows.counts
        counts[firsts] += open_rows
        added = self._aggregates.partial([rows.column(name) for name in self._of.arguments], windows)
        each = np.arange(len(windows))
        parts = [joined([one, other]) for one, other in zip(held, added, strict=True)]
        sums = self._aggregates.merge(parts, behind(Groups(each, each), firsts[places]))
        full = counts >= self._of.n
        self._keep(keys, counts, sums, np.append(firsts[1:], len(windows)) - 1, open_rows)
        yield from self._fire(keys, key_of, windows, sums, np.flatnonzero(full))

    def _cut(self, groups: Groups, open_rows: Numbers) -> tuple[Groups, Numbers]:
        """Return the rows of each window, and the number of its key.

        Args:
            open_rows: how many rows the open window of each key has.
        """
        key_of_row = np.repeat(np.arange(len(groups)), groups.counts)
        held = np.minimum(open_rows, self._of.n - 1)  # a window had room for more, if the job was changed
        number = np.arange(len(groups.order)) - groups.starts[key_of_row] + held[key_of_row]
        begins = number % self._of.n == 0
        begins[groups.starts] = True
        starts = np.flatnonzero(begins)
        return Groups(groups.order, starts), key_of_row[starts]

    def _keep(self, keys: RowsByKey, counts: Numbers, sums: list[pa.Array], lasts: Numbers, open_rows: Numbers) -> None:
        """Put the windows that stay open, and remove those that are full.

        Args:
            lasts: the last window of each key.
            open_rows: how many rows the open window of each key had.
        """
        is_open = counts[lasts] < self._of.n
        changed = np.flatnonzero(is_open | (open_rows > 0))
        indices = indices_of(lasts[changed])
        kept = [column_of(counts, _COUNT).take(indices), *(column.take(indices) for column in sums)]
        there = column_of(np.arange(len(changed)), pa.int64(), is_open[changed])
        values = encode_accumulators(kept).take(there)
        self._table.put(self.group, keys.hashes[changed], keys.keys.take(indices_of(changed)), values)

    def _fire(
        self, keys: RowsByKey, key_of: Numbers, windows: Groups, sums: list[pa.Array], full: Numbers
    ) -> Iterator[ColumnChunk]:
        """Yield the results of windows in the order of the rows that filled them."""
        output, filled_by = self._of.output, windows.order[windows.starts + windows.counts - 1]
        full = full[np.argsort(filled_by[full])]
        own = [column.take(indices_of(full)) for column in sums]
        results = self._aggregates.results(own, [result.type for result in output.results])
        yield from output.chunks(keys.keys.take(indices_of(key_of[full])), results)

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        self._table.store(self.rows)
