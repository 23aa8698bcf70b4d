"""The first rows of each key in an order, over a changelog, by columns: what a checkpoint changes of the places that are wanted.

Of a key that has many rows, a checkpoint reads and writes a few: the rows that come first, some more than are wanted, are in a table of
their own, and all others in another. Rows come and go in either; only where so many of the first are gone that those left are too few,
the others of the key are looked through. Equal rows are told apart by when they came, and of them the one that came first is taken away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, binary_array, ends_in, indices_of, joined, numbers_in
from poundlock.operators.columns.changelog.signed import signs_of, taken
from poundlock.operators.columns.changelog.values import columns_text, encode_columns, orders_in, packed_orders
from poundlock.operators.columns.groups import Hashes
from poundlock.operators.columns.operator import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    ColumnChunk,
    ColumnOperator,
    change_chunks,
    change_schema,
)
from poundlock.operators.columns.records import decode_records, encode_records, joined_rows
from poundlock.operators.columns.rows.gathered import GatheredRows
from poundlock.operators.columns.rows.keys import NO_TIME, RowKeys, RowsByKey
from poundlock.operators.columns.rows.map_table import MAP, MapEntries, MapTable, entries_of, entry_hashes
from poundlock.operators.columns.sql.ordinals import order_keys
from poundlock.operators.keyed.group import KeyGroup
from poundlock.stream.nodes import SortColumn, places_text

_LEAST_SPARE, _MOST_SPARE = 8, 1024  # how many rows more than are wanted are among the first ones
_FIRST, _OTHER, _NEW = range(3)  # where a row was before the checkpoint
_HAS_OTHERS = b""
"""The entry among the first rows of a key that says that it has others; a row has some bytes at least."""


@dataclass(frozen=True)
class ColumnChangelogTopN:
    """The first rows of each key over a changelog. Picklable.

    Args:
        schema: the columns of a row, without the kind of change.
        keys: of a row.
        order_by: columns, the most important first; rows that are equal in all of them stand in the order they came.
        first: the first place that is wanted, from 1; `last` likewise.
        rank: the column with the place of a row; None where it is not wanted.
        update_before: whether the row that had a place is given before the one that takes it.
        newest_first: whether of rows that are equal in the order the one that came last is before.
        ttl_ms: how long a row is kept, by the clock; None for ever. The first rows live on with each change of their key, the others from when
            they were put there, as in Flink.
        bounded: whether only the last state of each key is wanted, at the end of the input.
    """

    schema: pa.Schema
    keys: RowKeys
    order_by: Sequence[SortColumn]
    first: int
    last: int
    rank: str | None = None
    update_before: bool = True
    newest_first: bool = False
    ttl_ms: int | None = None
    bounded: bool = False

    @property
    def changes(self) -> pa.Schema:
        """The columns that come out."""
        return change_schema(self.schema, self.rank)

    @property
    def holds(self) -> tuple[str, ...]:
        """What state is of: rows of other columns or in another order are of no use, nor are those of fewer places."""
        newest = ", the newest first" if self.newest_first else ""
        return columns_text(self.schema), f"{places_text(self.first, self.last, self.order_by)}{newest}"

    @property
    def kept(self) -> int:
        """How many rows of a key are among the first ones at most."""
        return self.last + min(max(self.last, _LEAST_SPARE), _MOST_SPARE)

    def operator(self) -> ColumnChangelogTopNOperator:
        """Return a new operator."""
        return ColumnChangelogTopNOperator(self)

    def sorted(self, records: pa.RecordBatch, rows: _Rows, keys: Numbers) -> Numbers:
        """Return the places of rows by key, and of a key in the order.

        Args:
            records: the different ones.
            keys: the number of the key of each record.
        """
        by: list[Numbers] = [-rows.orders if self.newest_first else rows.orders]
        for each in reversed(self.order_by):
            column = records.column(each.column)
            by += [
                numbers[rows.records]
                for numbers in order_keys(column, descending=each.descending, nulls_first=each.nulls_first)
            ]
        return np.lexsort((*by, keys[rows.records]))


class _Rows(NamedTuple):
    """Rows of keys.

    Args:
        records: the number of the record that each is, among the different ones.
        orders: when each came.
        was: where each was.
        gone: which are taken away.
    """

    records: Numbers
    orders: Numbers
    was: Numbers
    gone: Flags


class _Entries(NamedTuple):
    """Entries of a table: the number of the key of each, its record, and when its rows came."""

    keys: Numbers
    records: pa.Array
    orders: pa.Array

    def where(self, flags: Flags) -> _Entries:
        """Return some of them."""
        places = np.flatnonzero(flags)
        indices = indices_of(places)
        return _Entries(self.keys[places], self.records.take(indices), self.orders.take(indices))

    def and_others(self, others: _Entries) -> _Entries:
        """Return these and others."""
        return _Entries(
            np.concatenate([self.keys, others.keys]),
            joined([self.records, others.records]),
            joined([self.orders, others.orders]),
        )


class _Changes(NamedTuple):
    """The rows of a checkpoint: the number of the key of each, its record, its number, and 1 or -1 for one that is taken away."""

    keys: Numbers
    records: pa.Array
    orders: Numbers
    signs: Numbers


@dataclass(frozen=True)
class _Arranged:
    """All rows that a checkpoint is about, in their order.

    Args:
        numbers: the number of the key of each record.
        encoded: the bytes of each record; `records`: its columns.
        rows: by key, and of a key in the order.
        first: which of the rows are among the first ones of their key now; `other`: are not, and are there.
        short: the keys that have too few first rows while there may be others.
    """

    numbers: Numbers
    encoded: pa.Array
    records: pa.RecordBatch
    rows: _Rows
    first: Flags
    other: Flags
    short: Flags

    @property
    def keys(self) -> Numbers:
        """The number of the key of each row."""
        return self.numbers[self.rows.records]


class ColumnChangelogTopNOperator(ColumnOperator):
    """The first rows of each key."""

    def __init__(self, of: ColumnChangelogTopN) -> None:
        super().__init__()
        self._of, self._schema = of, of.changes
        self._firsts = MapTable("first", f"{MAP}first rows", of.holds, of.ttl_ms)
        self._others = MapTable("others", f"{MAP}other rows", of.holds, of.ttl_ms)
        self._added = GatheredRows()

    def bind(self, group: KeyGroup) -> None:
        for table in (self._firsts, self._others):
            table.declare(group)
        if self._of.bounded and not self._firsts.is_empty(group):
            group.wake_at_end()

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        if self._added.add(rows):
            yield from self._fold()

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[Any]:
        self.use(group)
        yield from self._fold()
        yield from super().advance_watermark(group, watermark)

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        for table in (self._firsts, self._others):
            table.store(self.rows)

    # --- what changes ---------------------------------------------------------------------------------------------------

    def _fold(self) -> Iterator[ColumnChunk]:
        """Put the rows that came into their places, and yield what changed of those that are wanted."""
        (added,) = self._added.take()
        if not added:
            return
        rows, of = joined_rows(added), self._of
        keys = RowsByKey.of(rows, of.keys)
        orders = self.group.arrived + np.arange(rows.num_rows)
        self.group.arrived += rows.num_rows
        records = encode_records(rows.select(of.schema.names).cast(of.schema))
        changes = _Changes(keys.groups.numbers, records, orders, signs_of(rows))
        firsts = _Entries(*self._firsts.entries_within(self.rows, keys.hashes, keys.keys))
        marks = np.diff(ends_in(firsts.records)) == 0
        more = np.zeros(len(keys), np.bool_)
        more[firsts.keys[marks]] = True
        firsts = firsts.where(~marks)
        changed = np.flatnonzero(more[changes.keys])
        others = self._others_of(keys, changes.keys[changed], changes.records.take(indices_of(changed)))
        arranged = self._arranged(changes, firsts, others, more)
        looked_at = more & arranged.short
        if looked_at.any():
            all_others = self._all_others(keys, np.flatnonzero(looked_at))
            others = others.where(~looked_at[others.keys]).and_others(all_others)
            arranged = self._arranged(changes, firsts, others, more & ~looked_at)
        pushed = self._beside_pushed(keys, arranged, more & ~looked_at)
        if len(pushed.keys):
            others = others.and_others(pushed)
            arranged = self._arranged(changes, firsts, others, more & ~looked_at)
        has_others = more & ~looked_at
        has_others[arranged.keys[arranged.other]] = True
        self._put(keys, arranged, (more, has_others))
        if of.bounded:
            self.group.wake_at_end()
        else:
            yield from self._changed(arranged)

    def _others_of(self, keys: RowsByKey, own: Numbers, records: pa.Array) -> _Entries:
        """Return what the other rows have of some records.

        Args:
            own: the number of the key of each.
        """
        key_bytes = keys.keys.take(indices_of(own))
        entries, first, _ = entries_of(keys.hashes[own], key_bytes, records, self._of.keys.hash_keys)
        at, values = self._others.look_up(self.rows, entries)
        return _Entries(own[first[at]], entries.subkeys.take(indices_of(at)), values)

    def _beside_pushed(self, keys: RowsByKey, arranged: _Arranged, more: Flags) -> _Entries:
        """Return the other rows that are equal to one that is among the first ones no more, where they were not read.

        Equal rows are one entry of the table, so the row that comes to the others is put beside those. They stay where they are.

        Args:
            more: which keys have others that were not all read.
        """
        rows, count = arranged.rows, len(arranged.numbers)
        read = np.zeros(count, np.bool_)
        read[rows.records[rows.was == _OTHER]] = True
        pushed = np.zeros(count, np.bool_)
        pushed[rows.records[(rows.was == _FIRST) & arranged.other]] = True
        records = np.flatnonzero(pushed & ~read & more[arranged.numbers])
        return self._others_of(keys, arranged.numbers[records], arranged.encoded.take(indices_of(records)))

    def _all_others(self, keys: RowsByKey, numbers: Numbers) -> _Entries:
        """Return all rows that are not among the first ones of some keys."""
        of, records, values = self._others.entries_within(
            self.rows, keys.hashes[numbers], keys.keys.take(indices_of(numbers))
        )
        return _Entries(numbers[of], records, values)

    def _arranged(self, changes: _Changes, firsts: _Entries, others: _Entries, more: Flags) -> _Arranged:
        """Put rows in order: those that were among the first ones, those that came, and others.

        Args:
            others: with all rows of the records that change, and of those that come to the others.
            more: of which keys there are others that are not given. Those are behind what was the last of the first ones.
        """
        key_of = np.concatenate([firsts.keys, others.keys, changes.keys])
        every = joined([firsts.records, others.records, changes.records])
        words = key_of * (len(every) + 1) + numbers_in(every.dictionary_encode().indices)
        _, first, which = np.unique(words, return_index=True, return_inverse=True)
        numbers, encoded = key_of[first], every.take(indices_of(first))
        records = decode_records(encoded, self._of.schema)
        rows = _rows_of((firsts, others), changes, which)
        order = self._of.sorted(records, rows, numbers)
        rows = _Rows(rows.records[order], rows.orders[order], rows.was[order], rows.gone[order])
        # Behind what was the last of the first ones of a key there may be rows that are not given.
        keys, last = numbers[rows.records], np.flatnonzero(rows.was == _FIRST)
        bound = np.where(more, -1, len(keys))
        np.maximum.at(bound, keys[last], last)
        known = ~rows.gone & (np.arange(len(keys)) <= bound[keys])
        first = known & (_ranks(keys, known) < self._of.kept)
        short = more & (np.bincount(keys[known], minlength=len(more)) < self._of.last)
        return _Arranged(numbers, encoded, records, rows, first, ~rows.gone & ~first, short)

    # --- what is kept ---------------------------------------------------------------------------------------------------

    def _put(self, keys: RowsByKey, arranged: _Arranged, others: tuple[Flags, Flags]) -> None:
        """Put what changed of the tables.

        Args:
            others: which keys had rows that are not among the first ones, and which have.
        """
        rows = arranged.rows
        lives = self._of.ttl_ms is not None
        for table, was, now in (
            (self._firsts, rows.was == _FIRST, arranged.first),
            (self._others, rows.was == _OTHER, arranged.other),
        ):
            # With a time to live the first rows of a key are over together, which is when it last changed.
            changed = was | now if lives and table is self._firsts else was != now
            self._put_rows(table, keys, arranged, np.unique(rows.records[changed]), now)
        had, has = others
        marked = np.flatnonzero(has | had if lives else has != had)
        if len(marked):
            mark = binary_array([_HAS_OTHERS])
            hashes = entry_hashes(keys.hashes[marked], np.repeat(self._of.keys.hash_keys([mark]), len(marked)))
            there = np.where(has[marked], np.arange(len(marked)), -1)
            none = encode_columns(packed_orders(np.empty(0, np.int64), np.zeros(len(marked), np.int64)))
            self._put_entries(
                self._firsts,
                hashes,
                keys.keys.take(indices_of(marked)),
                _repeated(mark, len(marked)),
                taken(none, there),
            )

    def _put_rows(self, table: MapTable, keys: RowsByKey, arranged: _Arranged, records: Numbers, now: Flags) -> None:
        """Put records of which some rows are in a table that were not, or the other way round.

        Args:
            now: which rows are in it.
        """
        if not len(records):
            return
        rows = arranged.rows
        places = np.flatnonzero(now & np.isin(rows.records, records))
        places = places[np.lexsort((rows.orders[places], rows.records[places]))]
        counts = np.bincount(rows.records[places], minlength=len(arranged.numbers))[records]
        packed = encode_columns(packed_orders(rows.orders[places], counts))
        values = taken(packed, np.where(counts > 0, np.arange(len(records)), -1))
        numbers, subkeys = arranged.numbers[records], arranged.encoded.take(indices_of(records))
        hashes = entry_hashes(keys.hashes[numbers], self._of.keys.hash_keys([subkeys]))
        self._put_entries(table, hashes, keys.keys.take(indices_of(numbers)), subkeys, values)

    def _put_entries(
        self, table: MapTable, hashes: Hashes, keys: pa.Array, subkeys: pa.Array, values: pa.Array
    ) -> None:
        order = np.argsort(hashes, kind="stable")
        indices = indices_of(order)
        entries = MapEntries(hashes[order], keys.take(indices), subkeys.take(indices))
        table.put(self.group, entries, values.take(indices))

    # --- what comes out -------------------------------------------------------------------------------------------------

    def _changed(self, arranged: _Arranged) -> Iterator[ColumnChunk]:
        was, now = (self._shown(arranged, which) for which in (arranged.rows.was == _FIRST, arranged.first))
        report = self._replaced if self._of.rank is None else self._moved
        places, kinds, ranks = report(arranged, was, now)
        times = np.full(len(places), NO_TIME)
        yield from change_chunks(arranged.records.columns, self._schema, places, kinds, times, ranks=ranks)

    def _shown(self, arranged: _Arranged, which: Flags) -> tuple[Numbers, Numbers]:
        """Return the rows of some that are in a place that is wanted, and those places, from 0."""
        ranks = _ranks(arranged.keys, which)
        places = np.flatnonzero(which & (ranks >= self._of.first - 1) & (ranks < self._of.last))
        return places, ranks[places]

    def _replaced(
        self, arranged: _Arranged, was: tuple[Numbers, Numbers], now: tuple[Numbers, Numbers]
    ) -> tuple[Numbers, Numbers, None]:
        """Return which records came and went, of a key those that went first; an equal record in another place is no change."""
        count = len(arranged.numbers)
        before, after = (np.bincount(arranged.rows.records[places], minlength=count) for places, _ in (was, now))
        net = after - before
        gone, new = np.repeat(np.arange(count), np.maximum(-net, 0)), np.repeat(np.arange(count), np.maximum(net, 0))
        places = np.concatenate([gone, new])
        kinds = np.repeat([DELETE, INSERT], [len(gone), len(new)])
        order = np.lexsort((kinds == INSERT, arranged.numbers[places]))
        return places[order], kinds[order], None

    def _moved(
        self, arranged: _Arranged, was: tuple[Numbers, Numbers], now: tuple[Numbers, Numbers]
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Return which places have another record, or have one no more."""
        words = [arranged.keys[places] * self._of.last + ranks for places, ranks in (was, now)]
        every = np.union1d(*words)
        before, after = np.full(len(every), -1), np.full(len(every), -1)
        for records, own, (places, _) in zip((before, after), words, (was, now), strict=True):
            records[np.searchsorted(every, own)] = arranged.rows.records[places]
        differs = before != after
        first = np.where(differs & ((after < 0) | self._of.update_before), before, -1)
        records = np.stack([first, np.where(differs, after, -1)], axis=1).reshape(-1)
        kinds = np.stack(
            [np.where(after < 0, DELETE, UPDATE_BEFORE), np.where(before < 0, INSERT, UPDATE_AFTER)], axis=1
        )
        shown = np.flatnonzero(records >= 0)
        ranks = np.repeat(every % self._of.last + 1, 2)
        return records[shown], kinds.reshape(-1)[shown], ranks[shown]

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk]:  # type: ignore[override]
        """Yield the rows in the places that are wanted, at the end of the input."""
        entries, values = self._firsts.entries(self.rows)
        of, orders = orders_in(values)
        # An entry that says that a key has others is of no rows.
        used, which = np.unique(of, return_inverse=True)
        keys = numbers_in(entries.keys.dictionary_encode().indices).astype(np.int64)[used]
        records = decode_records(entries.subkeys.take(indices_of(used)), self._of.schema)
        rows = _Rows(which, orders, np.zeros(len(of), np.int64), np.zeros(len(of), np.bool_))
        row_records = which[self._of.sorted(records, rows, keys)]
        ranks = _ranks(keys[row_records], np.ones(len(row_records), np.bool_))
        shown = np.flatnonzero((ranks >= self._of.first - 1) & (ranks < self._of.last))
        yield from change_chunks(
            records.columns,
            self._schema,
            row_records[shown],
            np.full(len(shown), INSERT),
            np.full(len(shown), NO_TIME),
            ranks=None if self._of.rank is None else ranks[shown] + 1,
        )
        for table in (self._firsts, self._others):
            table.drop(self.group)


def _rows_of(tables: Sequence[_Entries], changes: _Changes, which: Numbers) -> _Rows:
    """Return the rows of tables and those that came. Of equal ones those that came first are taken away.

    Args:
        which: the number of the record of each entry, and behind them of each change.
    """
    records, orders, was, start = [], [], [], 0
    for place, entries in enumerate(tables):
        of, came = orders_in(entries.orders)
        records.append(which[start + of])
        orders.append(came)
        was.append(np.full(len(of), place))
        start += len(entries.keys)
    new, removed = np.flatnonzero(changes.signs > 0), np.flatnonzero(changes.signs < 0)
    row_records, row_orders = (
        np.concatenate([*records, which[start + new]]),
        np.concatenate([*orders, changes.orders[new]]),
    )
    counts = np.bincount(which[start + removed], minlength=int(which.max(initial=-1)) + 1)
    order = np.lexsort((row_orders, row_records))
    rank = np.empty(len(order), np.int64)
    rank[order] = _ranks(row_records[order], np.ones(len(order), np.bool_))
    gone = rank < counts[row_records]
    return _Rows(row_records, row_orders, np.concatenate([*was, np.full(len(new), _NEW)]), gone)


def _ranks(keys: Numbers, some: Flags) -> Numbers:
    """Return the place of each of some rows among those of its key, from 0; rows stand by key."""
    counted = np.cumsum(some) - 1
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    before = counted[starts] - some[starts] + 1
    return counted - np.repeat(before, np.diff(starts, append=len(keys)))


def _repeated(value: pa.Array, count: int) -> pa.Array:
    return value.take(indices_of(np.zeros(count, np.int64)))
