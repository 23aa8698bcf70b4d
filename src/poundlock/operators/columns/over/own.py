"""Aggregates of a user's own over the rows around each: the function is given the rows of a frame, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, indices_of, joined, valid_in
from poundlock.operators.columns.changelog.signed import taken
from poundlock.operators.columns.over.functions import RangeFunction, Stretches
from poundlock.operators.columns.over.order import PlacedRows
from poundlock.operators.columns.over.ranges import written_out
from poundlock.stream.changelog_nodes import GroupFunction


class OwnOfFrames(RangeFunction):
    """An aggregate that is computed of the rows of each frame; of frames that are the same, once."""

    keeps_nulls = True

    def __init__(self, kind: pa.DataType, own: GroupFunction) -> None:
        super().__init__(kind)
        self._own = own

    @property
    def types(self) -> list[pa.DataType]:
        return list(self._own.types)

    def stretches(self, kept: Sequence[pa.Array]) -> Stretches:
        values = kept[0]
        valid = valid_in(values)

        def folded(first: Numbers, stop: Numbers) -> list[pa.Array]:
            pairs, which = np.unique(np.stack([first, stop], axis=1), axis=0, return_inverse=True)
            parts = []
            for some, of, places in written_out(pairs[:, 0], pairs[:, 1]):
                held = [pa.nulls(some.stop - some.start, kind) for kind in self.types]
                if valid is not None:
                    there = valid[places]
                    of, places = of[there], places[there]
                ones = np.ones(len(of), np.int64)
                parts.append(self._own.fold(held, values.take(indices_of(places)), ones, of - some.start))
            if not parts:
                return [pa.nulls(0, kind) for kind in self.types]
            each = indices_of(which.reshape(-1))
            return [joined(list(columns)).take(each) for columns in zip(*parts, strict=True)]

        return folded

    def result(self, kept: list[pa.Array], kind: pa.DataType) -> pa.Array:
        made = self._own.result(kept)
        return made if made.type == kind else made.cast(kind)


def run_on(
    own: GroupFunction, values: pa.Array, shown: Flags, placed: PlacedRows, held: Sequence[pa.Array]
) -> tuple[pa.Array, list[pa.Array]]:
    """Return the result of each row, of all rows of its key up to it, and what is kept of each key behind its last row.

    Args:
        values: of the rows, key after key in order; `shown`: which of them count.
        held: what was kept of some keys, as `placed` has it.
    """
    keys = len(placed.starts)
    is_held = placed.ends - placed.starts > np.bincount(placed.of, minlength=keys)
    before = np.where(is_held, np.cumsum(is_held) - 1, -1)
    columns = held or [pa.nulls(0, kind) for kind in own.types]
    return own.run_on([taken(column, before) for column in columns], values, shown, placed.of)


def in_turns(
    own: GroupFunction, held: Sequence[pa.Array], values: pa.Array, shown: Flags, of: Numbers
) -> tuple[pa.Array, list[pa.Array]]:
    """Return what `GroupFunction.run_on` does, by folding the first row of all groups, then the second, and so on."""
    starts = np.searchsorted(of, of)
    turn = np.arange(len(of)) - starts
    order = np.argsort(turn, kind="stable")
    bounds = np.searchsorted(turn[order], np.arange(int(turn.max(initial=-1)) + 2))
    groups, columns = np.arange(len(held[0])), list(held)
    results, ended, kept = [], [], []
    for begin, end in pairwise(bounds.tolist()):
        places = order[begin:end]
        left = np.searchsorted(groups, of[places])
        done = np.ones(len(groups), np.bool_)
        done[left] = False
        ended.append(groups[done])
        kept.append([column.take(indices_of(np.flatnonzero(done))) for column in columns])
        groups, columns = groups[left], [column.take(indices_of(left)) for column in columns]
        counted = np.flatnonzero(shown[places])
        rows = values.take(indices_of(places[counted]))
        columns = own.fold(columns, rows, np.ones(len(counted), np.int64), counted)
        results.append(own.result(columns))
    ended.append(groups)
    kept.append(columns)
    back = indices_of(np.argsort(np.concatenate(ended)))
    whole = [joined(list(each)).take(back) for each in zip(*kept, strict=True)]
    if not results:
        return own.result([column.slice(0, 0) for column in held]), whole
    return joined(results).take(indices_of(np.argsort(order))), whole
