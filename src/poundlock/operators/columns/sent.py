"""Rows that were added up, as they travel from the tasks that read them to those that have their keys: in as few bytes as they need."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from poundlock.formats.arrays import Numbers, column_of, numbers_in
from poundlock.operators.columns.groups import Hashes
from poundlock.operators.columns.narrow import narrowed, widened
from poundlock.operators.columns.partials import Partials

_HASHES, _COUNTS = 0, 3


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

    @property
    def hashes(self) -> Hashes:
        """The hashes of the keys."""
        return numbers_in(self.batch.column(_HASHES))

    @property
    def counts(self) -> Numbers:
        """Of how many rows each is."""
        return numbers_in(self._column(_COUNTS))

    def slice(self, start: int, stop: int) -> SentPartials:
        """Return a stretch of the rows, without a copy."""
        return SentPartials(self.batch.slice(start, stop - start))

    def unpacked(self) -> Partials:
        """Return what was sent."""
        hashes, keys, slices, counts, *held = map(self._column, range(self.batch.num_columns))
        return Partials(numbers_in(hashes), keys, numbers_in(slices), numbers_in(counts), held)

    def _column(self, number: int) -> pa.Array:
        return widened(self.batch.schema.field(number), self.batch.column(number))
