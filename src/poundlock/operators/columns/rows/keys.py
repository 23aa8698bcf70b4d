"""The key of rows, and their rows by key: in the order of hashes, as state has them, and of a key in the order they came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, indices_of, numbers_in, valid_in
from poundlock.operators.columns.encoding import encode_key_columns
from poundlock.operators.columns.groups import Groups, Hashes, grouped

HashKeys = Callable[[Sequence[pa.Array]], Hashes]
NO_TIME = (1 << 63) - 1
"""Stands for the event time of a row that has none."""
_LEAST_NUMBERED = 1 << 14  # rows; fewer are not worth a first look
_LOOKED_AT = 1 << 13  # rows; with more than half as many keys, numbering costs what it saves
PER_MS = {"ms": 1, "us": 1000, "ns": 1_000_000}


@dataclass(frozen=True)
class RowKeys:
    """What the key of a row is. Picklable.

    Args:
        columns: of the key; none where all rows have one.
        hash_keys: the hash of keys, by which rows were sent.
    """

    columns: tuple[str, ...]
    hash_keys: HashKeys

    def hashed(self, rows: pa.RecordBatch) -> tuple[Hashes, pa.Array | None]:
        """Return the hash of each row's key, and what tells apart keys of one hash; None where equal hashes are equal keys."""
        columns = [rows.column(name) for name in self.columns]
        if not columns:
            return np.zeros(rows.num_rows, np.uint64), None
        hashes, first = self.hash_keys(columns), columns[0]
        if len(columns) == 1 and not first.null_count:
            if pa.types.is_integer(first.type):
                return hashes, None  # the hash of a whole number is one of a kind
            if pa.types.is_string(first.type) or pa.types.is_binary(first.type):
                return hashes, first
        return hashes, encode_key_columns(columns)

    def numbered(self, rows: pa.RecordBatch) -> pa.DictionaryArray | None:
        """Return the key of each row by its number among the different ones; None where those may be many, or keys are no texts."""
        if len(self.columns) != 1 or rows.num_rows < _LEAST_NUMBERED:
            return None
        column = rows.column(self.columns[0])
        if column.null_count or not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
            return None
        if len(column.slice(0, _LOOKED_AT).dictionary_encode().dictionary) > _LOOKED_AT // 2:
            return None
        return column.dictionary_encode()

    def encoded(self, rows: pa.RecordBatch, places: Numbers) -> pa.Array:
        """Return the bytes of the keys of some rows."""
        indices = indices_of(places)
        columns = [rows.column(name).take(indices) for name in self.columns]
        return encode_key_columns(columns or [pa.nulls(len(places))])


@dataclass(frozen=True, slots=True)
class RowsByKey:
    """The rows of a checkpoint by key.

    Args:
        groups: the rows of each key.
        hashes: of each key, ascending.
        keys: the bytes of each, large_binary.
    """

    groups: Groups
    hashes: Hashes
    keys: pa.Array

    @classmethod
    def of(cls, rows: pa.RecordBatch, keys: RowKeys) -> RowsByKey:
        """Return rows by key."""
        hashes, distinct = keys.hashed(rows)
        groups = grouped(hashes, distinct)
        firsts = groups.firsts
        return cls(groups, hashes[firsts], keys.encoded(rows, firsts))

    def __len__(self) -> int:
        return len(self.groups)

    def slice(self, start: int, stop: int) -> RowsByKey:
        """Return some of the keys, from one number up to another, with their rows."""
        first, last = np.append(self.groups.starts, len(self.groups.order))[[start, stop]].tolist()
        groups = Groups(self.groups.order[first:last], self.groups.starts[start:stop] - first)
        return RowsByKey(groups, self.hashes[start:stop], self.keys.slice(start, stop - start))


def behind(groups: Groups, places: Numbers) -> Groups:
    """Return groups with something held before some of them.

    Args:
        groups: of rows.
        places: which of them, ascending; what is held stands before all rows, one each.
    """
    has = np.zeros(len(groups), np.int64)
    has[places] = 1
    counts = groups.counts + has
    starts = np.cumsum(counts) - counts
    order = np.empty(int(counts.sum()), np.int64)
    first = starts[places]
    order[first] = np.arange(len(places))
    rest = np.ones(len(order), np.bool_)
    rest[first] = False
    order[rest] = groups.order + len(places)
    return Groups(order, starts)


def times_in(column: pa.Array) -> Numbers:
    """Return timestamps as ms, rounded down; NO_TIME where there is none."""
    unit, valid = column.type.unit, valid_in(column)
    times: Numbers = numbers_in(column) * 1000 if unit == "s" else numbers_in(column) // PER_MS[unit]
    return times if valid is None else np.where(valid, times, NO_TIME)
