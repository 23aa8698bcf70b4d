"""Runs into one: of each entry the newest, deleted and expired ones left out where nothing older is below them.

Which runs are merged follows their sizes, as in RocksDB's universal compaction: every row is rewritten a few times at most,
and a checkpoint rewrites no more than its budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import indices_of, ranks_of
from poundlock.state.runs.columns import NO_TIME, Rows, concat, is_valid


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """When runs are merged."""

    fan_in: int = 8  # how many runs of similar size become one
    # about how many bytes of runs a task rewrites at one checkpoint; at least one key group is, if any is due
    budget: int = 64 << 20
    # and no less than so many times what it adds: a row is rewritten once for each power of `fan_in` that state is larger than what a
    # checkpoint adds, so that with less the runs of some groups would become ever more
    rewrites: int = 4


def runs_to_merge(sizes: Sequence[int], added: int, fan_in: int) -> int:
    """Return how many of the newest runs are to be merged with what is added; 0: none.

    Args:
        sizes: of the runs in bytes, oldest first.
    """
    if not sizes:
        return 0
    if sum(sizes[1:]) + added >= sizes[0] and len(sizes) >= fan_in - 1:
        return len(sizes)  # what is newer is as much as the oldest: half of it may be of no use any more
    start, total = len(sizes), max(added, 1)
    while True:
        at = start
        while at and sizes[at - 1] < fan_in * total:
            at -= 1
        if start - at + 1 < fan_in:
            return len(sizes) - start
        total += sum(sizes[at:start])
        start = at


def in_chunks(parts: Sequence[Rows], *, by_time: bool = False, limit: int) -> Iterator[list[Rows]]:
    """Yield the rows of several parts in chunks, the least first; in each the parts are in their order, empty ones left out.

    Args:
        parts: each sorted by hash, or by time.
        by_time: whether by time. Rows of one hash, or time, are never in two chunks.
        limit: how many bytes a chunk has at most, unless all of it is of one hash or time.
    """
    stack = [[part for part in parts if len(part)]]
    while stack:
        pieces = stack.pop()
        if not pieces:
            continue
        if sum(piece.nbytes for piece in pieces) > limit:
            orders: list[Any] = [piece.times_or_none() if by_time else piece.hashes for piece in pieces]
            longest = max(range(len(pieces)), key=lambda i: pieces[i].nbytes)
            middle = orders[longest][len(pieces[longest]) // 2]
            # If nothing is less than the middle, it is the least, and its rows are a chunk of their own.
            side: Literal["left", "right"] = "left" if any(order[0] < middle for order in orders) else "right"
            ends = [int(np.searchsorted(order, middle, side)) for order in orders]
            upper = [piece.slice(end, len(piece)) for piece, end in zip(pieces, ends, strict=True) if end < len(piece)]
            if upper:
                lower = [piece.slice(0, end) for piece, end in zip(pieces, ends, strict=True) if end]
                stack += [upper, lower]
                continue
        yield pieces


def merge_rows(parts: Sequence[Rows], *, drop_deleted: bool) -> Rows:
    """Return the true entries of several parts, sorted by hash, key and subkey.

    Args:
        parts: newest first; within one part an entry is there once.
        drop_deleted: whether entries that were deleted are left out; true where there is nothing older.
    """
    rows = concat(parts)
    order = np.argsort(rows.hashes, kind="stable")
    hashes = rows.hashes[order]
    same = hashes[1:] == hashes[:-1]
    if same.any():
        order = _newest_of_each(rows, order, same)
    merged = rows.take(order)
    return merged.without_deleted() if drop_deleted else merged


def _newest_of_each(rows: Rows, order: npt.NDArray[np.int64], same: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the order without the entries that a newer part has too.

    Args:
        order: by hash; of equal ones the newest first.
        same: whether each hash in order is that of the row before, from the second on.
    """
    crowded = np.zeros(len(order), np.bool_)
    crowded[1:] |= same
    crowded[:-1] |= same
    places = order[crowded]
    indices = indices_of(places)
    keys = ranks_of(rows.keys.take(indices))[0]
    subkeys = None if rows.subkeys is None else ranks_of(rows.subkeys.take(indices))[0]
    hashes, age = rows.hashes[places], np.arange(len(places))
    columns = (age, keys, hashes) if subkeys is None else (age, subkeys, keys, hashes)
    inner = np.lexsort(columns)
    new = np.ones(len(inner), np.bool_)
    new[1:] = hashes[inner][1:] != hashes[inner][:-1]
    for column in columns[1:-1]:
        new[1:] |= column[inner][1:] != column[inner][:-1]
    kept = places[inner][new]
    # Crowded rows stay between the same neighbours, so sorting by hash once more only puts the two kinds together.
    whole = np.concatenate([order[~crowded], kept])
    return whole[np.argsort(rows.hashes[whole], kind="stable")]


def expire(rows: Rows, limit: int) -> Rows:
    """Return rows with those deleted that were last touched at or before a time in ms; rows without a time stay."""
    if rows.times is None:
        return rows
    over = (rows.times != NO_TIME) & (rows.times <= limit)
    if not over.any():
        return rows
    return rows.with_values(_with_nulls(rows.values, is_valid(rows.values) & ~over))


def _with_nulls(values: pa.Array, valid: npt.NDArray[np.bool_]) -> pa.Array:
    # A place that is null takes no bytes: what expired is not written again.
    indices = pa.Array.from_buffers(
        pa.int64(),
        len(valid),
        [pa.py_buffer(np.packbits(valid, bitorder="little")), pa.py_buffer(np.arange(len(valid)))],
    )
    return values.take(indices)
