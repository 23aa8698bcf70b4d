"""Rows of windows on their way to the tasks that have their keys: added up first, by split, so that few travel and none one by one.

Rows of a split are added up in stretches of a set number, counted from its first row, so what a stretch comes to does not depend on
the batches they were read in, nor on the task that read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from poundlock.operators.columns.partials import Partials, RowAggregation
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange.blocks import Block, ExchangeInput, KeyHashing, encoded

STRETCH = 1 << 19  # rows that are added up at once; sorting more at a time is slower, and fewer add up less
PARTIAL_SIDE = 1
"""The side of blocks of partials; rows that come one by one are of side 0."""


@dataclass
class PartialWriter:
    """Adds up the rows of one input in one task, and makes blocks of that.

    Args:
        clock: the checkpoint's, ms.
        stretch: rows of a split that are added up at once.
    """

    to: ExchangeInput
    partial: RowAggregation
    hashing: KeyHashing
    clock: int
    stretch: int = STRETCH
    _open: dict[tuple[str, int], list[pa.RecordBatch]] = field(default_factory=dict, init=False)
    _rows: dict[tuple[str, int], int] = field(default_factory=dict, init=False)
    _parts: dict[tuple[str, int], int] = field(default_factory=dict, init=False)

    def add(self, rows: pa.RecordBatch, place: SplitPlace) -> Iterator[Block]:
        """Take rows; yield the blocks that became full with them.

        Args:
            rows: the columns that the aggregation needs are among theirs.
            place: where they were read; the rows of a split come in its order.
        """
        where = place.source, place.sequence
        rows = rows.select(list(self.partial.columns))
        while rows.num_rows:
            waiting = self._rows.get(where, 0)
            fits = min(rows.num_rows, self.stretch - waiting)
            self._open.setdefault(where, []).append(rows.slice(0, fits))
            self._rows[where] = waiting + fits
            rows = rows.slice(fits)
            if self._rows[where] == self.stretch:
                yield from self._flush(where)

    def finish(self) -> Iterator[Block]:
        """Yield the blocks of what is left."""
        for where in list(self._open):
            yield from self._flush(where)

    def _flush(self, where: tuple[str, int]) -> Iterator[Block]:
        batches = self._open.pop(where)
        del self._rows[where]
        (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        partials = self.partial.of(rows, self.partial.times(rows, self.clock))
        part = self._parts[where] = self._parts.get(where, -1) + 1
        for target, own in self._by_target(partials):
            index = np.array([0, 0, 0], np.int64).tobytes()
            yield Block(self.to.operator, PARTIAL_SIDE, target, part, (where,), index, encoded(own.batch()), len(own))

    def _by_target(self, partials: Partials) -> Iterator[tuple[int, Partials]]:
        if self.to.parallelism == 1:
            yield 0, partials
            return
        groups = self.hashing.groups_of(partials.hashes, self.to.max_parallelism).astype(np.int64)
        targets = groups * self.to.parallelism // self.to.max_parallelism
        order = np.argsort(targets.astype(np.uint16), kind="stable")
        ordered = targets[order]
        for target in np.unique(ordered).tolist():
            first, stop = np.searchsorted(ordered, [target, target + 1]).tolist()
            yield target, partials.take(order[first:stop])


def partials_of(blocks: Sequence[Block]) -> list[Partials]:
    """Return the partials of one input in the order source, split, stretch, out of its blocks in any order."""
    ordered = sorted((block for block in blocks if block.count), key=lambda block: (*block.places[0], block.part))
    return [Partials.of_batch(block.batch()) for block in ordered]
