"""Upserts by key as a whole changelog, by columns: what replaces a row comes with the row that it replaces, and what is deleted as it was.

State has the newest row of each key. A row of the input is compared with the one before it of its key, which is the one of state for the
first of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags, Numbers, flags_in, indices_of, joined
from poundlock.operators.columns.changelog.signed import signs_of, taken
from poundlock.operators.columns.changelog.values import columns_text
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
from poundlock.operators.columns.records import decode_records, encode_records
from poundlock.operators.columns.rows.keys import NO_TIME, RowKeys, RowsByKey, behind
from poundlock.operators.columns.rows.table import KeyTable
from poundlock.operators.keyed.group import KeyGroup

NEWEST = "newest"
"""The table of the newest row of each key."""


@dataclass(frozen=True)
class ColumnChangelogNormalization:
    """The changelog of upserts, and their rows as columns. Picklable.

    Args:
        schema: the columns of a row, without the kind of change.
        keys: of a row.
        ttl_ms: how long a key is known after its last upsert, by the clock; None for ever.
    """

    schema: pa.Schema
    keys: RowKeys
    ttl_ms: int | None = None

    @property
    def changes(self) -> pa.Schema:
        """The columns that come out."""
        return change_schema(self.schema)

    def operator(self) -> ColumnChangelogNormalizeOperator:
        """Return a new operator."""
        return ColumnChangelogNormalizeOperator(self)


class ColumnChangelogNormalizeOperator(ColumnOperator):
    """The newest row of each key, and what upserts change of it."""

    def __init__(self, of: ColumnChangelogNormalization) -> None:
        super().__init__()
        self._of, self._changes = of, of.changes
        self._newest = KeyTable(NEWEST, "newest rows", of.ttl_ms, (columns_text(of.schema),))

    def bind(self, group: KeyGroup) -> None:
        self._newest.declare(group)

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        if not rows.num_rows:
            return
        keys = RowsByKey.of(rows, self._of.keys)
        places, values = self._newest.look_up(self.rows, keys)
        own = rows.select(self._of.schema.names).cast(self._of.schema)
        held = decode_records(values, self._of.schema)
        columns = [joined([one, other]) for one, other in zip(held.columns, own.columns, strict=True)]
        encoded = joined([values, encode_records(own)])
        there = np.concatenate([np.ones(len(places), np.bool_), signs_of(rows) > 0])
        groups = behind(keys.groups, places)  # the held row of a key stands before those that came
        order, last = groups.order, groups.starts + groups.counts - 1
        is_there = there[order]
        was_there = np.append(False, is_there[:-1])
        was_there[groups.starts] = False
        is_new = order >= len(places)
        changed = is_new & (is_there | was_there)
        both = np.flatnonzero(changed & is_there & was_there)
        if self._of.ttl_ms is None and len(both):
            changed[both] = self._unlike(encoded, order[both], order[both - 1])
        self._put(keys, np.flatnonzero(np.logical_or.reduceat(changed, groups.starts)), order[last], there, encoded)
        at = np.flatnonzero(changed)
        at = at[np.argsort(order[at])]  # as they came
        chosen, kinds = _changes(order[at], order[at - 1], was_there[at], is_there[at])
        yield from change_chunks(columns, self._changes, chosen, kinds, np.full(len(chosen), NO_TIME))

    def _put(self, keys: RowsByKey, some: Numbers, last: Numbers, there: Flags, encoded: pa.Array) -> None:
        """Keep the last row of some keys, and forget those whose row is deleted.

        Args:
            last: the place of the last row of each key.
            there: whether a row is one, and no deletion.
        """
        kept = taken(encoded, np.where(there[last], last, -1)[some])
        self._newest.put(self.group, keys.hashes[some], keys.keys.take(indices_of(some)), kept)

    @staticmethod
    def _unlike(encoded: pa.Array, some: Numbers, others: Numbers) -> Flags:
        return flags_in(pc.not_equal(encoded.take(indices_of(some)), encoded.take(indices_of(others))))

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        self._newest.store(self.rows)


def _changes(rows: Numbers, before: Numbers, was_there: Flags, is_there: Flags) -> tuple[Numbers, Numbers]:
    """Return the row of each change, and its kind.

    Args:
        rows: that came; `before`: the one before each of its key, any where there was none.
        was_there: whether there was one; `is_there`: whether there is one now. One of the two holds.
    """
    first_kinds = np.where(is_there, UPDATE_BEFORE, DELETE)
    second_kinds = np.where(was_there, UPDATE_AFTER, INSERT)
    chosen = np.stack([before, rows], axis=1).reshape(-1)
    kinds = np.stack([first_kinds, second_kinds], axis=1).reshape(-1)
    shown = np.stack([was_there, is_there], axis=1).reshape(-1)
    return chosen[shown], kinds[shown]
