"""The aggregates of a group, and the tables that some of them share: what rows change of them, and their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, indices_of, joined
from poundlock.operators.columns.changelog.accumulators import (
    FoldedRows,
    SignedAccumulator,
    SignedArray,
    SignedAvg,
    SignedCount,
    SignedEnd,
    SignedExtreme,
    SignedMultiset,
    SignedOwn,
    SignedSingle,
    SignedSum,
    SignedText,
    check_addable,
)
from poundlock.operators.columns.changelog.signed import SignedValues
from poundlock.operators.columns.changelog.values import ValueChanges, ValueCounts, ValueOrders, columns_text
from poundlock.operators.columns.rows.keys import HashKeys, RowsByKey
from poundlock.operators.keyed.group import KeyGroup
from poundlock.stream.changelog_nodes import AggregateCall

Source = tuple[str | None, str | None]
"""The column and the filter of an aggregate."""
_KEEP_NULLS = ("array_agg", "single_value", "own")


@dataclass(frozen=True)
class GroupAggregates:
    """Several aggregates over the same rows. Picklable.

    Args:
        calls: what they are.
        schema: the columns of rows.
        retracts: whether rows may be taken away.
        hash_keys: the hash of columns.
        ttl_ms: time to live of what is kept, None for ever.
    """

    calls: Sequence[AggregateCall]
    schema: pa.Schema
    retracts: bool
    hash_keys: HashKeys
    ttl_ms: int | None = None

    @property
    def columns(self) -> list[str]:
        """The columns of rows that they look at."""
        names = [name for call in self.calls for name in (call.column, call.filter) if name is not None]
        return list(dict.fromkeys(names))

    def work(self) -> GroupAggregatesWork:
        """Return what does the work of one task."""
        return GroupAggregatesWork(self)


class GroupAggregatesWork:
    """The aggregates of the groups of one task."""

    def __init__(self, of: GroupAggregates) -> None:
        self._of = of
        self._counts: dict[Source, ValueCounts] = {}
        self._orders: list[ValueOrders] = []
        self._parts = [self._part(call) for call in of.calls]
        schemas = [
            [pa.field(f"{call.name}.{n}", kind) for n, kind in enumerate(part.types)]
            for call, part in zip(of.calls, self._parts, strict=True)
        ]
        self._widths = [len(each) for each in schemas]
        self.schema = pa.schema([pa.field("rows", pa.int64()), *(field for each in schemas for field in each)])
        """What is kept of a group: how many rows it has, and what each aggregate keeps."""

    @property
    def holds(self) -> tuple[str, ...]:
        """What the state is of, as it stands in a manifest."""
        calls = [
            f"{call.function if call.own is None else call.own.described}{' distinct' if call.distinct else ''}"
            f" {columns_text(pa.schema([self._argument(call)]))}"
            for call in self._of.calls
        ]
        return (columns_text(self.schema), *calls, *(["append-only"] if not self._of.retracts else []))

    def _argument(self, call: AggregateCall) -> pa.Field:
        return pa.field("*", pa.int64()) if call.column is None else self._of.schema.field(call.column)

    def _part(self, call: AggregateCall) -> SignedAccumulator:
        kind, retracts = self._argument(call).type, self._of.retracts
        extreme = call.function in ("min", "max")
        if (call.distinct and not extreme) or (extreme and retracts):
            source = (call.column, call.filter)
            if source not in self._counts:
                number = len(self._counts)
                self._counts[source] = ValueCounts(number, kind, self._of.hash_keys, self._of.ttl_ms, retracts)
        if extreme:
            counts = self._counts[call.column, call.filter] if retracts else None
            return SignedExtreme(kind, greatest=call.function == "max", counts=counts)
        if call.function in ("first_value", "last_value"):
            last, orders = call.function == "last_value", None
            if retracts:
                orders = ValueOrders(len(self._orders), kind, self._of.hash_keys, self._of.ttl_ms, last)
                self._orders.append(orders)
            return SignedEnd(kind, last=last, orders=orders)
        if call.own is not None:
            return SignedOwn(call.own)
        return _plain(call, kind)

    def declare(self, group: KeyGroup) -> None:
        """Say what the tables beside the groups hold; called with each group."""
        for values in (*self._counts.values(), *self._orders):
            values.table.declare(group)

    def store(self, store: Any) -> None:
        """Have what changed in those tables written with the checkpoint."""
        for values in (*self._counts.values(), *self._orders):
            values.table.store(store)

    def drop(self, group: KeyGroup) -> None:
        """Remove those tables."""
        for values in (*self._counts.values(), *self._orders):
            values.table.drop(group)

    def fold(
        self, store: Any, keys: RowsByKey, rows: pa.RecordBatch, signs: Numbers, held: Sequence[pa.Array]
    ) -> list[pa.Array]:
        """Return what is kept of each group after some rows.

        Args:
            keys: the groups that have rows.
            rows: in the order they came; `signs`: 1 or -1 of each.
            held: what is kept of each group before, null where it is new.
        """
        order = keys.groups.order
        places = indices_of(order)
        of = np.repeat(np.arange(len(keys)), keys.groups.counts)
        every = SignedValues(None, signs[order], of, len(keys))
        sources: dict[tuple[Source, bool], SignedValues] = {}
        changes: dict[Source, ValueChanges] = {}

        def chosen(source: Source, *, nulls: bool) -> SignedValues:
            if (source, nulls) not in sources:
                name, flags = source
                values = None if name is None else rows.column(name).take(places)
                some = SignedValues(values, every.signs, of, len(keys))
                if flags is not None:
                    some = some.counted(rows.column(flags).take(places))
                sources[source, nulls] = some if nulls or values is None else some.not_null()
            return sources[source, nulls]

        def changed(source: Source) -> ValueChanges:
            if source not in changes:
                changes[source] = self._counts[source].fold(store, keys, chosen(source, nulls=False))
            return changes[source]

        kept = list(SignedCount().fold([held[0]], FoldedRows(store, keys, every)))
        at = 1
        for call, part, width in zip(self._of.calls, self._parts, self._widths, strict=True):
            source = (call.column, call.filter)
            own, change = chosen(source, nulls=call.function in _KEEP_NULLS), None
            if isinstance(part, SignedExtreme):
                change = changed(source) if part.retracts else None
            elif call.distinct:
                own = changed(source).distinct(len(keys))
            kept += part.fold(list(held[at : at + width]), FoldedRows(store, keys, own, change))
            at += width
        return kept

    def results(self, kept: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the results of groups, one column an aggregate.

        Raises:
            TerminalError: a decimal is too large, or a value that is to be the only one is not.
        """
        at, results = 1, []
        for call, part, width in zip(self._of.calls, self._parts, self._widths, strict=True):
            results.append(part.result(list(kept[at : at + width]), call.type))
            at += width
        return results

    def starting(self, places: Numbers, columns: Sequence[pa.Array], count: int) -> list[pa.Array]:
        """Return what is kept of each of some groups before they have rows: what state has of some, null of the others.

        Args:
            places: the groups that state has, ascending; `columns`: what it has of them.
            count: of all groups.
        """
        at = np.full(count, len(places))
        at[places] = np.arange(len(places))
        rows = indices_of(at)
        return [joined([column, pa.nulls(1, column.type)]).take(rows) for column in columns]


def _plain(call: AggregateCall, kind: pa.DataType) -> SignedAccumulator:
    """Return an aggregate that needs no table.

    Raises:
        DefinitionError: values of the type cannot be added up.
    """
    check_addable(call.function, call.column, kind)
    made: dict[str, Callable[[], SignedAccumulator]] = {
        "count": SignedCount,
        "sum": lambda: SignedSum(kind),
        "avg": lambda: SignedAvg(kind),
        "array_agg": lambda: SignedArray(kind),
        "collect": lambda: SignedMultiset(kind),
        "listagg": lambda: SignedText(kind, call.separator),
        "single_value": lambda: SignedSingle(kind),
    }
    return made[call.function]()
