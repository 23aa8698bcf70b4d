"""Rows of windows on their way to the tasks that have their keys: added up first, by split, so that few travel and none one by one.

Rows of a split are added up in stretches that end behind a multiple of a set number of rows, counted from its first one. So what a
stretch comes to depends neither on the batches its rows were read in nor on the task that read them, as long as a task reads one
split after the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from poundlock.operators.columns.partials import Partials, RowAggregation
from poundlock.operators.columns.sent import SentPartials
from poundlock.operators.pieces import content_bytes
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange.blocks import DELIVERY_BYTES, Block, ExchangeInput, KeyHashing, encoded

PARTIAL_SIDE = 1
"""The side of blocks of partials; rows that come one by one are of side 0."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """How many rows of a split are added up at once. Sorting more at a time is slower, and fewer add up less.

    Args:
        unit: a stretch ends behind a multiple of so many rows.
        rows: at most so many; a multiple of the unit.
        bytes: or when so much is waiting.
        most_bytes: a stretch ends before a row with which it would have more, wherever that is; a column of texts ends at 2 GB.
    """

    unit: int = 1 << 15
    rows: int = 1 << 19
    bytes: int = 64 << 20
    most_bytes: int = 256 << 20


@dataclass
class _Open:
    """Rows of one split that wait."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


@dataclass
class PartialWriter:
    """Adds up the rows of one input in one task, and makes blocks of that.

    Args:
        clock: the checkpoint's, ms.
        parallelism: how many tasks share the key groups.
    """

    to: ExchangeInput
    partial: RowAggregation
    hashing: KeyHashing
    clock: int
    parallelism: int = 1
    stretch: Stretch = Stretch()
    _open: dict[tuple[str, int], _Open] = field(default_factory=dict, init=False)
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
            waiting = self._open.pop(where, None) or _Open()
            self._open[where] = waiting  # the split that was read last is the last
            some = rows.slice(0, self.stretch.unit - waiting.rows % self.stretch.unit)
            fitting = _fitting(some, self.stretch.most_bytes - waiting.bytes)
            if not fitting and waiting.rows:
                yield from self._flush(where)
                continue
            some = some.slice(0, max(fitting, 1))
            rows = rows.slice(some.num_rows)
            waiting.batches.append(some)
            waiting.rows += some.num_rows
            waiting.bytes += content_bytes(some.columns)
            whole = waiting.rows % self.stretch.unit == 0
            if whole and (waiting.rows >= self.stretch.rows or waiting.bytes >= self.stretch.bytes):
                yield from self._flush(where)
        if len(self._open) > 1 and sum(each.bytes for each in self._open.values()) >= self.stretch.bytes:
            yield from self._flush(next(iter(self._open)))

    def finish(self) -> Iterator[Block]:
        """Yield the blocks of what is left."""
        for where in list(self._open):
            yield from self._flush(where)

    def _flush(self, where: tuple[str, int]) -> Iterator[Block]:
        (rows,) = pa.Table.from_batches(self._open.pop(where).batches).combine_chunks().to_batches()
        partials = self.partial.of(rows, self.partial.times(rows, self.clock))
        index = np.array([0, 0, 0], np.int64).tobytes()
        first = last = self._parts.get(where, 0)
        for target, own in self._by_target(partials):
            for part, piece in enumerate(_pieces(SentPartials.of(own)), first):
                last = max(last, part)
                payload = encoded(piece)
                yield Block(self.to.operator, PARTIAL_SIDE, target, part, (where,), index, payload, piece.num_rows)
        self._parts[where] = last + 1

    def _by_target(self, partials: Partials) -> Iterator[tuple[int, Partials]]:
        if self.parallelism == 1:
            yield 0, partials
            return
        groups = self.hashing.groups_of(partials.hashes, self.to.groups(self.parallelism)).astype(np.int64)
        targets = groups * self.parallelism // self.to.groups(self.parallelism)
        order = np.argsort(targets.astype(np.uint16), kind="stable")
        ordered = targets[order]
        for target in np.unique(ordered).tolist():
            first, stop = np.searchsorted(ordered, [target, target + 1]).tolist()
            yield target, partials.take(order[first:stop])


def _pieces(partials: SentPartials) -> Iterator[pa.RecordBatch]:
    """Yield the partials of a stretch in their order, no more at a time than is sent at once."""
    batch = partials.batch
    count = -(-batch.nbytes // DELIVERY_BYTES) or 1
    rows = -(-batch.num_rows // count)
    yield from (batch.slice(first, rows) for first in range(0, batch.num_rows, max(rows, 1)))


def partials_of(blocks: Sequence[Block]) -> list[SentPartials]:
    """Return the partials of one input in the order source, split, stretch, out of its blocks in any order."""
    return [SentPartials(block.batch()) for block in ordered_blocks(blocks)]


def ordered_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks of partials of one input that have some, in the order source, split, stretch."""
    return sorted((block for block in blocks if block.count), key=lambda block: (*block.places[0], block.part))


def _fitting(rows: pa.RecordBatch, most: int) -> int:
    """Return how many of the first rows have at most so many bytes together."""
    if content_bytes(rows.columns) <= most:
        return int(rows.num_rows)
    return bisect_right(
        range(1, rows.num_rows + 1), most, key=lambda count: content_bytes(rows.slice(0, count).columns)
    )
