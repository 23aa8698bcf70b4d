"""Rows of a side of a join that may match, and the pairs of two sides in chunks of so many bytes.

Of rows that may match the keys and times are in memory; what the rows are is read of those that do match: at once where that is
little, and else chunk by chunk of pairs, so that memory follows neither the width of rows nor how often one matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, indices_of, joined
from poundlock.operators.columns.groups import Hashes
from poundlock.operators.columns.joins.kept_rows import StoredRows, read_as
from poundlock.operators.columns.joins.matching import MatchRanges, TimedRows
from poundlock.operators.columns.records import joined_rows
from poundlock.operators.pieces import PIECE_ROWS

_PAIR_BYTES = 64 << 20  # of pairs in a chunk, about
_READ_BYTES = 128 << 20  # of rows that match, up to which they are read at once

Part = StoredRows | TimedRows


class HeldRows:
    """Rows of a side of a join: those that state has, and those that came in this checkpoint.

    Args:
        parts: in the order they came.
        schema: the columns that are kept of a row.
    """

    def __init__(self, parts: Sequence[Part], schema: pa.Schema) -> None:
        self._schema = schema
        self._parts = parts = [part for part in parts if len(part)]
        if parts:
            self.hashes: Hashes = np.concatenate([part.hashes for part in parts])
            self.keys = joined([part.keys for part in parts])
            self.times: Numbers = np.concatenate([part.times for part in parts])
        self._length = sum(map(len, parts))

    def __len__(self) -> int:
        return self._length

    @property
    def width(self) -> int:
        """About how many bytes a row has."""
        return sum(part.width * len(part) for part in self._parts) // max(self._length, 1)

    def records(self, used: Numbers, names: Sequence[str]) -> pa.RecordBatch:
        """Return rows as columns.

        Args:
            used: their places, ascending.
            names: the columns that are needed.
        """
        rows: list[pa.RecordBatch] = []
        first = 0
        for layout, parts in groupby(self._parts, key=_layout):
            values: list[pa.Array] = []
            for part in parts:
                start, stop = np.searchsorted(used, [first, first + len(part)])
                own = used[start:stop] - first
                first += len(part)
                if not len(own):
                    continue
                if isinstance(part, StoredRows):
                    values.append(part.values_at(own))
                else:
                    columns = part.records.select(list(names))
                    rows.append(columns if len(own) == len(part) else _taken(columns, own))
            if values and layout is not None:
                rows.append(read_as(joined(values), layout, self._schema, names))
        return joined_rows(rows)


def _layout(part: Part) -> str | None:
    return part.layout if isinstance(part, StoredRows) else None


def _taken(columns: pa.RecordBatch, places: Numbers) -> pa.RecordBatch:
    return columns.take(indices_of(places)) if columns.num_columns else columns


@dataclass(frozen=True, slots=True)
class PairedRows:
    """The rows of one side in a chunk of pairs.

    Args:
        held: all rows of the side.
        used: the places of those that `records` has.
        records: rows, with the columns that are needed.
        places: of each pair the place of its row in `records`.
    """

    held: HeldRows
    used: Numbers
    records: pa.RecordBatch
    places: Numbers

    @property
    def keys(self) -> pa.Array:
        """The bytes of the key of each row."""
        return self.held.keys.take(indices_of(self.used))

    @property
    def times(self) -> Numbers:
        """The time of the row of each pair, ms."""
        times: Numbers = self.held.times[self.used[self.places]]
        return times


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads rows of a side for chunks of pairs; those of all chunks at once where `whole` has them."""

    held: HeldRows
    names: Sequence[str]
    used: Numbers
    whole: pa.RecordBatch | None

    def of(self, places: Numbers) -> PairedRows:
        """Return the rows of a chunk."""
        if self.whole is not None:
            return PairedRows(self.held, self.used, self.whole, np.searchsorted(self.used, places))
        used, which = np.unique(places, return_inverse=True)
        return PairedRows(self.held, used, self.held.records(used, self.names), which)


def pair_chunks(
    matched: MatchRanges, sides: tuple[HeldRows, HeldRows], order: Numbers, needed: Sequence[Sequence[str]]
) -> Iterator[tuple[PairedRows, PairedRows]]:
    """Yield the pairs of two sides, some at a time.

    Args:
        matched: what was searched for, and among what.
        sides: the rows that were searched for, and those that were searched.
        order: the place of each row in the order it was searched for in.
        needed: the columns that are needed of each side.
    """
    used = np.sort(order[matched.counts > 0]), matched.used
    size = sum(len(own) * side.width for own, side in zip(used, sides, strict=True))
    one, other = (
        _Reader(side, names, own, side.records(own, names) if size <= _READ_BYTES else None)
        for side, names, own in zip(sides, needed, used, strict=True)
    )
    width = 1 + sum(
        side.width if reader.whole is None else int(reader.whole.nbytes) // max(len(reader.used), 1)
        for side, reader in zip(sides, (one, other), strict=True)
    )
    for pairs in matched.pairs(max(1, min(PIECE_ROWS, _PAIR_BYTES // width))):
        yield one.of(order[pairs.own]), other.of(pairs.other)
