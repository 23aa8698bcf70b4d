"""What an aggregate keeps of rows, and what stretches of rows come to, by the rules of Flink SQL.

What is kept of several rows has the form of what is kept of one, so that what came before can stand for itself as one row more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import (
    Flags,
    Numbers,
    column_of,
    ends_in,
    flags_in,
    indices_of,
    lists_of,
    numbers_in,
    valid_in,
)
from poundlock.formats.arrays import ranges as all_ranges
from poundlock.operators.columns.changelog.accumulators import (
    SignedAccumulator,
    SignedArray,
    SignedAvg,
    SignedMultiset,
    SignedSum,
    SignedText,
    check_addable,
)
from poundlock.operators.columns.changelog.signed import taken, whole
from poundlock.operators.columns.over.ranges import (
    first_shown,
    float_sums,
    greatest,
    last_shown,
    sums_below,
    whole_sums,
)
from poundlock.operators.columns.rows.running_values import ranks_for
from poundlock.operators.columns.sql.accumulators import sum_type
from poundlock.operators.columns.sql.sums import decimal_parts, decimals_of
from poundlock.stream.over_nodes import OverCall

Stretches = Callable[[Numbers, Numbers], list[pa.Array]]


class RangeFunction:
    """One aggregate of values of one type."""

    keeps_nulls = False

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind

    @property
    def types(self) -> list[pa.DataType]:
        """The types of what is kept of rows."""
        return [self.kind]

    def kept(self, values: pa.Array, shown: Flags) -> list[pa.Array]:
        """Return what is kept of each row.

        Args:
            shown: which rows count.
        """
        return [taken(values, np.where(shown, np.arange(len(shown)), -1))]

    def stretches(self, kept: Sequence[pa.Array]) -> Stretches:
        """Return what gives what is kept of stretches of rows, given that of each."""
        raise NotImplementedError

    def distinct(
        self, values: pa.Array, shown: Flags, before: Numbers, first: Numbers, stop: Numbers
    ) -> list[pa.Array] | None:
        """Return what is kept of the different values of stretches; None where each stretch has to be looked through.

        Args:
            before: the place of the row before each that has an equal value, -1 for none.
        """
        return None

    def result(self, kept: list[pa.Array], kind: pa.DataType) -> pa.Array:
        """Return the result, of a type."""
        return kept[0] if kept[0].type == kind else kept[0].cast(kind)


class _Count(RangeFunction):
    def __init__(self) -> None:
        super().__init__(pa.int64())

    def kept(self, values: pa.Array, shown: Flags) -> list[pa.Array]:
        return [column_of(shown.astype(np.int64), pa.int64())]

    def stretches(self, kept: Sequence[pa.Array]) -> Stretches:
        sums = whole_sums(whole(kept[0]))
        return lambda first, stop: [column_of(sums(first, stop), pa.int64())]

    def distinct(
        self, values: pa.Array, shown: Flags, before: Numbers, first: Numbers, stop: Numbers
    ) -> list[pa.Array] | None:
        sums = sums_below(before + 1, [shown.astype(np.int64)], first, stop, first + 1)
        return [column_of(sums[0], pa.int64())]


class _Sum(RangeFunction):
    """The sum, and of how many values it is."""

    signed: type[SignedSum] = SignedSum

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(sum_type(kind))
        self._result = self.signed(kind)

    @property
    def types(self) -> list[pa.DataType]:
        return [self.kind, pa.int64()]

    def kept(self, values: pa.Array, shown: Flags) -> list[pa.Array]:
        return [super().kept(values, shown)[0].cast(self.kind), column_of(shown.astype(np.int64), pa.int64())]

    def stretches(self, kept: Sequence[pa.Array]) -> Stretches:
        counts = whole_sums(whole(kept[1]))
        if self.kind == pa.float64():
            numbers, valid = numbers_in(kept[0]), valid_in(kept[0])
            floats = float_sums(numbers if valid is None else np.where(valid, numbers, 0.0))
            return lambda first, stop: [
                column_of(floats(first, stop), self.kind),
                column_of(counts(first, stop), pa.int64()),
            ]
        sums = [whole_sums(part) for part in self._parts(kept[0])]
        return lambda first, stop: self._made([each(first, stop) for each in sums], counts(first, stop))

    def distinct(
        self, values: pa.Array, shown: Flags, before: Numbers, first: Numbers, stop: Numbers
    ) -> list[pa.Array] | None:
        if self.kind == pa.float64():
            return None
        weights = [*self._parts(self.kept(values, shown)[0]), shown.astype(np.int64)]
        *parts, counts = sums_below(before + 1, weights, first, stop, first + 1)
        return self._made(parts, counts)

    def _parts(self, column: pa.Array) -> list[Numbers]:
        """Return numbers that are added up apart, 0 where there is no value."""
        valid = valid_in(column)
        if not len(column):
            return [np.zeros(0, np.int64)] * (4 if pa.types.is_decimal(self.kind) else 1)
        parts = decimal_parts(column) if pa.types.is_decimal(self.kind) else [numbers_in(column)]
        return parts if valid is None else [np.where(valid, part, 0) for part in parts]

    def _made(self, parts: Sequence[Numbers], counts: Numbers) -> list[pa.Array]:
        total = decimals_of(parts) if pa.types.is_decimal(self.kind) else parts[0]
        return [column_of(total, self.kind), column_of(counts, pa.int64())]

    def result(self, kept: list[pa.Array], kind: pa.DataType) -> pa.Array:
        return self._result.result(kept, kind)


class _Avg(_Sum):
    signed = SignedAvg


class _Extreme(RangeFunction):
    def __init__(self, kind: pa.DataType, *, most: bool) -> None:
        super().__init__(kind)
        self._most = most

    def stretches(self, kept: Sequence[pa.Array]) -> Stretches:
        column = kept[0]
        _, example, codes = np.unique(ranks_for(column, greatest=self._most), return_index=True, return_inverse=True)
        best = greatest(codes.reshape(-1).astype(np.int64))

        def extremes(first: Numbers, stop: Numbers) -> list[pa.Array]:
            places = np.full(len(first), -1)
            filled = stop > first
            places[filled] = example[best(first[filled], stop[filled])]
            return [taken(column, places)]

        return extremes


class _End(RangeFunction):
    """The first or the last value that is not null."""

    def __init__(self, kind: pa.DataType, *, last: bool) -> None:
        super().__init__(kind)
        self._last = last

    def stretches(self, kept: Sequence[pa.Array]) -> Stretches:
        column = kept[0]
        valid = valid_in(column)
        shown = np.ones(len(column), np.bool_) if valid is None else valid
        places = last_shown(shown) if self._last else first_shown(shown)
        return lambda first, stop: [taken(column, places(first, stop))]


class _List(RangeFunction):
    """The values in their order."""

    def __init__(self, kind: pa.DataType, made: SignedAccumulator, *, keeps_nulls: bool = False) -> None:
        super().__init__(kind)
        self._made, self.keeps_nulls = made, keeps_nulls

    @property
    def types(self) -> list[pa.DataType]:
        return [pa.list_(self.kind)]

    def kept(self, values: pa.Array, shown: Flags) -> list[pa.Array]:
        items = values.take(indices_of(np.flatnonzero(shown)))
        return [lists_of(items, shown.astype(np.int64)).cast(pa.list_(self.kind))]

    def stretches(self, kept: Sequence[pa.Array]) -> Stretches:
        ends, items = ends_in(kept[0]), kept[0].flatten()
        ends = ends - ends[0] if len(kept[0]) else np.zeros(1, np.int64)

        def lists(first: Numbers, stop: Numbers) -> list[pa.Array]:
            counts = ends[stop] - ends[first]
            return [lists_of(items.take(indices_of(all_ranges(ends[first], counts))), counts).cast(pa.list_(self.kind))]

        return lists

    def result(self, kept: list[pa.Array], kind: pa.DataType) -> pa.Array:
        return self._made.result(kept, kind)


_MADE: Mapping[str, Callable[[pa.DataType, OverCall], RangeFunction]] = {
    "count": lambda kind, call: _Count(),
    "row_number": lambda kind, call: _Count(),
    "rank": lambda kind, call: _Count(),
    "dense_rank": lambda kind, call: _Count(),
    "sum": lambda kind, call: _Sum(kind),
    "avg": lambda kind, call: _Avg(kind),
    "min": lambda kind, call: _Extreme(kind, most=False),
    "max": lambda kind, call: _Extreme(kind, most=True),
    "first_value": lambda kind, call: _End(kind, last=False),
    "last_value": lambda kind, call: _End(kind, last=True),
    "array_agg": lambda kind, call: _List(kind, SignedArray(kind), keeps_nulls=True),
    "collect": lambda kind, call: _List(kind, SignedMultiset(kind)),
    "listagg": lambda kind, call: _List(kind, SignedText(kind, call.separator)),
}


def function_of(call: OverCall, kind: pa.DataType) -> RangeFunction:
    """Return an aggregate of values of a type.

    Raises:
        DefinitionError: values of the type cannot be added up.
    """
    check_addable(call.function, call.column, kind)
    return _MADE[call.function](kind, call)


def shown_rows(values: pa.Array, chosen: Any, *, keeps_nulls: bool) -> Flags:
    """Return which rows count for an aggregate.

    Args:
        values: of the rows.
        chosen: truth values of a filter, None where there is none; null is false.
    """
    shown = np.ones(len(values), np.bool_)
    for column, flags in ((values, None), (chosen, chosen)):
        if column is None or (flags is None and keeps_nulls):
            continue
        valid = valid_in(column)
        if valid is not None:
            shown &= valid
        if flags is not None:
            shown &= flags_in(flags)
    return shown
