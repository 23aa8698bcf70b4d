"""The rows of one operator input in the task that received them: by key group, in each in the order source, split, position.

The order depends on where rows were read and on nothing else: not on which tasks sent them, in how many blocks, or when.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.tasks.columns import int_column, numbers_of
from poundlock.tasks.exchange.blocks import Block


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The rows of one key group.

    Args:
        group: its number; EVERYWHERE of broadcast rows.
        rows: its rows.
        hashes: the hash of each row's key; None where the input has no key.
    """

    group: int
    rows: pa.RecordBatch
    hashes: npt.NDArray[np.uint64] | None


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """All rows of one input, group after group.

    Args:
        rows: as one batch.
        hashes: the hash of each row's key; None where the input has no key.
        groups: the key groups that have rows, ascending.
        starts: the first row of each, and the number of rows behind the last.
    """

    rows: pa.RecordBatch
    hashes: npt.NDArray[np.uint64] | None
    groups: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]

    def __iter__(self) -> Iterator[GroupRows]:
        """Yield the groups in order; their rows are slices and not copied."""
        for group, start, stop in zip(
            self.groups.tolist(), self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True
        ):
            hashes = None if self.hashes is None else self.hashes[start:stop]
            yield GroupRows(group, self.rows.slice(start, stop - start), hashes)


def inputs_of(blocks: Iterable[Block]) -> dict[tuple[str, int], list[Block]]:
    """Return the blocks by operator and side."""
    inputs: dict[tuple[str, int], list[Block]] = {}
    for block in blocks:
        inputs.setdefault((block.operator, block.side), []).append(block)
    return inputs


def grouped(blocks: Sequence[Block]) -> GroupedRows | None:
    """Return the rows of one input, out of all its blocks in any order; None if there are none.

    One block whose rows are in order already is not copied.
    """
    blocks = [block for block in blocks if block.count]
    if not blocks:
        return None
    # What a name of a place is in one block it need not be in another, so they are ranked together.
    ranks = {each: rank for rank, each in enumerate(sorted({(*p, b.part) for b in blocks for p in b.places}))}
    groups, places, starts, counts = [], [], [], []
    first = 0
    for block in blocks:
        runs = block.runs()
        rank = np.array([ranks[*place, block.part] for place in block.places], np.int64)
        groups.append(runs[:, 0])
        places.append(rank[runs[:, 1]])
        starts.append(runs[:, 2] + first)
        counts.append(np.diff(runs[:, 2], append=block.count))
        first += block.count
    group, start, count = np.concatenate(groups), np.concatenate(starts), np.concatenate(counts)
    order = np.lexsort((start, np.concatenate(places), group))
    rows = _joined(blocks)
    if (order[1:] < order[:-1]).any():
        rows = rows.take(int_column(_rows_of(start[order], count[order]), pa.int64()))
    return _grouped(rows, group[order], count[order])


def _grouped(rows: pa.RecordBatch, group: npt.NDArray[np.int64], count: npt.NDArray[np.int64]) -> GroupedRows:
    """Return rows that are in order, given the runs that they are in."""
    names, hidden = range(rows.num_columns - 1), rows.column(rows.num_columns - 1)
    hashes = None if pa.types.is_null(hidden.type) else numbers_of(hidden)[0]
    new = np.flatnonzero(np.diff(group, prepend=group[0] - 1))
    starts = np.append((np.cumsum(count) - count)[new], rows.num_rows)
    return GroupedRows(rows.select(list(names)), hashes, group[new], starts)


def _rows_of(starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the numbers of the rows of runs, run after run."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def _joined(blocks: Sequence[Block]) -> pa.RecordBatch:
    if len(blocks) == 1:
        return blocks[0].batch()
    (joined,) = pa.Table.from_batches([block.batch() for block in blocks]).combine_chunks().to_batches()
    return joined
