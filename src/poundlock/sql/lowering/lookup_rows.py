"""Lookup joins: each row with those that a table has for its keys now. The keys of a batch are looked up at once, each but once.

What a table answers stays in a cache of the worker process where the table's options say so, for all tasks and checkpoints that it works on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of, indices_of, joined, numbers_in, ranges, valid_in
from poundlock.sql.connectors.table import RowLookup
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import Expression
from poundlock.sql.functions.kernels.columns import trues
from poundlock.sql.lowering.lookup_cache import Answer, cache_of
from poundlock.sql.lowering.programs import CalcProgram


@dataclass(frozen=True)
class LookupJoinProgram:
    """Rows with those of a table; of a left join each at least once.

    Args:
        keys: columns that are equal, of the rows and of what `right` gives.
        looked_up: of those the columns of the rows by which the table is asked.
        right: makes columns of the table's rows.
        left_names, right_names: the columns that come out.
        types: of the right ones.
        condition: what else has to be true of a pair.
    """

    lookup: RowLookup
    keys: tuple[tuple[str, str], ...]
    looked_up: tuple[str, ...]
    right: CalcProgram
    left_names: tuple[str, ...]
    right_names: tuple[str, ...]
    is_outer: bool
    condition: Expression | None
    context: EvaluationContext
    leaves_out: bool = False

    def at(self, clock_ms: int) -> LookupJoinProgram:
        """Return the program of a checkpoint that began at a time, ms since 1970."""
        context = replace(self.context, now_us=clock_ms * 1_000)
        return replace(self, context=context, right=self.right.at(clock_ms))

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the pairs, those of one row one behind the other."""
        wanted = DistinctKeys.of([rows.column(left) for left, _ in self.keys])
        right, owners = self._answers(rows, wanted)
        counts = np.bincount(owners, minlength=len(wanted.firsts) + 1)
        starts = np.cumsum(counts) - counts
        shown = counts[wanted.codes]
        places = np.repeat(np.arange(rows.num_rows), shown)
        matches = ranges(starts[wanted.codes], shown)
        if self.condition is not None and len(places):
            pairs = _beside(rows.take(indices_of(places)), right.take(indices_of(matches)))
            met = np.flatnonzero(trues(evaluate(self.condition, pairs, self.context)))
            places, matches = places[met], matches[met]
        there: Flags | None = None
        if self.is_outer:
            shown = np.bincount(places, minlength=rows.num_rows)
            there = np.repeat(shown > 0, np.maximum(shown, 1))
            all_matches = np.zeros(len(there), np.int64)
            all_matches[there] = matches
            places, matches = np.repeat(np.arange(rows.num_rows), np.maximum(shown, 1)), all_matches
        taken = column_of(matches, pa.int64(), there)
        columns = [rows.column(name).take(indices_of(places)) for name in self.left_names]
        columns += [right.column(name).take(taken) for name in self.right_names]
        return pa.RecordBatch.from_arrays(columns, [*self.left_names, *self.right_names]), places

    def _answers(self, rows: pa.RecordBatch, wanted: DistinctKeys) -> Answer:
        """Return rows of the table, and the number of the key that each is of, ascending."""
        keys = rows.take(indices_of(wanted.firsts)).select(list(dict.fromkeys(left for left, _ in self.keys)))
        # What is kept has gone through `right`: another query of the same table may leave out other rows and columns.
        cache = cache_of(repr((self.lookup.identity, self.keys, self.right.steps)), self.lookup.cache)
        return self._asked(keys) if cache is None else cache.answer(keys, self._asked)

    def _asked(self, keys: pa.RecordBatch) -> Answer:
        """Return what the table has for some keys now; as `_answers`."""
        columns = [keys.column(left) for left, _ in self.keys]
        by = keys.select(list(dict.fromkeys(self.looked_up)))
        asked = DistinctKeys.of(by.columns)
        given = self.lookup.rows(by.take(indices_of(asked.firsts)))
        right, _ = self.right.run(given)
        both = [joined([one, right.column(name)]) for one, (_, name) in zip(columns, self.keys, strict=True)]
        codes = DistinctKeys.of(both)
        owner = np.full(len(codes.firsts) + 1, -1, np.int64)
        owner[codes.codes[: keys.num_rows]] = np.arange(keys.num_rows)
        owner[-1] = -1  # of keys with a null
        owners = owner[codes.codes[keys.num_rows :]]
        order = np.argsort(owners, kind="stable")
        order = order[owners[order] >= 0]
        return right.take(indices_of(order)), owners[order]

    def describe(self) -> str:
        """Return it in words."""
        return f"{'left ' if self.is_outer else ''}lookup join: {self.lookup.describe()}"


def _beside(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*left.columns, *right.columns], [*left.schema.names, *right.schema.names])


@dataclass(frozen=True, slots=True)
class DistinctKeys:
    """The different keys of some rows.

    Args:
        codes: the number of each row's key; one behind the last for a key with a null.
        firsts: the first row of each key.
    """

    codes: Numbers
    firsts: Numbers

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> DistinctKeys:
        """Return those of rows with these key columns."""
        codes = np.zeros(len(columns[0]), np.int64)
        valid = np.ones(len(codes), np.bool_)
        for column in columns:
            encoded = column.dictionary_encode()
            there = valid_in(column)
            own = numbers_in(encoded.indices).astype(np.int64)
            if there is not None:
                valid &= there
                own = np.where(there, own, 0)
            _, codes = np.unique(codes * max(len(encoded.dictionary), 1) + own, return_inverse=True)
        rows = np.flatnonzero(valid)
        _, firsts, numbers = np.unique(codes[rows], return_index=True, return_inverse=True)
        made = np.full(len(codes), len(firsts), np.int64)
        made[rows] = numbers
        return cls(made, rows[firsts])
