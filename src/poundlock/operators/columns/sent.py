"""Rows that were added up, as they travel from the tasks that read them to those that have their keys: in as few bytes as they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, column_of, indices_of, numbers_in
from poundlock.operators.columns.aggregation import Aggregation
from poundlock.operators.columns.groups import Hashes
from poundlock.operators.columns.narrow import greatest, narrowed, raised, widened
from poundlock.operators.columns.partials import Partials, in_ranges, merged

_HASHES, _KEYS, _SLICES, _COUNTS, _HELD = range(5)


@dataclass(frozen=True, slots=True)
class SentPartials:
    """Partials in half the memory. Some are unpacked at a time where they are many.

    Args:
        batch: hash, key, slice and count of each row, then its accumulators, whole numbers narrowed.
    """

    batch: pa.RecordBatch

    @classmethod
    def of(cls, rows: Partials) -> SentPartials:
        """Return rows as they travel."""
        columns = [
            column_of(rows.hashes, pa.uint64()),
            rows.keys,
            column_of(rows.slices, pa.int64()),
            column_of(rows.counts, pa.int64()),
            *rows.held,
        ]
        sent = [narrowed(f"c{number}", column) for number, column in enumerate(columns)]
        schema = pa.schema([field for field, _ in sent])
        return cls(pa.RecordBatch.from_arrays([column for _, column in sent], schema=schema))

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def columns(self) -> Sequence[pa.Array]:
        """Return the columns that travel."""
        columns: list[pa.Array] = self.batch.columns
        return columns

    @property
    def hashes(self) -> Hashes:
        """The hashes of the keys."""
        return numbers_in(self.batch.column(_HASHES))

    @property
    def slices(self) -> Numbers:
        """When the slice of each begins, ms."""
        return numbers_in(self._column(_SLICES))

    @property
    def counts(self) -> Numbers:
        """Of how many rows each is."""
        return numbers_in(self._column(_COUNTS))

    def take(self, rows: Numbers) -> SentPartials:
        """Return some of the rows, by their places."""
        return SentPartials(self.batch.take(indices_of(rows)))

    def slice(self, start: int, stop: int) -> SentPartials:
        """Return a stretch of the rows, without a copy."""
        return SentPartials(self.batch.slice(start, stop - start))

    def last_place(self, places: Sequence[int]) -> int:
        """Return the last place at which a value came; -1 where there is none.

        Args:
            places: which of the accumulators' columns say that.
        """
        schema = self.batch.schema
        return max(greatest(schema.field(_HELD + each), self.batch.column(_HELD + each)) for each in places)

    def moved(self, places: Sequence[int], by: int) -> SentPartials:
        """Return the rows as if all had come so many places later; `places` as in `last_place`."""
        fields, columns = list(self.batch.schema), self.batch.columns
        for each in places:
            at = _HELD + each
            fields[at], columns[at] = raised(fields[at], columns[at], by)
        return SentPartials(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)))

    def unpacked(self) -> Partials:
        """Return what was sent."""
        return self._with_slices(self.slices)

    def unpacked_as_one_slice(self) -> Partials:
        """Return what was sent as if all were of one slice."""
        return self._with_slices(np.zeros(len(self), np.int64))

    def _with_slices(self, slices: Numbers) -> Partials:
        keys, *held = (self._column(number) for number in (_KEYS, *range(_HELD, self.batch.num_columns)))
        return Partials(self.hashes, keys, slices, self.counts, held)

    def _column(self, number: int) -> pa.Array:
        return widened(self.batch.schema.field(number), self.batch.column(number))


def merged_by_hash(parts: Sequence[SentPartials], aggregates: Aggregation) -> Partials:
    """Return one row for each key, by hash, whatever their slices; each part has a key once, and is by hash."""
    if len(parts) == 1:
        return parts[0].unpacked()
    return Partials.joined(
        [
            merged(rows, aggregates)
            for rows in in_ranges(parts, SentPartials.unpacked_as_one_slice, SentPartials.columns)
        ]
    )
