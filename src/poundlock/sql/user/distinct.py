"""Aggregates of the user's own over different values: what is kept are the values, and the function is given them when its result is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, ends_in, indices_of, lists_of, numbers_in
from poundlock.operators.columns.changelog.signed import canonical
from poundlock.operators.columns.changelog.values import encode_columns
from poundlock.sql.user.aggregates import OwnAggregate


@dataclass(frozen=True)
class DistinctAggregate:
    """An aggregate of the different ones of some values, in the order in which they came first. It needs no `merge`.

    Args:
        arguments: the type of the ROW of its arguments.
    """

    own: OwnAggregate
    arguments: pa.DataType

    @property
    def types(self) -> Sequence[pa.DataType]:
        """The type of what is kept: the values as a list."""
        return [pa.list_(self.arguments)]

    def fold(self, held: Sequence[pa.Array], values: pa.Array, signs: Numbers, of: Numbers) -> list[pa.Array]:
        """Return the different values of each group; nothing is held before. See `GroupFunction`."""
        return [self._different(values, of, len(held[0]))]

    def merge(self, held: Sequence[pa.Array], of: Numbers, count: int) -> list[pa.Array]:
        """Return one list for each group of them; `of` is the number of each one's group."""
        lengths = np.diff(ends_in(held[0]))
        return [self._different(held[0].flatten(), np.repeat(of, lengths), count)]

    def result(self, held: Sequence[pa.Array]) -> pa.Array:
        """Return the result of each group."""
        groups = len(held[0])
        of = np.repeat(np.arange(groups), np.diff(ends_in(held[0])))
        nothing = [pa.nulls(groups, kind) for kind in self.own.types]
        return self.own.result(self.own.fold(nothing, held[0].flatten(), np.ones(len(of), np.int64), of))

    def _different(self, values: pa.Array, of: Numbers, groups: int) -> pa.Array:
        parts = [canonical(each) for each in values.flatten()]
        codes = numbers_in(encode_columns(*parts).dictionary_encode().indices).astype(np.int64)
        _, firsts = np.unique(of * (len(values) + 1) + codes, return_index=True)
        firsts = np.sort(firsts)
        return lists_of(values.take(indices_of(firsts)), np.bincount(of[firsts], minlength=groups))
