"""Rows of a key that stand beside each other in several runs: parts of one sum become one row, whole rows are put in order.

A run that has a row without a value for a key takes away what older runs have of it, but not its own rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from poundlock.formats.arrays import Numbers, indices_of
from poundlock.operators.columns.encoding import decode_accumulators, encode_accumulators
from poundlock.operators.columns.groups import grouped
from poundlock.operators.columns.records import LAYOUT
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.state.runs.columns import Rows, concat, is_valid

_aggregates = lru_cache(64)(ColumnAggregates.of)


def stay_apart(merges: tuple[str, ...]) -> bool:
    """Return whether rows of a key are whole rows, each of which counts."""
    return bool(merges) and merges[0].startswith(LAYOUT)


def added_up(parts: Sequence[Rows], merges: tuple[str, ...], *, drop_deleted: bool) -> Rows:
    """Return one row for each key, by hash; before it one without a value where older runs are to lose theirs.

    Of whole rows all are returned, those of a key in the order they were written.

    Args:
        parts: newest first, each by hash.
        merges: the aggregates, or the columns of whole rows, as the manifest describes them.
        drop_deleted: whether there is nothing older.
    """
    rows = concat(list(reversed(parts)))
    valid = is_valid(rows.values)
    if valid.all():
        return _summed(rows, merges)
    age = np.repeat(np.arange(len(parts)), [len(part) for part in reversed(parts)])
    groups = grouped(rows.hashes, rows.keys)
    group_of = np.empty(len(rows), np.int64)
    group_of[groups.order] = np.repeat(np.arange(len(groups)), groups.counts)
    begins = np.full(len(groups), -1, np.int64)  # the run that took away what was older
    np.maximum.at(begins, group_of[~valid], age[~valid])
    summed = _summed(rows.take(np.flatnonzero(valid & (age >= begins[group_of]))), merges)
    if drop_deleted:
        return summed
    gone = rows.take(groups.firsts[begins >= 0])
    gone = gone.with_values(rows.values.take(indices_of(np.full(len(gone), np.flatnonzero(~valid)[0]))))
    both = concat([gone, summed])
    return both.take(np.argsort(both.hashes, kind="stable"))


def _summed(rows: Rows, merges: tuple[str, ...]) -> Rows:
    groups = grouped(rows.hashes, rows.keys)
    if stay_apart(merges):
        return rows.take(groups.order)
    aggregates = _aggregates(merges)
    firsts: Numbers = groups.firsts
    if groups.are_single:
        return rows.take(firsts)
    held = aggregates.merge(decode_accumulators(rows.values, aggregates.types), groups)
    return replace(rows.take(firsts), values=encode_accumulators(held))
