"""Aggregates that go by the order in which rows came, where what they added up to is merged in another order: windows that overlap are
made of slices of time, sessions of pieces.

Beside what such an aggregate holds stands the place at which it came, a number that ascends with every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, ends_in, indices_of, lists_of, numbers_in
from poundlock.operators.columns.groups import Groups
from poundlock.operators.columns.sql.accumulators import Collect, ColumnAccumulator, Pick
from poundlock.operators.columns.sql.sums import sum_of

_PLACE = pa.int64()


class ByArrival(ColumnAccumulator):
    """An aggregate whose last column says where its values came; `partial` is given a column and the place of each of its rows."""


def by_arrival(own: ColumnAccumulator) -> ColumnAccumulator:
    """Return an aggregate that goes by the order in which rows came, however they are merged; the very same where no order matters."""
    if isinstance(own, Pick):
        return _PickByArrival(own)
    return _CollectByArrival(own) if isinstance(own, Collect) else own


class _PickByArrival(ByArrival):
    """One row of each group: the first or last that came, or of equal ones the first that came."""

    def __init__(self, own: Pick) -> None:
        super().__init__(own.kind)
        self._own = own

    @property
    def types(self) -> list[pa.DataType]:
        return [*self._own.types, _PLACE]

    def partial(self, column: Any, groups: Groups) -> list[pa.Array]:
        values, places = column
        rows, there = self._own.rows(values, _in_order(numbers_in(places), groups))
        return [*self._own.kept(values, rows, there), places.take(indices_of(rows))]

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        *own, places = held
        rows, _ = self._own.held_rows(own, _in_order(numbers_in(places), groups))
        indices = indices_of(rows)  # of a group without a value all are alike
        return [column.take(indices) for column in held]


class _CollectByArrival(ByArrival):
    """The values in the order they came, and the place of each."""

    def __init__(self, own: Collect) -> None:
        super().__init__(own.kind)
        self._own = own

    @property
    def types(self) -> list[pa.DataType]:
        return [*self._own.types, pa.list_(_PLACE)]

    def partial(self, column: Any, groups: Groups) -> list[pa.Array]:
        values, places = column
        rows, counts = self._own.rows(values, _in_order(numbers_in(places), groups))
        return [lists_of(each.take(indices_of(rows)), counts) for each in (values, places)]

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        lists = [column.take(indices_of(groups.order)) for column in held]
        values, places = (column.flatten() for column in lists)
        lengths = np.diff(ends_in(lists[0]))
        counts = sum_of(np.diff(ends_in(held[0])), groups)
        numbers = numbers_in(places)
        group_of = np.repeat(np.repeat(np.arange(len(groups)), groups.counts), lengths)
        if _ascends(numbers, group_of):
            return [lists_of(values, counts), lists_of(places, counts)]
        order = indices_of(np.lexsort((numbers, group_of)))
        return [lists_of(values.take(order), counts), lists_of(places.take(order), counts)]


def _in_order(places: Numbers, groups: Groups) -> Groups:
    """Return groups whose rows stand in the order of their places."""
    ordered = places[groups.order]
    group_of = np.repeat(np.arange(len(groups)), groups.counts)
    if _ascends(ordered, group_of):
        return groups
    return Groups(groups.order[np.lexsort((ordered, group_of))], groups.starts)


def _ascends(places: Numbers, group_of: Numbers) -> bool:
    """Return whether places ascend within each group."""
    return not ((places[1:] < places[:-1]) & (group_of[1:] == group_of[:-1])).any()
