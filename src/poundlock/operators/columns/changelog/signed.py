"""Rows of a changelog as numbers: 1 for a row that is added, -1 for one that is taken away again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of, ends_in, flags_in, indices_of, joined, valid_in
from poundlock.operators.columns.groups import Groups
from poundlock.operators.process.deduplicate import ROW_KIND

_MINUS = ord("-")


def signs_of(rows: pa.RecordBatch) -> Numbers:
    """Return 1 or -1 for each row, by the kind of change; of rows without one all are 1."""
    if ROW_KIND not in rows.schema.names or not rows.num_rows:
        return np.ones(rows.num_rows, np.int64)
    kinds = rows.column(ROW_KIND).cast(pa.string())
    data = kinds.buffers()[2]
    first = np.frombuffer(b"+" if data is None or not data.size else data, np.uint8)
    starts = np.minimum(ends_in(kinds)[:-1], len(first) - 1)
    return np.where(first[starts] == _MINUS, -1, 1)


def not_taken_away(words: Numbers, signs: Numbers) -> Numbers:
    """Return the places of what stays, ascending: of equal words as many as are taken away go, those that came first.

    Args:
        signs: 1 or -1 of each.
    """
    _, which = np.unique(words, return_inverse=True)
    gone = np.bincount(which[signs < 0], minlength=int(which.max(initial=-1)) + 1)
    added = np.flatnonzero(signs > 0)
    order = added[np.argsort(which[added], kind="stable")]
    starts = np.searchsorted(which[order], np.arange(len(gone)))
    rank = np.arange(len(order)) - starts[which[order]]
    return np.sort(order[rank >= gone[which[order]]])


@dataclass(frozen=True, slots=True)
class SignedValues:
    """Values of rows by group, in the order they came within each.

    Args:
        values: of the rows; None where only their number counts.
        signs: 1 or -1 of each.
        of: the number of each one's group, ascending.
        groups: how many groups there are; some may have no row.
    """

    values: Any
    signs: Numbers
    of: Numbers
    groups: int

    def __len__(self) -> int:
        return len(self.signs)

    @property
    def retracts(self) -> bool:
        """Whether a row is taken away."""
        return bool((self.signs < 0).any())

    def where(self, flags: Flags) -> SignedValues:
        """Return some of the rows."""
        if flags.all():
            return self
        places = np.flatnonzero(flags)
        values = None if self.values is None else self.values.take(indices_of(places))
        return SignedValues(values, self.signs[places], self.of[places], self.groups)

    def not_null(self) -> SignedValues:
        """Return the rows that have a value."""
        valid = valid_in(self.values)
        return self if valid is None else self.where(valid)

    def counted(self, chosen: pa.Array) -> SignedValues:
        """Return the rows for which a truth value holds; null is false."""
        flags, valid = flags_in(chosen), valid_in(chosen)
        return self.where(flags if valid is None else flags & valid)

    def sums(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return for each group the sum of a number of each of its rows; whole numbers wrap around."""
        out = np.zeros(self.groups, numbers.dtype)
        if len(self.of):
            starts = np.flatnonzero(np.diff(self.of, prepend=-1))
            out[self.of[starts]] = np.add.reduceat(numbers, starts)
        return out


def behind_each(held: pa.Array, rows: SignedValues) -> tuple[pa.Array, Groups]:
    """Return a value of each group with those of its rows behind it, as one column, and where they are in it."""
    of = np.concatenate([np.arange(rows.groups), rows.of])
    order = np.argsort(of, kind="stable")
    return joined([held, rows.values]), Groups(order, np.searchsorted(of[order], np.arange(rows.groups)))


def whole(column: pa.Array) -> Numbers:
    """Return whole numbers, 0 for null."""
    numbers = np.frombuffer(column.buffers()[1] or b"", np.int64, len(column), column.offset * 8)
    valid = valid_in(column)
    return numbers if valid is None else np.where(valid, numbers, 0)


def taken(column: pa.Array, places: Numbers) -> pa.Array:
    """Return values by their places, null for -1."""
    return column.take(column_of(np.maximum(places, 0), pa.int64(), places >= 0))


def canonical(column: pa.Array) -> pa.Array:
    """Return a column in which equal values have equal bytes: of floating point numbers zero and NaN are each one."""
    if not pa.types.is_floating(column.type) or not len(column):
        return column
    wide = column.cast(pa.float64())
    numbers = np.frombuffer(wide.buffers()[1], np.float64, len(wide), wide.offset * 8) + 0.0
    made = column_of(np.where(numbers == numbers, numbers, np.nan), pa.float64(), valid_in(column))
    return made.cast(column.type)
