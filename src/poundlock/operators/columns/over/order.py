"""The rows of keys in an order, and of each row its frame: from which place up to which the rows are that an aggregate is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, indices_of, joined, numbers_in, valid_in
from poundlock.operators.columns.sql.ordinals import order_keys, ordinals
from poundlock.stream.nodes import SortColumn
from poundlock.stream.over_nodes import RowFrame


def sorted_rows(columns: Sequence[pa.Array], order: Sequence[SortColumn], of: Numbers) -> tuple[Numbers, Flags]:
    """Return the places of rows by key and order, equal ones as they came, and which of those are unlike the one before.

    Args:
        columns: one for each part of the order.
        of: the number of each row's key.
    """
    keys: list[Numbers] = []
    for column, key in zip(reversed(columns), reversed(order), strict=True):
        keys += order_keys(column, descending=key.descending, nulls_first=key.nulls_first)
    keys.append(of)
    places: Numbers = np.lexsort(tuple(keys))
    unlike = np.zeros(len(places), np.bool_)
    unlike[:1] = True
    for each in keys:
        in_order = each[places]
        unlike[1:] |= in_order[1:] != in_order[:-1]
    return places, unlike


@dataclass(frozen=True)
class PlacedRows:
    """The rows of keys in order, behind what is held of some keys.

    Args:
        order: the places of both, key after key: what is held first, then rows; rows are numbered behind all that is held.
        starts: where the first of each key is; `ends`: behind its last.
        of: the key of each row; `at`: where it is.
        firsts: where the first of the rows is that are equal to each; `lasts`: the last.
    """

    order: Numbers
    starts: Numbers
    ends: Numbers
    of: Numbers
    at: Numbers
    firsts: Numbers
    lasts: Numbers

    @classmethod
    def behind(cls, held_of: Numbers, of: Numbers, unlike: Flags, keys: int) -> PlacedRows:
        """Return rows behind what is held.

        Args:
            held_of: the key of each that is held, ascending.
            of: of each row, ascending.
            unlike: which rows are unlike the one before.
            keys: how many there are, each of which has rows.
        """
        every = np.concatenate([held_of, of])
        order = np.argsort(every, kind="stable")
        in_order = every[order]
        starts, ends = (np.searchsorted(in_order, np.arange(keys), side) for side in ("left", "right"))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        at = place[len(held_of) :]
        edges = np.flatnonzero(unlike)
        counts = np.diff(edges, append=len(of))
        firsts, lasts = np.repeat(at[edges], counts), np.repeat(at[edges + counts - 1], counts)
        return cls(order, starts, ends, of, at, firsts, lasts)

    @property
    def firsts_of_equals(self) -> Flags:
        """Which rows are the first of equal ones."""
        flags: Flags = self.firsts == self.at
        return flags

    def column(self, held: pa.Array | None, own: pa.Array) -> pa.Array:
        """Return values in order, of what is held and of rows."""
        every = own if held is None or not len(held) else joined([held, own])
        return every.take(indices_of(self.order))

    def frames(self, frame: RowFrame, spans: Numbers | None) -> tuple[Numbers, Numbers]:
        """Return from where up to where the frame of each row is.

        Args:
            spans: numbers of all that is in order, ascending within a key, that the bounds of spans are of.
        """
        start, end = self.starts[self.of], self.ends[self.of]
        if frame.unit == "rows":
            first = start if frame.preceding is None else np.maximum(start, self.at - frame.preceding)
            stop = end if frame.following is None else np.minimum(end, self.at + 1 + frame.following)
            return first, np.maximum(stop, first)
        first, stop = start, end
        if frame.preceding == 0:
            first = self.firsts
        elif frame.preceding is not None and spans is not None:
            first = self._searched(spans, -frame.preceding, "left")
        if frame.following == 0:
            stop = self.lasts + 1
        elif frame.following is not None and spans is not None:
            stop = self._searched(spans, frame.following, "right")
        return first, np.maximum(stop, first)

    def _searched(self, spans: Numbers, away: int, side: str) -> Numbers:
        """Return where a number so far away from each row's would stand in its key."""
        wanted = spans[self.at] + away
        different, ranks = np.unique(np.concatenate([spans, wanted]), return_inverse=True)
        keys = np.empty(len(spans), np.int64)
        keys[:] = np.repeat(np.arange(len(self.starts)), self.ends - self.starts)
        words = keys * len(different) + ranks[: len(spans)]
        asked = self.of * len(different) + ranks[len(spans) :]
        places: Numbers = np.searchsorted(words, asked, side)  # type: ignore[call-overload]
        return places


def spans_in(column: pa.Array, key: SortColumn) -> Numbers:
    """Return the first column of an order as numbers that ascend: times as ms, nulls far away."""
    if pa.types.is_timestamp(column.type):
        micros = numbers_in(column.cast(pa.timestamp("us", column.type.tz)))
        values = micros // 1_000
    elif pa.types.is_date32(column.type):
        values = numbers_in(column).astype(np.int64) * 86_400_000
    else:
        values = ordinals(column)
    values = -values if key.descending else values
    valid = valid_in(column)
    return values if valid is None else np.where(valid, values, (-1 if key.nulls_first else 1) << 62)
