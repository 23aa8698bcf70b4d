"""Aggregates of groups over a changelog, by columns: the rows of a checkpoint are folded into the groups they are of, all at once.

State has an entry for each group: how many rows it has, and what each aggregate keeps. What came before a change is computed of the
entry that was, so results are not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags, Numbers, indices_of, joined, numbers_in
from poundlock.operators.columns.changelog.aggregates import GroupAggregates
from poundlock.operators.columns.changelog.signed import signs_of, taken
from poundlock.operators.columns.changelog.values import encode_columns
from poundlock.operators.columns.encoding import decode_key_columns
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
from poundlock.operators.columns.rows.table import KeyTable
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.pieces import pieces
from poundlock.operators.process.deduplicate import ROW_KIND

GROUPS = "groups"
"""The table of groups."""


@dataclass(frozen=True)
class ColumnGroupAggregation:
    """Aggregates of groups, and their rows as columns. Picklable.

    Args:
        keys: of a row.
        key_fields: name and type of each column of the key as it comes out.
        aggregates: of the rows of a key.
        update_before: whether the results that are replaced are given before those that replace them.
        bounded: whether only the last results of each key are wanted, at the end of the input.
    """

    keys: RowKeys
    key_fields: Sequence[pa.Field]
    aggregates: GroupAggregates
    update_before: bool = True
    bounded: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out."""
        results = [pa.field(call.name, call.type) for call in self.aggregates.calls]
        return change_schema(pa.schema([*self.key_fields, *results]))

    def operator(self) -> ColumnGroupAggregateOperator:
        """Return a new operator."""
        return ColumnGroupAggregateOperator(self)


class ColumnGroupAggregateOperator(ColumnOperator):
    """Aggregates of the rows of each key so far."""

    def __init__(self, of: ColumnGroupAggregation) -> None:
        super().__init__()
        self._of, self._schema = of, of.schema
        self._work = of.aggregates.work()
        self._ttl_ms = of.aggregates.ttl_ms
        self._groups = KeyTable(GROUPS, "group aggregates", self._ttl_ms, self._work.holds)
        self._added = GatheredRows()

    def bind(self, group: KeyGroup) -> None:
        self._groups.declare(group)
        self._work.declare(group)
        if self._of.bounded and not self._groups.is_empty(group):
            group.wake_at_end()

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        names = [*self._of.keys.columns, *self._of.aggregates.columns]
        names += [ROW_KIND] if self._of.aggregates.retracts else []
        rows = rows.select(list(dict.fromkeys(names))) if names else rows
        if self._added.add(rows):
            yield from self._fold()

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[Any]:
        self.use(group)
        yield from self._fold()
        yield from super().advance_watermark(group, watermark)

    def _fold(self) -> Iterator[ColumnChunk]:
        """Fold the rows that came into their groups, and yield what changed."""
        (added,) = self._added.take()
        if not added:
            return
        rows = joined_rows(added)
        keys = RowsByKey.of(rows, self._of.keys)
        places, values = self._groups.look_up(self.rows, keys)
        known = np.zeros(len(keys), np.bool_)
        known[places] = True
        held = decode_records(values, self._work.schema).columns
        before = self._work.starting(places, held, len(keys))
        kept = self._work.fold(self.rows, keys, rows, signs_of(rows), before)
        alive = numbers_in(kept[0]) > 0
        self._put(keys, known, alive, kept)
        if self._of.bounded:
            self.group.wake_at_end()
            return
        yield from self._changes(rows, keys, (known, alive), before, kept)

    def _put(self, keys: RowsByKey, known: Flags, alive: Flags, kept: Sequence[pa.Array]) -> None:
        entries = encode_records(pa.RecordBatch.from_arrays(list(kept), schema=self._work.schema))
        changed = np.flatnonzero(known | alive)
        of_alive = np.where(alive[changed], changed, -1)
        self._groups.put(
            self.group, keys.hashes[changed], keys.keys.take(indices_of(changed)), taken(entries, of_alive)
        )

    def _changes(
        self,
        rows: pa.RecordBatch,
        keys: RowsByKey,
        states: tuple[Flags, Flags],
        before: Sequence[pa.Array],
        kept: Sequence[pa.Array],
    ) -> Iterator[ColumnChunk]:
        """Yield what changed of groups.

        Args:
            states: which groups there were, and which there are.
            before: what was kept of them; `kept`: what is.
        """
        known, alive = states
        was, now = np.flatnonzero(known), np.flatnonzero(alive)
        old = self._results(before, was)
        new = self._results(kept, now)
        differs = known & alive
        both = np.flatnonzero(differs)
        if len(both) and self._ttl_ms is None:
            # With a time to live an equal result comes out once more, so that whoever keeps it knows that it is alive.
            differs[both] = self._unlike(old, np.searchsorted(was, both), new, np.searchsorted(now, both))
        at_old, at_new = np.full(len(keys), -1), np.full(len(keys), -1)
        at_old[was], at_new[now] = np.arange(len(was)), len(was) + np.arange(len(now))
        first_row, first_kind = np.full(len(keys), -1), np.full(len(keys), UPDATE_BEFORE)
        gone = known & ~alive
        first_row[gone], first_kind[gone] = at_old[gone], DELETE
        if self._of.update_before:
            first_row[differs] = at_old[differs]
        second_row = np.where(differs | (alive & ~known), at_new, -1)
        places = np.stack([first_row, second_row], axis=1).reshape(-1)
        kinds = np.stack([first_kind, np.where(known, UPDATE_AFTER, INSERT)], axis=1).reshape(-1)
        shown = places >= 0
        firsts = keys.groups.firsts[np.concatenate([was, now])]
        key_rows = indices_of(firsts)
        columns = [rows.column(name).take(key_rows) for name in self._of.keys.columns]
        columns += [joined([one, other]) for one, other in zip(old, new, strict=True)]
        times: Numbers = np.full(int(shown.sum()), NO_TIME)
        yield from change_chunks(columns, self._schema, places[shown], kinds[shown], times)

    def _results(self, kept: Sequence[pa.Array], groups: Numbers) -> list[pa.Array]:
        indices = indices_of(groups)
        return self._work.results([column.take(indices) for column in kept])

    @staticmethod
    def _unlike(old: list[pa.Array], at_old: Numbers, new: list[pa.Array], at_new: Numbers) -> Flags:
        """Return where results are others than before."""
        unlike = np.zeros(len(at_old), np.bool_)
        for one, other in zip(old, new, strict=True):
            pair = [encode_columns(column).take(indices_of(at)) for column, at in ((one, at_old), (other, at_new))]
            unlike |= numbers_in(pc.not_equal(*pair)) > 0
        return unlike

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk]:  # type: ignore[override]
        """Yield the results of each key, at the end of the input."""
        entries = self._groups.entries(self.rows)
        for first, count in pieces([entries.keys, entries.values]):
            values = entries.values.slice(first, count)
            kinds = [field.type for field in self._of.key_fields]
            columns = decode_key_columns(entries.keys.slice(first, count), kinds) if kinds else []
            columns += self._work.results(decode_records(values, self._work.schema).columns)
            every = np.arange(len(values))
            times = np.full(len(values), NO_TIME)
            yield from change_chunks(columns, self._schema, every, np.full(len(values), INSERT), times)
        self._groups.drop(self.group)
        self._work.drop(self.group)

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        self._groups.store(self.rows)
        self._work.store(self.rows)
