"""SQL aggregates over columns: what rows of a group add up to, what two such sums add up to, and the result.

The rules are those of the accumulators of single records: all but count(*) pass over nulls, and of nothing there is null. What an
aggregate has added up is one or two columns, its accumulator, so that a part of it can be done where rows are read, and the rest
where their state is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.errors import TerminalError
from poundlock.formats import ddl
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
from poundlock.operators.columns.encoding import decode_accumulators, encode_accumulators
from poundlock.operators.columns.groups import Groups
from poundlock.operators.windows.aggregates import Kind, SqlAggregate

IN_ORDER = ("first", "last", "collect_list")
"""The aggregates that depend on the order of rows."""
SAFE = 1 << 62
"""What sums of whole numbers are surely below where no check is needed."""
_DIGITS_38 = 10**38
_MOST = (1 << 63) - 1
_DECIMAL = Context(prec=80)


class _Part:
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


class _Count(_Part):
    def __init__(self, kind: pa.DataType | None) -> None:
        super().__init__(pa.int64())

    def partial(self, column: pa.Array | None, groups: Groups) -> list[pa.Array]:
        valid = None if column is None else valid_in(column)
        counts = groups.counts if valid is None else _sum(valid.astype(np.int64), groups)
        return [column_of(counts, pa.int64())]

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return [column_of(_sum(numbers_in(held[0]), groups), pa.int64())]


def sum_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values of a type are added up."""
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


class _Sum(_Part):
    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(sum_type(kind))

    def partial(self, column: pa.Array, groups: Groups) -> list[pa.Array]:
        valid = valid_in(column)
        if pa.types.is_decimal(column.type):
            values = _sum_decimals(column, valid, groups)
        else:
            dtype: Any = np.float64 if self.kind == pa.float64() else np.int64
            numbers: npt.NDArray[Any] = numbers_in(column).astype(dtype, copy=False)
            if valid is not None:
                numbers = np.where(valid, numbers, 0)
            values = _sum(numbers, groups) if self.kind == pa.float64() else _sum_exactly(numbers, groups)
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
            unit = Decimal(1).scaleb(-kind.scale)
            quotients = [
                None if t is None else _DECIMAL.divide(t, Decimal(n)).quantize(unit, ROUND_HALF_UP, _DECIMAL)
                for t, n in zip(total.to_pylist(), count.to_pylist(), strict=True)
            ]
            return pa.array(quotients, kind)
        numbers = np.maximum(numbers_in(count), 1)
        return column_of(numbers_in(total) / numbers, pa.float64(), valid_in(total))


class _Extreme(_Part):
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
        ranks, ordered = ranks_of(column)
        if valid is not None:
            ranks = np.where(valid, ranks, -1 if self._greatest else len(ordered))
        reduce = np.maximum if self._greatest else np.minimum
        places = reduce.reduceat(ranks[groups.order], groups.starts)
        if there is None:
            return [ordered.take(indices_of(places))]
        return [ordered.take(_with_nulls(np.where(there, places, 0), there))]


class _End(_Part):
    """The first or the last value, and whether there was one."""

    def __init__(self, kind: pa.DataType, last: bool, ignore_nulls: bool) -> None:
        super().__init__(kind)
        self._last, self._ignore_nulls = last, ignore_nulls

    @property
    def types(self) -> list[pa.DataType]:
        return [self.kind, pa.bool_()]

    def partial(self, column: pa.Array, groups: Groups) -> list[pa.Array]:
        return self._of(column, valid_in(column) if self._ignore_nulls else None, groups)

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        has = numbers_in(held[1]).astype(np.bool_)
        return self._of(held[0], None if has.all() else has, groups)

    def _of(self, column: pa.Array, counted: Flags | None, groups: Groups) -> list[pa.Array]:
        ends = groups.starts + groups.counts - 1
        if counted is None:
            places, there = groups.order[ends if self._last else groups.starts], np.ones(len(groups), np.bool_)
            return [column.take(indices_of(places)), column_of(there, pa.bool_())]
        places = np.arange(len(groups.order))
        shown = counted[groups.order]
        if self._last:
            at = np.maximum.reduceat(np.where(shown, places, -1), groups.starts)
        else:
            at = np.minimum.reduceat(np.where(shown, places, len(places)), groups.starts)
        there = (at >= 0) & (at < len(places))
        rows = groups.order[np.where(there, at, 0)]
        return [column.take(_with_nulls(rows, there)), column_of(there, pa.bool_())]


class _By(_Part):
    """The value of the row whose other value is the least or the greatest, and that; of equal ones the first row counts."""

    def __init__(self, kind: pa.DataType, by: pa.DataType, greatest: bool) -> None:
        super().__init__(kind)
        self._by, self._greatest = by, greatest

    @property
    def types(self) -> list[pa.DataType]:
        return [self.kind, self._by]

    def partial(self, column: Any, groups: Groups) -> list[pa.Array]:
        values, by = column
        ranks, valid = ordinals(by), valid_in(by)
        sorted_ranks = (ranks if not self._greatest else ~ranks)[groups.order]
        shown = np.ones(len(sorted_ranks), np.bool_) if valid is None else valid[groups.order]
        least = np.minimum.reduceat(np.where(shown, sorted_ranks, _MOST), groups.starts)
        first = shown & (sorted_ranks == np.repeat(least, groups.counts))
        places = np.arange(len(sorted_ranks))
        at = np.minimum.reduceat(np.where(first, places, len(places)), groups.starts)
        there = at < len(places)
        rows = _with_nulls(groups.order[np.where(there, at, 0)], there)
        return [values.take(rows), by.take(rows)]

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return self.partial(held, groups)


class _Collect(_Part):
    """The values in the order they came."""

    @property
    def types(self) -> list[pa.DataType]:
        return [pa.list_(self.kind)]

    def partial(self, column: pa.Array, groups: Groups) -> list[pa.Array]:
        valid = valid_in(column)
        order, counts = groups.order, groups.counts
        if valid is not None:
            shown = valid[order]
            order, counts = order[shown], _sum(valid.astype(np.int64), groups)
        return [lists_of(column.take(indices_of(order)), counts)]

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        lengths = np.diff(ends_in(held[0]))
        return [lists_of(held[0].take(indices_of(groups.order)).flatten(), _sum(lengths, groups))]


class _Distinct(_Part):
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
        if pa.types.is_floating(items.type):
            codes = ordinals(items)[
                places
            ]  # to a dictionary 0.0 and -0.0 are two values, and NaN is as many as it has bits
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


_PARTS: dict[str, Callable[[SqlAggregate, Any], _Part]] = {
    "count": lambda a, kind: _Count(kind),
    "sum": lambda a, kind: _Sum(kind),
    "avg": lambda a, kind: _Avg(kind),
    "min": lambda a, kind: _Extreme(kind, greatest=False),
    "max": lambda a, kind: _Extreme(kind, greatest=True),
    "first": lambda a, kind: _End(kind, last=False, ignore_nulls=a.ignore_nulls),
    "last": lambda a, kind: _End(kind, last=True, ignore_nulls=a.ignore_nulls),
    "collect_list": lambda a, kind: _Collect(kind),
    "count_distinct": lambda a, kind: _Distinct(kind),
    "min_by": lambda a, kinds: _By(kinds[0], kinds[1], greatest=False),
    "max_by": lambda a, kinds: _By(kinds[0], kinds[1], greatest=True),
}


@dataclass(frozen=True)
class ColumnAggregates:
    """Several aggregates over the same rows. Picklable.

    Args:
        aggregates: their columns are places in `arguments`.
        arguments: the types of the columns that they are of.
    """

    aggregates: tuple[SqlAggregate, ...]
    arguments: tuple[Any, ...]

    @cached_property
    def _parts(self) -> list[_Part]:
        return [_PARTS[each.kind](each, _of(each, self.arguments)) for each in self.aggregates]

    @property
    def are_by_column(self) -> bool:
        """Whether all of them are computed here for columns of their types."""
        return all(can_aggregate(each, _of(each, self.arguments)) for each in self.aggregates)

    @property
    def types(self) -> list[pa.DataType]:
        """The types of all accumulators' columns, one behind the other."""
        return [kind for part in self._parts for kind in part.types]

    @property
    def described(self) -> tuple[str, ...]:
        """The aggregates as texts, which `of` reads: kind, type of the column, and whether nulls are passed over."""
        return tuple(
            " ".join(
                [
                    each.kind,
                    *([] if each.column is None else [ddl.render_type(self.arguments[int(each.column)])]),
                    *([] if each.by is None else [f"by {ddl.render_type(self.arguments[int(each.by)])}"]),
                    *(["ignore nulls"] if each.ignore_nulls else []),
                ]
            )
            for each in self.aggregates
        )

    @classmethod
    def of(cls, texts: Sequence[str]) -> ColumnAggregates:
        """Return aggregates that were described, each of a column of its own."""
        aggregates: list[SqlAggregate] = []
        kinds: list[pa.DataType] = []
        for text in texts:
            text, ignore_nulls = text.removesuffix(" ignore nulls"), text.endswith(" ignore nulls")
            kind, _, of = text.partition(" ")
            types = [ddl.parse_type(each) for each in of.split(" by ")] if of else []
            places: list[int | None] = [*range(len(kinds), len(kinds) + len(types)), None, None]
            kinds += types
            aggregates.append(
                SqlAggregate(kind=cast("Kind", kind), column=places[0], ignore_nulls=ignore_nulls, by=places[1])
            )
        return cls(tuple(aggregates), tuple(kinds))

    def partial(self, columns: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Return what the rows of each group add up to.

        Args:
            columns: the arguments.
        """
        return [
            column
            for each, part in zip(self.aggregates, self._parts, strict=True)
            for column in part.partial(_of(each, columns), groups)
        ]

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Return one accumulator for each group of accumulators, each in the order of its rows."""
        if groups.are_single:
            rows = indices_of(groups.order)
            return [column.take(rows) for column in held]
        return [column for part, own in self._split(held) for column in part.merge(own, groups)]

    def results(self, held: Sequence[pa.Array], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
        """Return the results, one column an aggregate, of some types. Raises TerminalError: a result does not fit its type."""
        results = []
        for (part, own), kind in zip(self._split(held), kinds, strict=True):
            try:
                results.append(part.result(own, kind))
            except pa.ArrowInvalid as error:
                raise too_large(kind, str(error)) from error
        return results

    def encode(self, held: Sequence[pa.Array]) -> pa.Array:
        """Return accumulators as the bytes that state keeps, large_binary."""
        return encode_accumulators(held)

    def decode(self, values: pa.Array) -> list[pa.Array]:
        """Return accumulators that were encoded."""
        return decode_accumulators(values, self.types)

    def _split(self, held: Sequence[pa.Array]) -> list[tuple[_Part, Sequence[pa.Array]]]:
        pairs, at = [], 0
        for part in self._parts:
            width = len(part.types)
            pairs.append((part, held[at : at + width]))
            at += width
        return pairs


def too_large(kind: pa.DataType, what: str) -> TerminalError:
    """Return the error of a result that its type cannot hold."""
    return TerminalError(
        f"the value of an aggregate does not fit its type, {kind}: {what}",
        next="let the job compute it of a wider type, such as sum(cast(n AS decimal(38, 0))) as n",
    )


def _of(aggregate: SqlAggregate, columns: Sequence[Any]) -> Any:
    """Return what an aggregate is of: one of some columns, a pair of them, or None."""
    if aggregate.column is None:
        return None
    value = columns[int(aggregate.column)]
    return value if aggregate.by is None else (value, columns[int(aggregate.by)])


def can_aggregate(aggregate: SqlAggregate, kind: Any) -> bool:
    """Return whether an aggregate of values of a type is computed here; None: of no column, a pair: of one by another."""
    if kind is None or aggregate.kind == "count":
        return True
    if aggregate.by is not None:
        return can_aggregate(SqlAggregate(kind="min", column=0), kind[1])
    if aggregate.kind in ("sum", "avg"):
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind))
    if aggregate.kind in ("min", "max", "count_distinct"):
        return is_number(kind) or any(
            test(kind) for test in (pa.types.is_string, pa.types.is_binary, pa.types.is_decimal128)
        )
    return True


def is_number(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_timestamp, pa.types.is_date32, pa.types.is_duration)
    return kind in (pa.float64(), pa.float32()) or any(test(kind) for test in tests)


def _sum(values: npt.NDArray[Any], groups: Groups) -> npt.NDArray[Any]:
    return np.add.reduceat(values[groups.order], groups.starts) if len(groups) else values[:0]


def _any(valid: Flags | None, groups: Groups) -> Flags | None:
    """Return which groups have a value that is not null; None = all of them."""
    if valid is None or not len(groups):
        return None
    return np.logical_or.reduceat(valid[groups.order], groups.starts)


def _sum_exactly(numbers: Numbers, groups: Groups) -> Numbers:
    """Return sums of whole numbers. Raises TerminalError where one is too large."""
    if not len(numbers):
        return numbers
    most = max(abs(int(numbers.min())), abs(int(numbers.max())))
    sums = _sum(numbers, groups)
    if most * int(groups.counts.max()) < SAFE:
        return sums
    check_fits(_sum(numbers >> 32, groups), _sum(numbers & 0xFFFFFFFF, groups))
    return sums


def check_fits(high: Numbers, low: Numbers) -> None:
    """Raise TerminalError where a sum is beyond 64 bits, given that of the upper and that of the lower 32 bits of its numbers."""
    top = high + (low >> 32)
    if ((top < -(1 << 31)) | (top >= 1 << 31)).any():
        raise too_large(pa.int64(), "a sum is beyond 64 bits")


def _sum_decimals(column: pa.Array, valid: Flags | None, groups: Groups) -> npt.NDArray[Any]:
    """Return sums of decimals as the 16 bytes of each. Raises TerminalError where one has more than 38 digits."""
    parts = decimal_parts(column)
    return decimals_of([_sum(part if valid is None else np.where(valid, part, 0), groups) for part in parts])


def decimal_parts(column: pa.Array) -> list[Numbers]:
    """Return decimals as four numbers each that can be added up apart, the lowest 32 bits first."""
    words = np.frombuffer(column.buffers()[1], "<u4").reshape(-1, 4)[column.offset : column.offset + len(column)]
    return [words[:, i].astype(np.int64) for i in range(3)] + [words[:, 3].astype(np.int32).astype(np.int64)]


def decimals_of(parts: Sequence[Numbers]) -> npt.NDArray[Any]:
    """Return sums of such parts as the 16 bytes of each decimal. Raises TerminalError where one has more than 38 digits."""
    out = np.empty((len(parts[0]), 4), "<u4")
    carry = np.zeros(len(out), np.int64)
    for i, part in enumerate(parts):
        whole = part + carry
        out[:, i] = (whole & 0xFFFFFFFF).astype(np.uint32)
        carry = whole >> 32
    top = out[:, 3].astype(np.int32).astype(np.int64)
    large = np.flatnonzero(np.abs(top) >= _DIGITS_38 >> 96)
    numbers = (int.from_bytes(out[row].tobytes(), "little", signed=True) for row in large.tolist())
    if (carry != top >> 31).any() or any(abs(number) >= _DIGITS_38 for number in numbers):
        raise too_large(pa.decimal128(38), "a sum has more than 38 digits")
    return np.ascontiguousarray(out).view(np.dtype("V16")).reshape(-1)


def ordinals(column: pa.Array) -> Numbers:
    """Return whole numbers in the order of a column's values; those at nulls are any."""
    if not is_number(column.type):
        return ranks_of(column)[0]
    values = numbers_in(column)
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    bits = np.where(values == values, values.astype(np.float64) + 0.0, np.nan).view(np.int64)
    return bits ^ ((bits >> 63) & _MOST)  # of negative numbers all bits but the sign are turned round


def _with_nulls(places: Numbers, valid: Flags) -> pa.Array:
    return column_of(places, pa.int64(), valid)
