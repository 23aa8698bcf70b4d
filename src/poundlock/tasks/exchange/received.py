"""The rows of one input of an operator in the task that received them: out of blocks in any order, in one order that depends on where they
were read and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import ranges
from poundlock.tasks.columns import int_column
from poundlock.tasks.exchange.blocks import RUN_INDEX_BYTES, Block, one_batch

_AT_ONCE = 128 << 20  # bytes of rows that are put in order together
_PIECE = 2 << 20  # bytes of rows that are one batch where any will do, and they lie in runs that are worth a look each
_RUN = 64  # so many rows


def inputs_of(blocks: Iterable[Block]) -> dict[tuple[str, int], list[Block]]:
    """Return the blocks by operator and side."""
    inputs: dict[tuple[str, int], list[Block]] = {}
    for block in blocks:
        inputs.setdefault((block.operator, block.side), []).append(block)
    return inputs


def in_order(blocks: Iterable[Block]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of one input, and of which source they are, in the order source, split, position, out of its blocks in any order, without a copy."""
    runs = []
    for block in blocks:
        starts = block.runs()[:, 1:].tolist()
        stops = [*(start for _, start in starts[1:]), block.count]
        runs += [
            (block.places[place], block.part, start, stop, block)
            for (place, start), stop in zip(starts, stops, strict=True)
        ]
    for (source, _), _, start, stop, block in sorted(runs, key=lambda run: run[:3]):
        rows = block.batch().slice(start, stop - start)
        yield source, rows.select(list(range(rows.num_columns - 1)))


def grouped(blocks: Sequence[Block]) -> pa.RecordBatch | None:
    """Return the rows of one input, out of all its blocks in any order; None if there are none.

    They come by key group, in each in the order source, split, position: that depends on where rows were read and on nothing
    else. One block whose rows are in order already is not copied.
    """
    blocks = [block for block in blocks if block.count]
    if not blocks:
        return None
    runs = _ordered_runs(blocks)
    firsts = np.cumsum([0, *(block.count for block in blocks)])
    starts, counts = firsts[runs[:, 0]] + runs[:, 1], runs[:, 2]
    rows = one_batch([block.batch() for block in blocks])
    if (starts[1:] < starts[:-1]).any():
        rows = rows.take(int_column(ranges(starts, counts), pa.int64()))
    return _visible([rows])


def grouped_batches(blocks: Sequence[Block]) -> Iterator[pa.RecordBatch]:
    """Yield what `grouped` returns, where that is much in pieces: a column of texts ends at 2 GB, and so would memory."""
    most = min(_PIECE, _AT_ONCE) if _has_long_runs(blocks) else _AT_ONCE
    yield from _in_pieces(blocks, most)


def _has_long_runs(blocks: Sequence[Block]) -> bool:
    """Return whether pieces that are put together of runs cost less than rows that are taken one by one."""
    runs = sum(len(block.index) for block in blocks) // RUN_INDEX_BYTES
    return runs * _RUN <= sum(block.count for block in blocks)


def grouped_pieces(blocks: Sequence[Block]) -> Iterator[pa.RecordBatch]:
    """Yield what `grouped` returns, where that is much in pieces that are as large as they may be."""
    yield from _in_pieces(blocks, _AT_ONCE)


def _in_pieces(blocks: Sequence[Block], most: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of blocks in one, or, where they have more than so many bytes, in pieces of about as many."""
    if sum(len(block.rows) for block in blocks) <= most:
        rows = grouped(blocks)
        if rows is not None:
            yield rows
        return
    yield from map(_visible, _of_one_size([block for block in blocks if block.count], most))


def _of_one_size(blocks: Sequence[Block], most: int) -> Iterator[Sequence[pa.RecordBatch]]:
    batches, widths = [block.batch() for block in blocks], _widths(blocks)
    waiting: list[pa.RecordBatch] = []
    size = 0
    for number, start, count in _ordered_runs(blocks)[:, :3].tolist():
        while count:
            some = min(count, max((most - size) // widths[number], 1))
            waiting.append(batches[number].slice(start, some))
            size, start, count = size + some * widths[number], start + some, count - some
            if size >= most or count:
                yield waiting
                waiting, size = [], 0
    if waiting:
        yield waiting


def _widths(blocks: Sequence[Block]) -> list[int]:
    """Return how many bytes a row of each block has, about."""
    return [max(len(block.rows) // block.count, 1) for block in blocks]


def _visible(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    rows = one_batch(batches)
    return rows.select(list(range(rows.num_columns - 1)))


def _ordered_runs(blocks: Sequence[Block]) -> npt.NDArray[np.int64]:
    """Return the runs of blocks by key group, source, split and position: number of the block, first row in it, how many rows, key group."""
    # What a name of a place is in one block it need not be in another, so they are ranked together.
    ranks = {each: rank for rank, each in enumerate(sorted({(*p, b.part) for b in blocks for p in b.places}))}
    places, pieces = [], []
    for number, block in enumerate(blocks):
        runs = block.runs()
        rank = np.array([ranks[*place, block.part] for place in block.places], np.int64)
        places.append(rank[runs[:, 1]])
        counts = np.diff(runs[:, 2], append=block.count)
        pieces.append(np.column_stack([np.full(len(runs), number), runs[:, 2], counts, runs[:, 0]]))
    every = np.concatenate(pieces)
    order = np.lexsort((every[:, 1], every[:, 0], np.concatenate(places), every[:, 3]))
    return every[order]
