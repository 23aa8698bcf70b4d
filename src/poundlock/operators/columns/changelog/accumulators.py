"""What each aggregate keeps of a group whose rows may be taken away again, how rows change that, and the result.

What is kept are columns of the group's entry in state. Numbers add up and are taken off; the least, greatest, first and last value
have tables beside them where rows may be taken away; lists hold the values themselves. Results are those of Flink SQL: of nothing they
are null, counts 0, whole numbers wrap around.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import (
    Flags,
    Numbers,
    column_of,
    ends_in,
    indices_of,
    joined,
    lists_of,
    numbers_in,
    valid_in,
)
from poundlock.operators.columns.changelog.signed import SignedValues, behind_each, not_taken_away, taken, whole
from poundlock.operators.columns.changelog.values import ValueChanges, ValueCounts, ValueOrders, encode_columns
from poundlock.operators.columns.rows.keys import RowsByKey
from poundlock.operators.columns.sql.accumulators import accumulator_of, sum_type
from poundlock.operators.columns.sql.ordinals import ordinals
from poundlock.operators.columns.sql.sums import decimal_parts, decimals_of, too_large
from poundlock.operators.windows.aggregates import SqlAggregate
from poundlock.stream.changelog_nodes import GroupFunction


def check_addable(function: str, column: str | None, kind: pa.DataType) -> None:
    """Raise DefinitionError where a sum or average is wanted of values of a type that cannot be added up."""
    if function in ("sum", "avg") and not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind)
    ):
        raise DefinitionError(
            f"there is no {function} of values of type {kind}", next=f"CAST({column}) to a type of numbers"
        )


class FoldedRows(NamedTuple):
    """Rows of a fold, as an aggregate takes them.

    Args:
        store: the state of the operator.
        keys: the groups.
        rows: those that count for the aggregate.
        changes: what became of their values, where the aggregate asks for that.
    """

    store: Any
    keys: RowsByKey
    rows: SignedValues
    changes: ValueChanges | None = None


class SignedAccumulator:
    """One aggregate of values of one type."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind

    @property
    def types(self) -> list[pa.DataType]:
        """The types of what is kept of a group."""
        return [self.kind]

    def fold(self, held: list[pa.Array], folded: FoldedRows) -> list[pa.Array]:
        """Return what is kept of each group after some rows.

        Args:
            held: what was kept before; null for a group that is new.
        """
        raise NotImplementedError

    def result(self, held: list[pa.Array], kind: pa.DataType) -> pa.Array:
        """Return the result of each group, of a type."""
        return held[0] if held[0].type == kind else held[0].cast(kind)


class SignedCount(SignedAccumulator):
    """How many rows there are."""

    def __init__(self) -> None:
        super().__init__(pa.int64())

    def fold(self, held: list[pa.Array], folded: FoldedRows) -> list[pa.Array]:
        return [_plus(held[0], folded.rows)]


class SignedSum(SignedAccumulator):
    """The sum, and of how many values it is."""

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(sum_type(kind))

    @property
    def types(self) -> list[pa.DataType]:
        return [self.kind, pa.int64()]

    def fold(self, held: list[pa.Array], folded: FoldedRows) -> list[pa.Array]:
        return [self._sum(held[0], folded.rows), _plus(held[1], folded.rows)]

    def _sum(self, held: pa.Array, rows: SignedValues) -> pa.Array:
        if pa.types.is_decimal(self.kind):
            valid = valid_in(held)
            parts = [
                (before if valid is None else np.where(valid, before, 0)) + rows.sums(own * rows.signs)
                for before, own in zip(decimal_parts(held), decimal_parts(rows.values), strict=True)
            ]
            return column_of(decimals_of(parts), self.kind)
        numbers = numbers_in(rows.values).astype(np.float64 if self.kind == pa.float64() else np.int64, copy=False)
        before = numbers_in(held)
        valid = valid_in(held)
        before = before if valid is None else np.where(valid, before, 0)
        return column_of(before + rows.sums(numbers * rows.signs), self.kind)

    def result(self, held: list[pa.Array], kind: pa.DataType) -> pa.Array:
        return _as(held[0], kind, _positive(held[1]))


class SignedAvg(SignedSum):
    """The average; of whole numbers a whole number, rounded towards zero."""

    def result(self, held: list[pa.Array], kind: pa.DataType) -> pa.Array:
        there = _positive(held[1])
        counts = np.maximum(whole(held[1]), 1)
        if pa.types.is_decimal(self.kind):
            total = pc.if_else(column_of(there, pa.bool_()), held[0], pa.nulls(len(there), self.kind))
            average = accumulator_of(SqlAggregate(kind="avg", column=0), self.kind)
            return average.result([total, column_of(counts, pa.int64())], kind)
        totals = numbers_in(held[0])
        if self.kind == pa.float64():
            return _as(column_of(totals / counts, pa.float64()), kind, there)
        if not pa.types.is_integer(kind):
            return _as(column_of(totals.astype(np.float64) / counts, pa.float64()), kind, there)
        quotients = totals // counts + ((totals < 0) & (totals % counts != 0))
        return _as(column_of(quotients, pa.int64()), kind, there)


class SignedExtreme(SignedAccumulator):
    """The least or the greatest value.

    Args:
        counts: the values of groups; None where no row is taken away.
    """

    def __init__(self, kind: pa.DataType, *, greatest: bool, counts: ValueCounts | None) -> None:
        super().__init__(kind)
        self._greatest, self._counts = greatest, counts
        self._best = accumulator_of(SqlAggregate(kind="max" if greatest else "min", column=0), kind)

    @property
    def retracts(self) -> bool:
        """Whether rows may be taken away."""
        return self._counts is not None

    def fold(self, held: list[pa.Array], folded: FoldedRows) -> list[pa.Array]:
        changes = folded.changes
        if changes is None:
            return self._best.partial(*behind_each(held[0], folded.rows))
        assert self._counts is not None
        groups = folded.rows.groups
        of_gone = np.flatnonzero(~changes.there)
        is_held = pc.equal(
            changes.entries.subkeys.take(indices_of(of_gone)),
            self._counts.encoded(held[0]).take(indices_of(changes.of[of_gone])),
        )
        gone = np.zeros(groups, np.bool_)
        gone[changes.of[of_gone[numbers_in(is_held) > 0]]] = True
        distinct = changes.distinct(groups)
        appeared = distinct.where(distinct.signs > 0)
        (best,) = self._best.partial(*behind_each(held[0], appeared))
        if gone.any():
            # Nothing that is left is beyond what was the extreme, so what is needs no look at the others.
            worse = np.flatnonzero(gone & ~self._beyond(best, held[0]))
            if len(worse):
                left = self._counts.there(folded.store, folded.keys, worse)
                (again,) = self._best.partial(*behind_each(pa.nulls(len(worse), self.kind), left))
                places = np.arange(groups)
                places[worse] = groups + np.arange(len(worse))
                best = joined([best, again]).take(indices_of(places))
        return [best]

    def _beyond(self, best: pa.Array, held: pa.Array) -> Flags:
        """Return where a value is not the one that was."""
        ranks = ordinals(joined([best, held]))
        unlike: Flags = ranks[: len(best)] != ranks[len(best) :]
        return unlike


class SignedEnd(SignedAccumulator):
    """The first or the last value that is not null.

    Args:
        orders: when values came; None where no row is taken away.
    """

    def __init__(self, kind: pa.DataType, *, last: bool, orders: ValueOrders | None) -> None:
        super().__init__(kind)
        self._last, self._orders = last, orders
        self._end = accumulator_of(SqlAggregate(kind="last" if last else "first", column=0, ignore_nulls=True), kind)

    @property
    def types(self) -> list[pa.DataType]:
        """The value, which order it has, and which order the next row has; the value alone where no row is taken away."""
        return [self.kind] if self._orders is None else [self.kind, pa.int64(), pa.int64()]

    def fold(self, held: list[pa.Array], folded: FoldedRows) -> list[pa.Array]:
        rows = folded.rows
        if self._orders is None:
            return self._end.partial(*behind_each(held[0], rows))[:1]
        valid, groups = valid_in(held[0]), rows.groups
        ends, following = whole(held[1]), whole(held[2])
        ends = ends if valid is None else np.where(valid, ends, -1)
        starts = np.searchsorted(rows.of, np.arange(groups))
        orders = following[rows.of] + np.arange(len(rows)) - starts[rows.of]
        some, gone = self._orders.fold(folded.store, folded.keys, rows, orders, ends)
        parts, of = [held[0], some.values], [np.arange(groups)[~gone], some.of]
        numbers, places = [ends[~gone], some.orders], [np.flatnonzero(~gone), groups + np.arange(len(some.of))]
        latest = np.full(groups, -1)
        np.maximum.at(latest, some.of, some.orders)
        again = np.flatnonzero(gone & (latest < ends) if self._last else gone)
        if len(again):
            left = self._orders.there(folded.store, folded.keys, again)
            parts.append(left.values)
            of.append(again[left.of])
            numbers.append(left.orders)
            places.append(groups + len(some.of) + np.arange(len(left.of)))
        best, place = _least(np.concatenate(of), np.concatenate(numbers), np.concatenate(places), groups, self._last)
        counts = np.bincount(rows.of, minlength=groups)
        values = taken(joined(parts), place)
        return [values, column_of(best, pa.int64()), column_of(following + counts, pa.int64())]


def _least(of: Numbers, orders: Numbers, places: Numbers, groups: int, last: bool) -> tuple[Numbers, Numbers]:
    """Return the least or greatest order of each group that is not -1, and its place; -1 for none."""
    there = orders >= 0
    of, orders, places = of[there], orders[there], places[there]
    by = np.lexsort((orders, of))
    of = of[by]
    at = by[np.flatnonzero(np.diff(of, append=-1) if last else np.diff(of, prepend=-1))]
    best, place = np.full(groups, -1), np.full(groups, -1)
    which = np.unique(of)
    best[which], place[which] = orders[at], places[at]
    return best, place


class SignedList(SignedAccumulator):
    """The values in the order they came; of equal ones that which came first is taken away."""

    @property
    def types(self) -> list[pa.DataType]:
        return [pa.list_(self.kind)]

    def fold(self, held: list[pa.Array], folded: FoldedRows) -> list[pa.Array]:
        rows = folded.rows
        lengths = np.diff(ends_in(held[0]))
        if len(lengths) < rows.groups:  # an empty column has no ends
            lengths = np.zeros(rows.groups, np.int64)
        valid = valid_in(held[0])
        lengths = lengths if valid is None else np.where(valid, lengths, 0)
        items = joined([held[0].flatten(), rows.values])
        of = np.concatenate([np.repeat(np.arange(rows.groups), lengths), rows.of])
        signs = np.concatenate([np.ones(len(of) - len(rows), np.int64), rows.signs])
        kept = _without_retracted(items, of, signs) if rows.retracts else np.arange(len(of))
        kept = kept[np.argsort(of[kept], kind="stable")]
        return [lists_of(items.take(indices_of(kept)), np.bincount(of[kept], minlength=rows.groups))]


class SignedArray(SignedList):
    """The values as a list; of none it is null."""

    def result(self, held: list[pa.Array], kind: pa.DataType) -> pa.Array:
        return _null_if_empty(held[0].cast(kind), held[0])


class SignedText(SignedList):
    """Texts one behind the other.

    Args:
        separator: what stands between two.
    """

    def __init__(self, kind: pa.DataType, separator: str) -> None:
        super().__init__(kind)
        self._separator = separator

    def result(self, held: list[pa.Array], kind: pa.DataType) -> pa.Array:
        return _null_if_empty(pc.binary_join(held[0].cast(pa.list_(pa.string())), self._separator).cast(kind), held[0])


class SignedMultiset(SignedList):
    """How often there is each value, as a map."""

    def result(self, held: list[pa.Array], kind: pa.DataType) -> pa.Array:
        items, lengths = held[0].flatten(), np.diff(ends_in(held[0]))
        of = np.repeat(np.arange(len(held[0])), lengths)
        codes = numbers_in(encode_columns(items).dictionary_encode().indices).astype(np.int64)
        _, first, counts = np.unique(of * (len(items) + 1) + codes, return_index=True, return_counts=True)
        order = np.argsort(first)
        first, counts = first[order], counts[order]
        ends = np.searchsorted(of[first], np.arange(len(held[0]) + 1)).astype(np.int32)
        keys, values = items.take(indices_of(first)), column_of(counts, pa.int64())
        made = pa.MapArray.from_arrays(
            column_of(ends, pa.int32()), keys.cast(kind.key_type), values.cast(kind.item_type)
        )
        return made if made.type == kind else made.cast(kind)


class SeveralRows(TerminalError):
    """A sub-query that is used as a value gave several rows."""

    kind = "several_rows"


class SignedSingle(SignedList):
    """The value of the only row; null for no row."""

    def result(self, held: list[pa.Array], kind: pa.DataType) -> pa.Array:
        lengths = np.diff(ends_in(held[0]))
        if (lengths > 1).any():
            raise SeveralRows(
                f"a sub-query that is used as a value gave {int(lengths.max())} rows",
                next="let it give one row: aggregate it, such as MAX(x), or compare with IN",
            )
        places = np.where(lengths > 0, np.cumsum(lengths) - 1, -1)
        return taken(held[0].flatten(), places).cast(kind)


class SignedOwn(SignedAccumulator):
    """An aggregate of a user's own."""

    def __init__(self, function: GroupFunction) -> None:
        super().__init__(function.types[0])
        self._function = function

    @property
    def types(self) -> list[pa.DataType]:
        return list(self._function.types)

    def fold(self, held: list[pa.Array], folded: FoldedRows) -> list[pa.Array]:
        rows = folded.rows
        return self._function.fold(held, rows.values, rows.signs, rows.of)

    def result(self, held: list[pa.Array], kind: pa.DataType) -> pa.Array:
        made = self._function.result(held)
        return made if made.type == kind else made.cast(kind)


def _without_retracted(items: pa.Array, of: Numbers, signs: Numbers) -> Numbers:
    """Return the places of values that stay: as many as are taken away go, the first ones of each group and value."""
    codes = numbers_in(encode_columns(items).dictionary_encode().indices).astype(np.int64)
    return not_taken_away(of * (len(items) + 1) + codes, signs)


def _null_if_empty(results: pa.Array, lists: pa.Array) -> pa.Array:
    filled = np.diff(ends_in(lists)) > 0
    return taken(results, np.where(filled, np.arange(len(filled)), -1))


def _plus(held: pa.Array, rows: SignedValues) -> pa.Array:
    return column_of(whole(held) + rows.sums(rows.signs), pa.int64())


def _positive(counts: pa.Array) -> Flags:
    flags: Flags = whole(counts) > 0
    return flags


def _as(totals: pa.Array, kind: pa.DataType, there: Flags) -> pa.Array:
    """Return numbers as a type, null where there is none; whole numbers wrap around.

    Raises:
        TerminalError: a decimal does not fit.
    """
    if pa.types.is_integer(kind) and totals.type == pa.int64():
        return column_of(numbers_in(totals).astype(f"<i{kind.bit_width // 8}"), kind, there)
    shown = taken(totals, np.where(there, np.arange(len(there)), -1))
    try:
        return shown.cast(kind, safe=not pa.types.is_floating(kind))
    except pa.ArrowInvalid as error:
        raise too_large(kind, str(error)) from error
