"""The last rows of each key that came out: so many of each, in places that are used again, so that a checkpoint writes new ones alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, column_of, indices_of, numbers_in
from poundlock.operators.columns.changelog.values import columns_text, encode_columns
from poundlock.operators.columns.records import decode_records, encode_records
from poundlock.operators.columns.rows.keys import HashKeys, RowsByKey
from poundlock.operators.columns.rows.map_table import MAP, MapTable, entries_of
from poundlock.operators.keyed.group import KeyGroup

_NUMBER, _TIME = "$number", "$time"


@dataclass(frozen=True, slots=True)
class RowsBefore:
    """Rows of some keys, in the order they came out.

    Args:
        of: the number of each one's key, ascending.
        numbers: of the rows of a key, which ascend.
        times: of each, ms.
        rows: what is kept of them, behind those numbers.
    """

    of: Numbers
    numbers: Numbers
    times: Numbers
    rows: pa.RecordBatch


class LastRows:
    """The last rows of each key.

    Args:
        schema: the columns that are kept of a row.
        count: how many rows of a key are kept, one at least.
        ttl_ms: time to live of a row, None for ever.
    """

    def __init__(self, schema: pa.Schema, count: int, hash_keys: HashKeys, ttl_ms: int | None) -> None:
        self.schema = schema
        self._count, self._hash_keys = max(count, 1), hash_keys
        self._whole = pa.schema([(_NUMBER, pa.int64()), (_TIME, pa.int64()), *schema])
        holds = (f"the last {self._count}", columns_text(self._whole))
        self._table = MapTable("last rows", f"{MAP}last rows", holds, ttl_ms)

    def declare(self, group: KeyGroup) -> None:
        """Say what the table holds; called with each group."""
        self._table.declare(group)

    def store(self, store: Any) -> None:
        """Have what changed written with the checkpoint."""
        self._table.store(store)

    def of_keys(self, store: Any, keys: RowsByKey) -> RowsBefore:
        """Return the rows of some keys."""
        of, _, values = self._table.entries_within(store, keys.hashes, keys.keys)
        rows = decode_records(values, self._whole)
        numbers = numbers_in(rows.column(0)).astype(np.int64)
        order = np.lexsort((numbers, of))
        rows = rows.take(indices_of(order))
        return RowsBefore(
            of[order], numbers[order], numbers_in(rows.column(1)), rows.select([_NUMBER, *self.schema.names])
        )

    def put(self, group: KeyGroup, keys: RowsByKey, held: RowsBefore, rows: pa.RecordBatch, times: Numbers) -> None:
        """Keep the last of some rows.

        Args:
            held: what there was of the keys.
            rows: of those keys, key after key as `keys` has them, in order.
            times: of each.
        """
        counts = keys.groups.counts
        of = np.repeat(np.arange(len(keys)), counts)
        following = np.zeros(len(keys), np.int64)
        np.maximum.at(following, held.of, held.numbers + 1)
        place = np.arange(len(of)) - keys.groups.starts[of]
        chosen = np.flatnonzero(counts[of] - place <= self._count)
        numbers = (following[of] + place)[chosen]
        subkeys = encode_columns(column_of(numbers % self._count, pa.int64()))
        own = of[chosen]
        entries, first, _ = entries_of(keys.hashes[own], keys.keys.take(indices_of(own)), subkeys, self._hash_keys)
        taken = chosen[first]
        columns = [column_of(each, pa.int64()) for each in (numbers[first], times[taken])]
        columns += [rows.column(field.name).take(indices_of(taken)).cast(field.type) for field in self.schema]
        values = encode_records(pa.RecordBatch.from_arrays(columns, schema=self._whole))
        self._table.put(group, entries, values)
