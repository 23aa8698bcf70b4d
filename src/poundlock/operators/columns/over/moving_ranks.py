"""Numbers of the rows of each key in any order, as a changelog: rows that come or go move others, whose numbers change.

State has all rows of a key, in the order they came. Of the keys that a checkpoint has rows of, rows are numbered as they were and as they
are, and those come out whose numbers differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of, indices_of, joined, numbers_in
from poundlock.operators.columns.changelog.signed import signs_of
from poundlock.operators.columns.changelog.values import columns_text, encode_columns
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
from poundlock.operators.columns.over.order import sorted_rows
from poundlock.operators.columns.records import decode_records, encode_records, joined_rows
from poundlock.operators.columns.rows.gathered import GatheredRows
from poundlock.operators.columns.rows.keys import NO_TIME, RowKeys, RowsByKey
from poundlock.operators.columns.rows.map_table import MAP, MapTable, entries_of
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.stream.nodes import SortColumn
from poundlock.stream.over_nodes import OverCall

_NUMBER = pa.schema([("number", pa.int64())])


@dataclass(frozen=True)
class ColumnMovingRanks:
    """Numbers of rows in any order. Picklable.

    Args:
        keys: of a row.
        schema: the columns of rows; with the kind of change where rows may be taken away.
        order: of the rows of a key; equal ones are in order of arrival.
        calls: "row_number", "rank" and "dense_rank".
        ttl_ms: how long a row is known, None for ever.
    """

    keys: RowKeys
    schema: pa.Schema
    order: Sequence[SortColumn]
    calls: Sequence[OverCall]
    ttl_ms: int | None = None

    @property
    def rows(self) -> pa.Schema:
        """The columns of a row."""
        return pa.schema([field for field in self.schema if field.name != ROW_KIND])

    @property
    def out(self) -> pa.Schema:
        """The columns that come out."""
        return change_schema(pa.schema([*self.rows, *(pa.field(call.name, call.type) for call in self.calls)]))

    def operator(self) -> ColumnMovingRanksOperator:
        """Return a new operator."""
        return ColumnMovingRanksOperator(self)


class ColumnMovingRanksOperator(ColumnOperator):
    """Numbers of rows in any order."""

    def __init__(self, of: ColumnMovingRanks) -> None:
        super().__init__()
        self._of, self._rows = of, of.rows
        holds = (columns_text(_NUMBER), columns_text(self._rows))
        self._table = MapTable("ranked rows", f"{MAP}ranked rows", holds, of.ttl_ms)
        self._added = GatheredRows()

    def bind(self, group: KeyGroup) -> None:
        self._table.declare(group)

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        self._table.store(self.rows)

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        if self._added.add(rows.select(self._of.schema.names)):
            yield from self._fold()

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[Any]:
        self.use(group)
        yield from self._fold()
        yield from super().advance_watermark(group, watermark)

    def _fold(self) -> Iterator[ColumnChunk]:
        """Take the rows that came, and yield what changes."""
        (added,) = self._added.take()
        if not added:
            return
        rows = joined_rows(added)
        keys = RowsByKey.of(rows, self._of.keys)
        held_of, subkeys, values = self._table.entries_within(self.rows, keys.hashes, keys.keys)
        numbers = numbers_in(decode_records(subkeys, _NUMBER).column(0)).astype(np.int64)
        by_number = np.lexsort((numbers, held_of))
        held_of, numbers = held_of[by_number], numbers[by_number]
        signs, own_of = signs_of(rows)[keys.groups.order], np.repeat(np.arange(len(keys)), keys.groups.counts)
        own = rows.select(self._rows.names).cast(self._rows).take(indices_of(keys.groups.order))
        of = np.concatenate([held_of, own_of])
        encoded = joined([values.take(indices_of(by_number)), encode_records(own)])
        before = np.arange(len(of)) < len(held_of)
        after = self._left(of, encoded, np.concatenate([np.ones(len(held_of), np.int64), signs]))
        shown = np.flatnonzero(before | after)
        of, encoded, before, after = of[shown], encoded.take(indices_of(shown)), before[shown], after[shown]
        self._put(keys, of, encoded, numbers, before, after)
        yield from self._changes(of, decode_records(encoded, self._rows), before, after)

    def _left(self, of: Numbers, encoded: pa.Array, signs: Numbers) -> Flags:
        """Return which rows are there at last: of equal ones that came first is taken away."""
        left: Flags = signs > 0
        if left.all():
            return left
        codes = encoded.dictionary_encode()
        _, which = np.unique(of * max(len(codes.dictionary), 1) + numbers_in(codes.indices), return_inverse=True)
        gone = np.bincount(which[~left], minlength=int(which.max()) + 1)
        added = np.flatnonzero(left)
        order = added[np.argsort(which[added], kind="stable")]
        starts = np.searchsorted(which[order], np.arange(len(gone)))
        rank = np.arange(len(order)) - starts[which[order]]
        left[order[rank < gone[which[order]]]] = False
        return left

    def _put(self, keys: RowsByKey, of: Numbers, encoded: pa.Array, held: Numbers, before: Flags, after: Flags) -> None:
        """Keep the rows that came, and remove those that are gone.

        Args:
            held: the numbers of the rows that state had, which stand first.
        """
        following = np.zeros(len(keys), np.int64)
        np.maximum.at(following, of[: len(held)], held + 1)
        new = np.flatnonzero(after & ~before)
        firsts = np.searchsorted(of[new], np.arange(len(keys)))
        numbers = np.concatenate([held, following[of[new]] + np.arange(len(new)) - firsts[of[new]]])
        places = np.concatenate([np.arange(len(held)), new])
        changed = before[places] != after[places]
        numbers, places = numbers[changed], places[changed]
        rows = indices_of(of[places])
        subkeys = encode_columns(column_of(numbers, pa.int64()))
        entries, first, _ = entries_of(keys.hashes[of[places]], keys.keys.take(rows), subkeys, self._of.keys.hash_keys)
        places = places[first]
        values = encoded.take(column_of(places, pa.int64(), after[places]))
        self._table.put(self.group, entries, values)

    def _changes(self, of: Numbers, rows: pa.RecordBatch, before: Flags, after: Flags) -> Iterator[ColumnChunk]:
        was, now = (self._numbers(of, rows, flags) for flags in (before, after))
        differs = np.zeros(len(of), np.bool_)
        for one, other in zip(was, now, strict=True):
            differs |= one != other
        changed = differs & before & after
        old, new = (before & ~after) | changed, (after & ~before) | changed
        kinds_old, kinds_new = np.where(after, UPDATE_BEFORE, DELETE), np.where(before, UPDATE_AFTER, INSERT)
        # What is taken away comes first: a number that a row gives up may be another's.
        places = np.concatenate([np.flatnonzero(old), np.flatnonzero(new)])
        kinds = np.concatenate([kinds_old[old], kinds_new[new]])
        count = int(old.sum())
        columns = [column.take(indices_of(places)) for column in rows.columns]
        for call, one, other in zip(self._of.calls, was, now, strict=True):
            numbers = np.concatenate([one[places[:count]], other[places[count:]]])
            columns.append(column_of(numbers, pa.int64()).cast(call.type))
        every = np.arange(len(places))
        yield from change_chunks(columns, self._of.out, every, kinds, np.full(len(places), NO_TIME))

    def _numbers(self, of: Numbers, rows: pa.RecordBatch, there: Flags) -> list[Numbers]:
        """Return for each call the number of each row, 0 for those that are not there."""
        some = np.flatnonzero(there)
        columns = [rows.column(key.column).take(indices_of(some)) for key in self._of.order]
        places, unlike = sorted_rows(columns, self._of.order, of[some])
        own = of[some][places]
        starts = np.searchsorted(own, own)
        edges = np.flatnonzero(unlike)
        first_equal = np.repeat(edges, np.diff(edges, append=len(own)))
        dense = np.cumsum(unlike)
        made = {
            "row_number": np.arange(len(own)) - starts + 1,
            "rank": first_equal - starts + 1,
            "dense_rank": dense - dense[starts] + 1 if len(own) else dense,
        }
        numbers = []
        for call in self._of.calls:
            out = np.zeros(len(of), np.int64)
            out[some[places]] = made[call.function]
            numbers.append(out)
        return numbers
