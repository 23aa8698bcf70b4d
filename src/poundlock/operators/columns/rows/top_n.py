"""The first records of each key in an order, by columns, over the state of the operator of single records.

All rows of a checkpoint, and what state has of their keys, are put in one order; from there on a record is the number of its place in
it. Which of them were among the first of their key for a while is decided one by one, among those that are before what state has.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, indices_of, joined
from poundlock.operators.columns.msgpack.values import packed_records
from poundlock.operators.columns.msgpack.writing import lists_of
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
from poundlock.operators.columns.rows.keys import NO_TIME, RowKeys, RowsByKey, times_in
from poundlock.operators.columns.rows.records import lists_of_records
from poundlock.operators.columns.rows.table import KeyTable
from poundlock.operators.columns.sql.ordinals import order_keys
from poundlock.operators.keyed.group import MAX, KeyGroup
from poundlock.operators.pieces import pieces
from poundlock.operators.process.top_n import TOP, TopN


@dataclass(frozen=True)
class ColumnTopN:
    """The first records of each key, and their rows as columns. Picklable.

    Args:
        schema: the columns of a record.
        keys: of a row.
        time: the column of event time; None where there is none.
        bounded: whether only the last state of each key is wanted, at the end of the input.
    """

    top: TopN
    schema: pa.Schema
    keys: RowKeys
    time: str | None
    bounded: bool = False

    def operator(self) -> ColumnTopNOperator:
        """Return a new operator."""
        return ColumnTopNOperator(self)

    def places(self, columns: list[pa.Array]) -> Numbers:
        """Return the place of each row in the order; of equal ones the first is before."""
        keys: list[Numbers] = []
        for each in reversed(self.top.order_by):
            column = columns[self.schema.get_field_index(each.column)]
            keys += order_keys(column, descending=each.descending, nulls_first=each.nulls_first)
        if not keys:
            return np.arange(len(columns[0]) if columns else 0)
        order = np.lexsort(keys) if len(keys) > 1 else np.argsort(keys[0], kind="stable")
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return places


@dataclass
class _Changes:
    """Changes, one behind the other: of which record, its rank from 1, the kind, and the row that made it."""

    records: list[int]
    ranks: list[int]
    kinds: list[int]
    causes: list[int]

    def add(self, record: int, rank: int, kind: int, cause: int) -> None:
        self.records.append(record)
        self.ranks.append(rank)
        self.kinds.append(kind)
        self.causes.append(cause)


class ColumnTopNOperator(ColumnOperator):
    """The first records of each key."""

    def __init__(self, of: ColumnTopN) -> None:
        super().__init__()
        self._of, self._top = of, of.top
        self._changes = change_schema(of.schema, of.top.rank)
        self._table = KeyTable(TOP, TOP, of.top.ttl_ms, of.top.holds)

    def bind(self, group: KeyGroup) -> None:
        self._table.declare(group)
        if self._of.bounded and not self._table.is_empty(group):
            group.wake_at_end()

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        of = self._of
        keys = RowsByKey.of(rows, of.keys)
        known, values = self._table.look_up(self.rows, keys)
        lengths, held = lists_of_records(values, of.schema)
        columns = [joined([a, rows.column(name)]) for a, name in zip(held, of.schema.names, strict=True)]
        key_of = np.concatenate([np.repeat(known, lengths), _key_of_each(keys)])
        place = of.places(columns)
        self._keep(keys, columns, key_of, place, len(place) - rows.num_rows)
        if of.bounded:
            group.wake_at_end()
            return
        changes = self._changed(key_of, place, known, lengths)
        record_at = np.empty(len(place), np.int64)
        record_at[place] = np.arange(len(place))
        times = np.full(rows.num_rows, NO_TIME) if of.time is None else times_in(rows.column(of.time))
        yield from change_chunks(
            columns,
            self._changes,
            record_at[np.array(changes.records, np.int64)],
            np.array(changes.kinds, np.int64),
            times[np.array(changes.causes, np.int64)],
            ranks=None if self._top.rank is None else np.array(changes.ranks, np.int64),
        )

    def _keep(self, keys: RowsByKey, columns: list[pa.Array], key_of: Numbers, place: Numbers, held: int) -> None:
        """Put the first records of keys that have others now.

        Args:
            columns: of the records that were held, so many, and of the rows behind them.
            key_of: the number of the key of each; `place`: in the order.
        """
        order = np.lexsort((place, key_of))
        starts = np.searchsorted(key_of[order], np.arange(len(keys) + 1))
        rank = np.arange(len(order)) - np.repeat(starts[:-1], np.diff(starts))
        order = order[rank < self._top.n]
        changed = np.zeros(len(keys), np.bool_)
        changed[key_of[order[order >= held]]] = True
        order = order[changed[key_of[order]]]
        which = np.flatnonzero(changed)
        counts = np.bincount(key_of[order], minlength=len(keys))[which]
        records = packed_records([column.take(indices_of(order)) for column in columns], self._of.schema.names)
        if len(which):
            lists = lists_of(records, counts)
            self._table.put(self.group, keys.hashes[which], keys.keys.take(indices_of(which)), lists)

    def _changed(self, key_of: Numbers, place: Numbers, known: Numbers, lengths: Numbers) -> _Changes:
        """Return what rows changed, in the order they came.

        Args:
            known: the numbers of keys of which records were held, and `lengths` how many of each; they stand before the rows.
        """
        n, own = self._top.n, int(lengths.sum())
        ends = np.cumsum(lengths)
        tops = {
            key: place[end - length : end].tolist()
            for key, end, length in zip(known.tolist(), ends.tolist(), lengths.tolist(), strict=True)
        }
        limit = np.full(int(key_of.max(initial=0)) + 1, len(place))
        full = lengths == n
        limit[known[full]] = place[ends[full] - 1]
        causes = np.flatnonzero(place[own:] < limit[key_of[own:]])
        changes = _Changes([], [], [], [])
        report = self._replaced if self._top.rank is None else self._moved
        for key, record, cause in zip(
            key_of[own + causes].tolist(), place[own + causes].tolist(), causes.tolist(), strict=True
        ):
            top = tops.setdefault(key, [])
            if len(top) < n or record < top[-1]:
                report(top, record, cause, changes)
        return changes

    def _replaced(self, top: list[int], record: int, cause: int, changes: _Changes) -> None:
        """Put a record among the first of its key: without ranks."""
        if len(top) == self._top.n:
            changes.add(top.pop(), 0, DELETE, cause)
        insort(top, record)
        shown = max(top.index(record), self._top.first - 1)
        if shown < len(top):
            changes.add(top[shown], 0, INSERT, cause)

    def _moved(self, top: list[int], record: int, cause: int, changes: _Changes) -> None:
        """Put a record among the first of its key: with the ranks that have another record now."""
        before = top.copy()
        insort(top, record)
        del top[self._top.n :]
        for rank in range(max(top.index(record), self._top.first - 1), len(top)):
            is_new = rank == len(before)
            if self._top.update_before and not is_new:
                changes.add(before[rank], rank + 1, UPDATE_BEFORE, cause)
            changes.add(top[rank], rank + 1, INSERT if is_new else UPDATE_AFTER, cause)

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk]:  # type: ignore[override]
        """Yield the records of each key."""
        values = self._table.entries(self.rows).values
        for first, count in pieces([values]):
            lengths, columns = lists_of_records(values.slice(first, count), self._of.schema)
            ranks = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
            shown = np.flatnonzero(ranks >= self._top.first)
            yield from change_chunks(
                columns,
                self._changes,
                shown,
                np.full(len(shown), INSERT),
                np.full(len(shown), MAX),
                ranks=None if self._top.rank is None else ranks[shown],
            )
        self._table.drop(self.group)

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        self._table.store(self.rows)


def _key_of_each(keys: RowsByKey) -> Numbers:
    """Return the number of the key of each row."""
    numbers = np.empty(len(keys.groups.order), np.int64)
    numbers[keys.groups.order] = np.repeat(np.arange(len(keys)), keys.groups.counts)
    return numbers
