"""Lookup joins of rows that change: each row that is added comes with all rows of a table for its keys, in one column."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags, Numbers, column_of, flags_in, indices_of
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.lowering.lookup_rows import LookupJoinProgram


@dataclass(frozen=True)
class LookupRowsProgram:
    """Upserts and deletions, which the step behind makes whole: what is deleted has no rows of the table with it.

    Args:
        pairs: joins rows with those of the table; of these the columns alone come out.
        names: the columns of the rows.
        matched: the column that the table's rows are put into; `type` a list of rows.
        replaced_by: the columns by which a row replaces the one before it.
    """

    pairs: LookupJoinProgram
    names: tuple[str, ...]
    matched: str
    type: pa.DataType
    replaced_by: tuple[str, ...]
    leaves_out: bool = False

    def at(self, clock_ms: int) -> LookupRowsProgram:
        """Return the program of a checkpoint that began at a time, ms since 1970."""
        return replace(self, pairs=self.pairs.at(clock_ms))

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return a row for each, but for those that the next one replaces."""
        is_added = _is_one_of(rows, "+I", "+U")
        shown = np.flatnonzero(~self._replaced(rows))
        added = np.flatnonzero(is_added)
        right, places = self.pairs.run(rows.take(indices_of(added)))
        counts = np.zeros(rows.num_rows, np.int64)
        if places is not None:
            counts[added] = np.bincount(places, minlength=len(added))
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[shown])]).astype(np.int32)
        element = self.type.value_type
        columns = [column.cast(field.type) for column, field in zip(right.columns, element, strict=True)]
        matched = pa.StructArray.from_arrays(columns, fields=list(element))
        lists = pa.ListArray.from_arrays(column_of(ends, pa.int32()), matched).cast(self.type)
        kept = [rows.column(name).take(indices_of(shown)) for name in self.names]
        kinds = pa.array(np.where(is_added[shown], "+I", "-D"), pa.string())
        return pa.RecordBatch.from_arrays([*kept, lists, kinds], [*self.names, self.matched, ROW_KIND]), shown

    def _replaced(self, rows: pa.RecordBatch) -> Flags:
        """Return which rows the next one, of the same key, replaces in any case."""
        made = np.zeros(rows.num_rows, np.bool_)
        if rows.num_rows < 2 or any(pa.types.is_nested(rows.column(name).type) for name in self.replaced_by):
            return made  # it comes out as deleted and added, then
        made[:-1] = _is_one_of(rows, "-U")[:-1] & _is_one_of(rows, "+U")[1:]
        before, behind = rows.slice(0, rows.num_rows - 1), rows.slice(1)
        for name in self.replaced_by:
            one, other = before.column(name), behind.column(name)
            both_null = flags_in(pc.and_(one.is_null(), other.is_null()))
            made[:-1] &= flags_in(pc.fill_null(pc.equal(one, other), False)) | both_null
        return made

    def describe(self) -> str:
        """Return it in words."""
        return f"{self.pairs.describe()}, kept with each row"


def _is_one_of(rows: pa.RecordBatch, *kinds: str) -> Flags:
    return flags_in(pc.is_in(rows.column(ROW_KIND), pa.array(kinds)))
