"""The rows of a side of a regular join that a checkpoint is about, how many of each there were and are, and which are of equal keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, indices_of, joined, ranges
from poundlock.operators.columns.groups import Groups, Hashes, grouped
from poundlock.operators.columns.rows.map_table import MapEntries


@dataclass(frozen=True)
class RowChanges:
    """What a checkpoint changes of the rows of a side: the different ones, and how many of each are added.

    Args:
        hashes: of their keys.
        entries: the rows as the table has them, by hash.
        without: whether the key of each equals no other, since it is null.
    """

    hashes: Hashes
    entries: MapEntries
    added: Numbers
    without: Flags

    def __len__(self) -> int:
        return len(self.hashes)

    def where(self, flags: Flags) -> RowChanges:
        """Return some of them."""
        if flags.all():
            return self
        places = np.flatnonzero(flags)
        return RowChanges(self.hashes[places], self.entries.take(places), self.added[places], self.without[places])


@dataclass
class JoinedRows:
    """The rows of a side that a checkpoint is about, by key: those that changed, and those that others are matched with.

    Args:
        keys: the number of each one's key, ascending.
        entries: what they are, in the same order.
        before: how many of each there were; `after`: there are.
        matches: how many rows of the other side each matched.
        records: their columns.
    """

    keys: Numbers
    entries: MapEntries
    before: Numbers
    after: Numbers
    matches: Numbers
    records: pa.RecordBatch
    changed: Flags = field(init=False)
    """Whether there is another number of each than there was."""
    shown_before: Numbers = field(init=False)
    """How many of each there were; a row that was taken away before it came counts less than none."""
    shown: Numbers = field(init=False)
    """How many of each there are, likewise."""
    now: Numbers = field(init=False)
    """How many rows of the other side each matches."""

    def __post_init__(self) -> None:
        self.changed = self.before != self.after
        self.shown_before, self.shown = np.maximum(self.before, 0), np.maximum(self.after, 0)
        self.now = np.where(self.shown_before > 0, self.matches, 0)


def numbered(changes: Sequence[RowChanges]) -> tuple[list[Numbers], tuple[Hashes, pa.Array]]:
    """Return the number of the key of each changed row of each side, and hash and bytes of each key."""
    hashes = np.concatenate([each.hashes for each in changes])
    keys = joined([each.entries.keys for each in changes])
    groups: Groups = grouped(hashes, keys)
    numbers = np.empty(len(hashes), np.int64)
    numbers[groups.order] = np.repeat(np.arange(len(groups)), groups.counts)
    firsts = groups.firsts
    cuts = np.cumsum([len(each) for each in changes])[:-1]
    return np.split(numbers, cuts), (hashes[firsts], keys.take(indices_of(firsts)))


def stretches(left: JoinedRows, right: JoinedRows, keys: int, at_once: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of keys that have no more pairs than are looked at at once, unless one key has."""
    pairs = np.cumsum(np.bincount(left.keys, minlength=keys) * np.bincount(right.keys, minlength=keys))
    first = 0
    while first < keys:
        done = int(pairs[first - 1]) if first else 0
        stop = max(int(np.searchsorted(pairs, done + at_once, "right")), first + 1)
        yield first, min(stop, keys)
        first = stop


def pairs_of(left_keys: Numbers, right_keys: Numbers, lefts: Numbers, rights: Numbers) -> tuple[Numbers, Numbers]:
    """Return the pairs of rows of equal keys; the places of either ascend, and so do their keys."""
    own, others = left_keys[lefts], right_keys[rights]
    starts = np.searchsorted(others, own)
    counts = np.searchsorted(others, own, "right") - starts
    return np.repeat(lefts, counts), rights[ranges(starts, counts)]


def count_matches(rows: JoinedRows, others: JoinedRows, own: Numbers, matched: Numbers) -> None:
    """Count what the rows of a side match now, given all pairs of which either row changed."""
    new = rows.shown_before[own] == 0
    # Of a row that is new all pairs are there; of others what they matched before is known.
    more = np.where(new, others.shown[matched], others.shown[matched] - others.shown_before[matched])
    np.add.at(rows.now, own, more)
    np.maximum(rows.now, 0, out=rows.now)
