"""The values that the rows of each group have, in a table of one entry a group and value: what an aggregate needs that may lose a value.

A checkpoint reads and writes the entries of the values that its rows have, however many a group has; only where the least, greatest,
first or last of a group is gone are the others looked through.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from poundlock.formats import ddl
from poundlock.formats.arrays import Flags, Numbers, column_of, ends_in, indices_of, numbers_in
from poundlock.operators.columns.changelog.signed import SignedValues, canonical, taken
from poundlock.operators.columns.records import decode_records, encode_records, layout_of
from poundlock.operators.columns.rows.keys import HashKeys, RowsByKey
from poundlock.operators.columns.rows.map_table import MAP, MapEntries, MapTable, entries_of

_COUNT = pa.schema([("count", pa.int64())])
_ORDERS = pa.schema([("orders", pa.large_binary())])


def encode_columns(*columns: pa.Array) -> pa.Array:
    """Return each row of columns as the bytes that state keeps, large_binary."""
    return encode_records(pa.RecordBatch.from_arrays(list(columns), [str(n) for n in range(len(columns))]))


def columns_text(schema: pa.Schema) -> str:
    """Return columns as the text that stands in a manifest."""
    return layout_of(schema) or ", ".join(f"{field.name} {field.type}" for field in schema)


class ValueChanges(NamedTuple):
    """What became of values of groups.

    Args:
        entries: the different values of each group that rows had.
        of: the group of each.
        values: what it is.
        appeared: whether it is there and was not.
        gone: whether it was there and is not.
        there: whether it is there.
        first: the place of its first row among the rows.
    """

    entries: MapEntries
    of: Numbers
    values: pa.Array
    appeared: Flags
    gone: Flags
    there: Flags
    first: Numbers

    def distinct(self, groups: int) -> SignedValues:
        """Return the values that came and went, each as one row."""
        changed = np.flatnonzero(self.appeared | self.gone)
        order = changed[np.lexsort((self.first[changed], self.of[changed]))]
        values = self.values.take(indices_of(order))
        return SignedValues(values, np.where(self.appeared[order], 1, -1), self.of[order], groups)


@dataclass
class _Values:
    """A table of the values of groups.

    Args:
        number: tells it apart from others of the operator.
        kind: type of the values.
    """

    number: int
    kind: pa.DataType
    hash_keys: HashKeys
    ttl_ms: int | None
    table: MapTable = field(init=False)

    def _table(self, name: str, of: pa.Schema) -> MapTable:
        holds = (ddl.render_type(self.kind) if _has_name(self.kind) else str(self.kind), columns_text(of))
        return MapTable(f"{name} {self.number}", f"{MAP}{name}", holds, self.ttl_ms)

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([("value", self.kind)])

    def _entries(self, keys: RowsByKey, rows: SignedValues) -> tuple[MapEntries, Numbers, Numbers]:
        subkeys = encode_columns(canonical(rows.values))
        return entries_of(keys.hashes[rows.of], keys.keys.take(indices_of(rows.of)), subkeys, self.hash_keys)

    def encoded(self, values: pa.Array) -> pa.Array:
        """Return values as the bytes that tell entries apart."""
        return encode_columns(canonical(values))


@dataclass
class ValueCounts(_Values):
    """How often the rows of each group have a value.

    Args:
        retracts: whether rows may be taken away; where not, that a value is there is all that is kept.
    """

    retracts: bool = True

    def __post_init__(self) -> None:
        self.table = self._table("counts", _COUNT)

    def fold(self, store: Any, keys: RowsByKey, rows: SignedValues) -> ValueChanges:
        """Take rows, none of which has a null; return what became of their values."""
        entries, first, which = self._entries(keys, rows)
        places, held = self.table.look_up(store, entries)
        before = np.zeros(len(entries), np.int64)
        before[places] = numbers_in(decode_records(held, _COUNT).column(0))
        after = before.copy()
        np.add.at(after, which, rows.signs)
        if self.retracts:
            changed = np.flatnonzero(after != before)
        else:
            after = np.ones_like(before)
            changed = np.flatnonzero(before == 0)
        counts = column_of(after[changed], pa.int64())
        put = taken(encode_columns(counts), np.where(after[changed] != 0, np.arange(len(changed)), -1))
        self.table.put(store, entries.take(changed), put)
        appeared, gone = (before <= 0) & (after > 0), (before > 0) & (after <= 0)
        return ValueChanges(
            entries, rows.of[first], rows.values.take(indices_of(first)), appeared, gone, after > 0, first
        )

    def there(self, store: Any, keys: RowsByKey, groups: Numbers) -> SignedValues:
        """Return all values that some groups have."""
        of, subkeys, counts = self.table.entries_within(store, keys.hashes[groups], keys.keys.take(indices_of(groups)))
        positive = np.flatnonzero(numbers_in(decode_records(counts, _COUNT).column(0)) > 0)
        positive = positive[np.argsort(of[positive], kind="stable")]
        values = decode_records(subkeys.take(indices_of(positive)), self._schema).column(0)
        return SignedValues(values, np.ones(len(positive), np.int64), of[positive], len(groups))


class OrderedEnds(NamedTuple):
    """The first or last value of groups.

    Args:
        values: some values; `orders`: when each came.
        of: the group of each.
    """

    values: pa.Array
    orders: Numbers
    of: Numbers


@dataclass
class ValueOrders(_Values):
    """When the rows of each group that have a value came, as whole numbers that ascend within the group.

    Args:
        last: whether the last row of a value counts, and not the first.
    """

    last: bool = False

    def __post_init__(self) -> None:
        self.table = self._table("orders", _ORDERS)

    def fold(
        self, store: Any, keys: RowsByKey, rows: SignedValues, orders: Numbers, ends: Numbers
    ) -> tuple[OrderedEnds, Flags]:
        """Take rows, none of which has a null. Of equal values that which came first is taken away.

        Args:
            orders: of each row.
            ends: which order each group's value has so far, -1 for none.

        Returns:
            The end of each value that rows had and that is left, and of which groups the end so far is gone.
        """
        entries, first, which = self._entries(keys, rows)
        group = rows.of[first]
        places, held = self.table.look_up(store, entries)
        of_old, old = orders_in(held)
        of_old = places[of_old]
        added = np.flatnonzero(rows.signs > 0)
        of, every = np.concatenate([of_old, which[added]]), np.concatenate([old, orders[added]])
        by_entry = np.argsort(of, kind="stable")
        of, every = of[by_entry], every[by_entry]
        removed = np.bincount(which[rows.signs < 0], minlength=len(entries))
        starts = np.searchsorted(of, np.arange(len(entries)))
        left = np.arange(len(of)) - starts[of] >= removed[of]
        of, every = of[left], every[left]
        counts = np.bincount(of, minlength=len(entries))
        values = taken(encode_columns(packed_orders(every, counts)), np.where(counts > 0, np.arange(len(entries)), -1))
        self.table.put(store, entries, values)
        was, still = (np.zeros(rows.groups, np.bool_) for _ in range(2))
        was[group[of_old[old == ends[group[of_old]]]]] = True
        still[group[of[every == ends[group[of]]]]] = True
        there = np.flatnonzero(counts)
        at = (np.cumsum(counts) - (1 if self.last else counts))[there]
        left_values = rows.values.take(indices_of(first[there]))
        return OrderedEnds(left_values, every[at], group[there]), was & ~still

    def there(self, store: Any, keys: RowsByKey, groups: Numbers) -> OrderedEnds:
        """Return the end of each value that some groups have; `of` are places in `groups`."""
        of, subkeys, held = self.table.entries_within(store, keys.hashes[groups], keys.keys.take(indices_of(groups)))
        entry, orders = orders_in(held)
        at = np.flatnonzero(np.diff(entry, append=-1) if self.last else np.diff(entry, prepend=-1))
        values = decode_records(subkeys, self._schema).column(0)
        return OrderedEnds(values.take(indices_of(entry[at])), orders[at], of[entry[at]])


def orders_in(values: pa.Array) -> tuple[Numbers, Numbers]:
    """Return the orders that entries have, ascending, and which entry each is of."""
    packed = decode_records(values, _ORDERS).column(0)
    ends, data = ends_in(packed), packed.buffers()[2]
    orders = np.frombuffer(b"" if data is None else data, np.uint8)[ends[0] : ends[-1]].view("<i8")
    return np.repeat(np.arange(len(values)), np.diff(ends) // 8), orders


def packed_orders(orders: Numbers, counts: Numbers) -> pa.Array:
    """Return so many orders each as byte strings."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts) * 8])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(orders.astype("<i8")))]
    return pa.Array.from_buffers(pa.large_binary(), len(counts), buffers)


def _has_name(kind: pa.DataType) -> bool:
    return layout_of(pa.schema([("value", kind)])) is not None
