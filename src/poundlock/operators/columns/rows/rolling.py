"""Rolling aggregates by columns: the records of a key so far as one record, which state has as the operator of single records does.

What a record of a key gives is the record held with one column changed, or one of the records so far: columns of a batch taken by
places. Either form of the operator goes on from the state of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Numbers, indices_of, joined
from poundlock.operators.columns.groups import Groups
from poundlock.operators.columns.msgpack.values import packed_records
from poundlock.operators.columns.operator import ColumnChunk, ColumnOperator
from poundlock.operators.columns.rows.keys import NO_TIME, RowKeys, RowsByKey, behind, times_in
from poundlock.operators.columns.rows.records import records_of
from poundlock.operators.columns.rows.running_values import ranks_for, running_best, running_sums
from poundlock.operators.columns.rows.table import KeyTable
from poundlock.operators.columns.sql.accumulators import sum_type
from poundlock.operators.columns.sql.sums import too_large
from poundlock.operators.keyed.group import MAX, KeyGroup
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.pieces import pieces, pieces_of_places
from poundlock.operators.process.rolling import ROLLING


@dataclass(frozen=True)
class ColumnRolling:
    """A rolling aggregate, and its rows as columns. Picklable.

    Args:
        kind: "sum", "min", "max", "min_by" or "max_by".
        column: that is added up or compared.
        first: of records that are equal in the column, whether the first stays.
        schema: the columns of a record.
        keys: of a row.
        time: the column of event time; None where there is none.
        bounded: whether only the last of each key is wanted, at the end of the input.
    """

    kind: str
    column: str
    first: bool
    schema: pa.Schema
    keys: RowKeys
    time: str | None
    bounded: bool

    def operator(self) -> ColumnRollingOperator:
        """Return a new operator."""
        return ColumnRollingOperator(self)

    @property
    def held(self) -> pa.Schema:
        """The columns of a record in state: a sum has room for more than its column."""
        place = self.schema.get_field_index(self.column)
        fields = [pa.field(field.name, field.type) for field in self.schema]
        if self.kind == "sum":
            fields[place] = pa.field(self.column, sum_type(fields[place].type))
        return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class _SoFar:
    """What the records of each key come to, at any of them.

    Args:
        columns: of what is held of keys, and of rows behind it.
        groups: what is held and the rows of each key.
        place: of the column that is added up or compared.
    """

    columns: Sequence[pa.Array]
    groups: Groups
    place: int
    kind: str
    first: bool

    def records(self) -> _Records:
        """Return the records, in the order of groups."""
        order, starts = self.groups.order, self.groups.starts
        firsts = np.repeat(self.groups.firsts, self.groups.counts)
        column = self.columns[self.place].take(indices_of(order))
        if self.kind == "sum":
            return _Records(self.columns, self.place, firsts, sums=running_sums(column, starts))
        best = order[running_best(ranks_for(column, greatest=self.kind.startswith("max")), starts, first=self.first)]
        return _Records(self.columns, self.place, best if self.kind.endswith("_by") else firsts, best=best)


@dataclass(frozen=True, slots=True)
class _Records:
    """Records as places: of the row that each is of, and of the value of one column."""

    columns: Sequence[pa.Array]
    place: int
    whole: Numbers
    best: Numbers | None = None
    sums: pa.Array | None = None

    def pieces(self, places: Numbers) -> Iterator[slice]:
        """Yield which of some places are taken together, bounded in rows and bytes."""
        for some in pieces_of_places(self.columns, self.whole[places]):
            if self.best is None:
                yield some
                continue
            for part in pieces_of_places([self.columns[self.place]], self.best[places[some]]):
                yield slice(some.start + part.start, some.start + part.stop)

    def at(self, places: Numbers) -> list[pa.Array]:
        """Return the columns of some."""
        whole = indices_of(self.whole[places])
        columns = [None if i == self.place else column.take(whole) for i, column in enumerate(self.columns)]
        if self.sums is not None:
            columns[self.place] = self.sums.take(indices_of(places))
        elif self.best is not None:
            columns[self.place] = self.columns[self.place].take(indices_of(self.best[places]))
        return columns


class ColumnRollingOperator(ColumnOperator):
    """One record for each key."""

    def __init__(self, rolling: ColumnRolling) -> None:
        super().__init__()
        self._rolling = rolling
        self._held = rolling.held
        self._place = self._held.get_field_index(rolling.column)
        self._table = KeyTable(ROLLING, "rolling")

    def bind(self, group: KeyGroup) -> None:
        self._table.declare(group)
        if self._rolling.bounded and not self._table.is_empty(group):
            group.wake_at_end()

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        rolling = self._rolling
        keys = RowsByKey.of(rows, rolling.keys)
        places, values = self._table.look_up(self.rows, keys)
        columns = self._columns(rows, records_of(values, self._held))
        groups = behind(keys.groups, places)
        records = _SoFar(columns, groups, self._place, rolling.kind, rolling.first).records()
        last = records.at(groups.starts + groups.counts - 1)
        self._table.put(group, keys.hashes, keys.keys, packed_records(last, self._held.names))
        if rolling.bounded:
            group.wake_at_end()
            return
        at = np.empty(len(groups.order), np.int64)
        at[groups.order] = np.arange(len(groups.order))
        at = at[len(places) :]  # where each row is, in the order they came
        times = np.full(len(at), NO_TIME) if rolling.time is None else times_in(rows.column(rolling.time))
        for some in records.pieces(at):
            yield ColumnChunk(MAIN, self._batch(records.at(at[some])), times[some])

    def _columns(self, rows: pa.RecordBatch, held: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the columns of what is held, and of rows behind it."""
        own = [rows.column(name) for name in self._held.names]
        pairs = zip(held, own, self._held, strict=True)
        return [joined([before, column.cast(field.type)]) for before, column, field in pairs]

    def _batch(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        schema = self._rolling.schema
        columns = list(columns)
        kind = schema.field(self._place).type
        try:
            columns[self._place] = pc.cast(columns[self._place], kind)
        except pa.ArrowInvalid as error:
            raise too_large(kind, str(error)) from error
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk]:  # type: ignore[override]
        """Yield the last record of each key."""
        values = self._table.entries(self.rows).values
        for first, count in pieces([values]):
            some = values.slice(first, count)
            yield ColumnChunk(MAIN, self._batch(records_of(some, self._held)), np.full(len(some), MAX))
        self._table.drop(self.group)

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        self._table.store(self.rows)
