"""What each SQL aggregate adds up of a column: the accumulator of a group of rows, one of several of them, and the result.

The rules are those of the accumulators of single records: all but count(*) pass over nulls, and of nothing there is null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import (
    Flags,
    Numbers,
    column_of,
    ends_in,
    indices_of,
    lists_of,
    numbers_in,
    ranks_of,
    valid_in,
)
from poundlock.operators.columns.groups import Groups
from poundlock.operators.columns.sql.ordinals import is_number, ordinals
from poundlock.operators.columns.sql.sums import average_decimals, sum_decimals, sum_exactly, sum_of
from poundlock.operators.windows.aggregates import SqlAggregate

_MOST = (1 << 63) - 1


class ColumnAccumulator:
    """One aggregate over a column of one type."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind

    @property
    def types(self) -> list[pa.DataType]:
        """The types of the accumulator's columns."""
        return [self.kind]

    def partial(self, column: pa.Array, groups: Groups) -> list[pa.Array]:
        """Return the accumulator of each group of rows."""
        raise NotImplementedError

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Return one accumulator for each group of them; those of a group stand in the order of their rows."""
        return self.partial(held[0], groups)

    def result(self, held: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
        """Return the results, of the type that they are to have."""
        return held[0] if held[0].type == kind else held[0].cast(kind)


class _Count(ColumnAccumulator):
    def __init__(self, kind: pa.DataType | None) -> None:
        super().__init__(pa.int64())

    def partial(self, column: pa.Array | None, groups: Groups) -> list[pa.Array]:
        valid = None if column is None else valid_in(column)
        counts = groups.counts if valid is None else sum_of(valid.astype(np.int64), groups)
        return [column_of(counts, pa.int64())]

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return [column_of(sum_of(numbers_in(held[0]), groups), pa.int64())]


def sum_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values of a type are added up."""
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


class _Sum(ColumnAccumulator):
    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(sum_type(kind))

    def partial(self, column: pa.Array, groups: Groups) -> list[pa.Array]:
        valid = valid_in(column)
        if pa.types.is_decimal(column.type):
            values = sum_decimals(column, valid, groups)
        else:
            dtype: Any = np.float64 if self.kind == pa.float64() else np.int64
            numbers: npt.NDArray[Any] = numbers_in(column).astype(dtype, copy=False)
            if valid is not None:
                numbers = np.where(valid, numbers, 0)
            values = sum_of(numbers, groups) if self.kind == pa.float64() else sum_exactly(numbers, groups)
        return [column_of(values, self.kind, _any(valid, groups))]


class _Avg(_Sum):
    """The sum, and how many values there were."""

    @property
    def types(self) -> list[pa.DataType]:
        return [self.kind, pa.int64()]

    def partial(self, column: pa.Array, groups: Groups) -> list[pa.Array]:
        return [*super().partial(column, groups), *_Count(None).partial(column, groups)]

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return [*super().partial(held[0], groups), *_Count(None).merge(held[1:], groups)]

    def result(self, held: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
        total, count = held
        if pa.types.is_decimal(total.type):
            return average_decimals(total, numbers_in(count), kind)
        numbers = np.maximum(numbers_in(count), 1)
        return column_of(numbers_in(total) / numbers, pa.float64(), valid_in(total))


class _Extreme(ColumnAccumulator):
    """The least or the greatest. Of floating point numbers NaN is the greatest, as in Spark."""

    def __init__(self, kind: pa.DataType, greatest: bool) -> None:
        super().__init__(kind)
        self._greatest = greatest

    def partial(self, column: pa.Array, groups: Groups) -> list[pa.Array]:
        valid = valid_in(column)
        there = _any(valid, groups)
        if is_number(column.type):
            values = numbers_in(column)
            floating = values.dtype.kind == "f"
            if valid is not None:
                info: Any = np.finfo(values.dtype) if floating else np.iinfo(values.dtype)
                least, most = (-np.inf, np.inf) if floating else (info.min, info.max)
                # Of floats the greatest is NaN, which the least of them passes over.
                values = np.where(valid, values, least if self._greatest else np.nan if floating else most)
            reduce = np.maximum if self._greatest else np.fmin if floating else np.minimum
            return [column_of(reduce.reduceat(values[groups.order], groups.starts), self.kind, there)]
        if pa.types.is_nested(column.type):
            return [column.take(_with_nulls(*_best(column, groups, greatest=self._greatest)))]
        ranks, ordered = ranks_of(column)
        if valid is not None:
            ranks = np.where(valid, ranks, -1 if self._greatest else len(ordered))
        reduce = np.maximum if self._greatest else np.minimum
        places = reduce.reduceat(ranks[groups.order], groups.starts)
        if there is None:
            return [ordered.take(indices_of(places))]
        return [ordered.take(_with_nulls(np.where(there, places, 0), there))]


class Pick(ColumnAccumulator):
    """One row of each group: what is kept of it is its accumulator."""

    def rows(self, column: Any, groups: Groups) -> tuple[Numbers, Flags]:
        """Return the row of each group that counts, and whether there is one; where there is none it is the group's first."""
        raise NotImplementedError

    def held_rows(self, held: Sequence[pa.Array], groups: Groups) -> tuple[Numbers, Flags]:
        """Return the same of rows that are accumulators."""
        raise NotImplementedError

    def kept(self, column: Any, rows: Numbers, there: Flags) -> list[pa.Array]:
        """Return the accumulators that are made of rows."""
        raise NotImplementedError

    def partial(self, column: Any, groups: Groups) -> list[pa.Array]:
        return self.kept(column, *self.rows(column, groups))


class _End(Pick):
    """The first or the last value, and whether there was one."""

    def __init__(self, kind: pa.DataType, last: bool, ignore_nulls: bool) -> None:
        super().__init__(kind)
        self._last, self._ignore_nulls = last, ignore_nulls

    @property
    def types(self) -> list[pa.DataType]:
        return [self.kind, pa.bool_()]

    def rows(self, column: pa.Array, groups: Groups) -> tuple[Numbers, Flags]:
        return self._ends(valid_in(column) if self._ignore_nulls else None, groups)

    def held_rows(self, held: Sequence[pa.Array], groups: Groups) -> tuple[Numbers, Flags]:
        has = numbers_in(held[1]).astype(np.bool_)
        return self._ends(None if has.all() else has, groups)

    def kept(self, column: pa.Array, rows: Numbers, there: Flags) -> list[pa.Array]:
        return [column.take(_with_nulls(rows, there)), column_of(there, pa.bool_())]

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return self.kept(held[0], *self.held_rows(held, groups))

    def _ends(self, counted: Flags | None, groups: Groups) -> tuple[Numbers, Flags]:
        ends = groups.starts + groups.counts - 1
        if counted is None:
            return groups.order[ends if self._last else groups.starts], np.ones(len(groups), np.bool_)
        places = np.arange(len(groups.order))
        shown = counted[groups.order]
        if self._last:
            at = np.maximum.reduceat(np.where(shown, places, -1), groups.starts)
        else:
            at = np.minimum.reduceat(np.where(shown, places, len(places)), groups.starts)
        there = (at >= 0) & (at < len(places))
        return groups.order[np.where(there, at, groups.starts)], there


class _By(Pick):
    """The value of the row whose other value is the least or the greatest, and that; of equal ones the first row counts."""

    def __init__(self, kind: pa.DataType, by: pa.DataType, greatest: bool) -> None:
        super().__init__(kind)
        self._by, self._greatest = by, greatest

    @property
    def types(self) -> list[pa.DataType]:
        return [self.kind, self._by]

    def rows(self, column: Any, groups: Groups) -> tuple[Numbers, Flags]:
        _, by = column
        return _best(by, groups, greatest=self._greatest)

    def held_rows(self, held: Sequence[pa.Array], groups: Groups) -> tuple[Numbers, Flags]:
        return self.rows(held, groups)

    def kept(self, column: Any, rows: Numbers, there: Flags) -> list[pa.Array]:
        indices = _with_nulls(rows, there)
        return [each.take(indices) for each in column]

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return self.partial(held, groups)


class Collect(ColumnAccumulator):
    """The values in the order they came."""

    @property
    def types(self) -> list[pa.DataType]:
        return [pa.list_(self.kind)]

    def partial(self, column: pa.Array, groups: Groups) -> list[pa.Array]:
        rows, counts = self.rows(column, groups)
        return [lists_of(column.take(indices_of(rows)), counts)]

    def rows(self, column: pa.Array, groups: Groups) -> tuple[Numbers, Numbers]:
        """Return the rows that are listed, group after group, and how many each group has."""
        valid = valid_in(column)
        if valid is None:
            return groups.order, groups.counts
        return groups.order[valid[groups.order]], sum_of(valid.astype(np.int64), groups)

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        lengths = np.diff(ends_in(held[0]))
        return [lists_of(held[0].take(indices_of(groups.order)).flatten(), sum_of(lengths, groups))]


class _Distinct(ColumnAccumulator):
    """The different values, in no order."""

    @property
    def types(self) -> list[pa.DataType]:
        return [pa.list_(self.kind)]

    def partial(self, column: pa.Array, groups: Groups) -> list[pa.Array]:
        of_row = np.empty(len(column), np.int64)
        of_row[groups.order] = np.repeat(np.arange(len(groups)), groups.counts)
        return self._different(column, of_row, len(groups))

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        lists = held[0].take(indices_of(groups.order))
        of_list = np.repeat(np.arange(len(groups)), groups.counts)
        return self._different(lists.flatten(), np.repeat(of_list, np.diff(ends_in(lists))), len(groups))

    def _different(self, items: pa.Array, of_item: Numbers, groups: int) -> list[pa.Array]:
        valid = valid_in(items)
        places = np.arange(len(items)) if valid is None else np.flatnonzero(valid)
        # To a dictionary 0.0 and -0.0 are two values, NaN is as many as it has bits, and nested values are none.
        if pa.types.is_floating(items.type) or pa.types.is_nested(items.type):
            codes = ordinals(items)[places]
        else:
            codes = numbers_in(items.dictionary_encode().indices.cast(pa.int64()))[places]
        order = np.lexsort((codes, of_item[places]))
        group, code = of_item[places][order], codes[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = (group[1:] != group[:-1]) | (code[1:] != code[:-1])
        counts = np.bincount(group[new], minlength=groups).astype(np.int64)
        return [lists_of(items.take(indices_of(places[order][new])), counts)]

    def result(self, held: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
        return column_of(np.diff(ends_in(held[0])), pa.int64())


_ACCUMULATORS: dict[str, Callable[[SqlAggregate, Any], ColumnAccumulator]] = {
    "count": lambda a, kind: _Count(kind),
    "sum": lambda a, kind: _Sum(kind),
    "avg": lambda a, kind: _Avg(kind),
    "min": lambda a, kind: _Extreme(kind, greatest=False),
    "max": lambda a, kind: _Extreme(kind, greatest=True),
    "first": lambda a, kind: _End(kind, last=False, ignore_nulls=a.ignore_nulls),
    "last": lambda a, kind: _End(kind, last=True, ignore_nulls=a.ignore_nulls),
    "collect_list": lambda a, kind: Collect(kind),
    "count_distinct": lambda a, kind: _Distinct(kind),
    "min_by": lambda a, kinds: _By(kinds[0], kinds[1], greatest=False),
    "max_by": lambda a, kinds: _By(kinds[0], kinds[1], greatest=True),
}


def accumulator_of(aggregate: SqlAggregate, kind: Any) -> ColumnAccumulator:
    """Return how an aggregate adds up values of a type; None: of no column, a pair: of one by another."""
    return _ACCUMULATORS[aggregate.kind](aggregate, kind)


def _any(valid: Flags | None, groups: Groups) -> Flags | None:
    """Return which groups have a value that is not null; None = all of them."""
    if valid is None or not len(groups):
        return None
    return np.logical_or.reduceat(valid[groups.order], groups.starts)


def _best(column: pa.Array, groups: Groups, *, greatest: bool) -> tuple[Numbers, Flags]:
    """Return the row with the least or the greatest value of each group, of equal ones the first, and whether there is one that is not null."""
    ranks, valid = ordinals(column), valid_in(column)
    sorted_ranks = (ranks if not greatest else ~ranks)[groups.order]
    shown = np.ones(len(sorted_ranks), np.bool_) if valid is None else valid[groups.order]
    least = np.minimum.reduceat(np.where(shown, sorted_ranks, _MOST), groups.starts)
    first = shown & (sorted_ranks == np.repeat(least, groups.counts))
    places = np.arange(len(sorted_ranks))
    at = np.minimum.reduceat(np.where(first, places, len(places)), groups.starts)
    there = at < len(places)
    return groups.order[np.where(there, at, groups.starts)], there


def _with_nulls(places: Numbers, valid: Flags) -> pa.Array:
    return column_of(places, pa.int64(), valid)
