"""The order in which rows come to windows whose sums are merged in another one: numbers that ascend by source, split and position.

Rows are numbered where they are read, each split from 0. The task that receives them, added up or as they are, puts the splits of the
checkpoint one behind the other, and the checkpoint behind those before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, column_of, numbers_in
from poundlock.operators.columns.partials import PLACE
from poundlock.operators.columns.sent import SentPartials
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange.blocks import Block, encoded
from poundlock.tasks.exchange.partial_blocks import ordered_blocks

_Split = tuple[str, int]


@dataclass
class RowNumbers:
    """Numbers the rows of each split in one task."""

    _next: Counter[_Split] = field(default_factory=Counter, init=False)

    def numbered(self, rows: pa.RecordBatch, place: SplitPlace) -> pa.RecordBatch:
        """Return rows with their numbers.

        Args:
            place: where they were read; the rows of a split come in its order.
        """
        where = place.source, place.sequence
        numbers = np.arange(self._next[where], self._next[where] + rows.num_rows)
        self._next[where] += rows.num_rows
        return rows.append_column(PLACE, column_of(numbers, pa.int64()))


@dataclass(frozen=True)
class Arrivals:
    """What came to one operator in one task, in its order, see `with_places`.

    Args:
        partials: rows that were added up.
        rows: blocks of rows as they are.
        next: the place of the next row.
    """

    partials: Sequence[SentPartials]
    rows: Sequence[Block]
    next: int


def with_places(added: Sequence[Block], rows: Sequence[Block], places: Sequence[int], first: int) -> Arrivals:
    """Return what came with places in the order source, split, position instead of numbers within a split.

    Args:
        added: blocks of rows that were added up, in any order.
        rows: blocks of rows as they are, in any order.
        places: which of the accumulators' columns are numbers.
        first: the place of the first row.
    """
    counts: Counter[_Split] = Counter()
    parts = [(SentPartials(block.batch()), block.places[0]) for block in ordered_blocks(added)]
    for part, split in parts:
        counts[split] = max(counts[split], part.last_place(places) + 1)
    rows = [block for block in rows if block.count]
    for block in rows:
        lasts = np.maximum.reduceat(_numbers(block.batch()), block.runs()[:, 2])
        for run, last in zip(block.runs()[:, 1].tolist(), lasts.tolist(), strict=True):
            counts[block.places[run]] = max(counts[block.places[run]], last + 1)
    before: dict[_Split, int] = {}
    for split in sorted(counts):
        before[split] = first
        first += counts[split]
    moved = [part.moved(places, before[split]) for part, split in parts]
    return Arrivals(moved, [_moved(block, before) for block in rows], first)


def _numbers(batch: pa.RecordBatch) -> Numbers:
    return numbers_in(batch.column(PLACE))


def _moved(block: Block, before: dict[_Split, int]) -> Block:
    """Return a block of rows with places instead of numbers."""
    batch, runs = block.batch(), block.runs()
    of_run = np.array([before[block.places[place]] for place in runs[:, 1].tolist()], np.int64)
    numbers = _numbers(batch) + np.repeat(of_run, np.diff(runs[:, 2], append=block.count))
    at = batch.schema.get_field_index(PLACE)
    batch = batch.set_column(at, batch.schema.field(at), column_of(numbers, pa.int64()))
    return msgspec.structs.replace(block, rows=encoded(batch))
