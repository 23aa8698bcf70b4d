"""Kinds of joins by columns: which pairs of rows come out, and which rows come out by themselves, with nulls for the other side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, flags_in, indices_of, valid_in
from poundlock.operators.columns.joins.held_rows import HeldRows, PairedRows
from poundlock.operators.pieces import PIECE_ROWS
from poundlock.stream.changelog_nodes import JoinKind, one_sided

Condition = Callable[[pa.RecordBatch], pa.Array]
_CHUNK_BYTES = 64 << 20  # of rows that come out at a time, about


@dataclass(frozen=True)
class JoinedColumns:
    """What comes out of a join of some kind. Picklable.

    Args:
        schemas: the columns of left and right that come out, of which no two have one name.
        condition: what must hold of a pair, given a batch with the columns of both; null is false. None: nothing.
    """

    kind: JoinKind
    schemas: tuple[pa.Schema, pa.Schema]
    condition: Condition | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        left, right = self.schemas
        return left if one_sided(self.kind) else pa.schema([*left, *right])

    def padded(self, side: int) -> bool:
        """Return whether rows of a side come out, or do not, because they have no match."""
        return self.kind in (("left", "full", "semi", "anti"), ("right", "full"))[side]

    @property
    def alone_when_matched(self) -> bool:
        """Whether a row comes out by itself if it has a match, and not if it has none."""
        return self.kind == "semi"

    # --- as `PairOutput` ------------------------------------------------------------------------------------------------

    def needed(self, side: int) -> Sequence[str]:
        """Return the columns of a side's rows that pairs are made of."""
        return list(self.schemas[side].names)

    def pairs(self, sides: Sequence[pa.RecordBatch], places: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return pairs as rows, see `operators.columns.joins.pairs.PairOutput`."""
        columns = [
            rows.column(field.name).take(taken).cast(field.type)
            for schema, rows, taken in zip(self.schemas, sides, places, strict=True)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*self.schemas[0], *self.schemas[1]]))

    # --- by kind --------------------------------------------------------------------------------------------------------

    def matched(self, left: PairedRows, right: PairedRows) -> tuple[pa.RecordBatch, Flags]:
        """Return those of some pairs of which the condition holds, and which they are."""
        rows = self.pairs([left.records, right.records], [indices_of(each.places) for each in (left, right)])
        if self.condition is None:
            return rows, np.ones(len(left.places), np.bool_)
        answer = self.condition(rows)
        valid = valid_in(answer)
        true: Flags = flags_in(answer) if valid is None else flags_in(answer) & valid
        return (rows if true.all() else rows.take(indices_of(np.flatnonzero(true)))), true

    def alone(self, side: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a side by themselves, with nulls for the other one where its columns come out."""
        own = [rows.column(field.name) for field in self.schemas[side]]
        if one_sided(self.kind):
            return pa.RecordBatch.from_arrays(own, schema=self.schema)
        none = [pa.nulls(rows.num_rows, field.type) for field in self.schemas[1 - side]]
        return pa.RecordBatch.from_arrays([*own, *none] if side == 0 else [*none, *own], schema=self.schema)

    def alone_of(self, side: int, held: HeldRows, places: Numbers) -> Iterator[tuple[pa.RecordBatch, Numbers]]:
        """Yield some of the rows of a side by themselves, in chunks, and their times; their places ascend."""
        most = max(1, min(PIECE_ROWS, _CHUNK_BYTES // (held.width + 1)))
        for start in range(0, len(places), most):
            some = places[start : start + most]
            yield self.alone(side, held.records(some, self.schemas[side].names)), held.times[some]


def without_key(rows: pa.RecordBatch, keys: Sequence[str]) -> Flags:
    """Return which rows have a key that equals no other, since a part of it is null."""
    flags = np.zeros(rows.num_rows, np.bool_)
    for name in keys:
        valid = valid_in(rows.column(name))
        if valid is not None:
            flags |= ~valid
    return flags
