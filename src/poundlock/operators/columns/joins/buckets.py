"""Buckets of time: rows of a side of a join lie in stretches of time, so that what no row can join any more goes away by the bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poundlock.formats.arrays import Numbers
from poundlock.operators.columns.joins.matching import TimedRows
from poundlock.operators.columns.operator import Slice

_PARTS_OF_A_STAY, _LEAST_MS = 4, 1_000
"""In how many buckets the rows are that stay as long as a row does, unless a bucket were shorter than this."""
_MOST_BUCKETS = 64  # of what a checkpoint adds: one stream may be days ahead of the other


def by_bucket(rows: Sequence[TimedRows], there: Sequence[Slice], stay_ms: int) -> dict[Slice, list[TimedRows]]:
    """Return rows by the bucket that each is kept in, those of one bucket in their order.

    Args:
        there: the buckets that there are; one without a width takes no rows.
        stay_ms: how long a row is kept behind its own time.
    """
    by: dict[Slice, list[TimedRows]] = {}
    some = [each for each in rows if len(each)]
    if not some:
        return by
    span = max(int(each.times.max()) for each in some) - min(int(each.times.min()) for each in some)
    width = max(stay_ms // _PARTS_OF_A_STAY, _LEAST_MS)
    while span // width > _MOST_BUCKETS:
        width *= 2
    known = TimeBuckets.of([(start, end) for start, end in there if start < end])
    for each in some:
        for number, part in each.parted(known.numbers(each.times, width)):
            by.setdefault(known.bucket(number, width), []).append(part)
    return by


@dataclass(frozen=True)
class TimeBuckets:
    """The buckets that there are. A row goes to the last of those that its time is in, in the order in which they are read.

    So rows of one key and time are read in the order they came, though tasks that saw other rows made buckets of other widths.

    Args:
        edges: where one of them begins or ends, ascending.
        last: of the stretch of time from each edge on, the last bucket; None where there is none.
    """

    edges: Numbers
    last: Sequence[Slice | None]

    @classmethod
    def of(cls, buckets: Sequence[Slice]) -> TimeBuckets:
        """Return these, each with a width."""
        edges = sorted({edge for bucket in buckets for edge in bucket})
        last = [max((each for each in buckets if each[0] <= edge < each[1]), default=None) for edge in edges]
        return cls(np.array(edges, np.int64), last)

    def numbers(self, times: Numbers, width: int) -> Numbers:
        """Return the number of the bucket of each time: below 0 of one that there is, else of a new one of some width, counted from the first."""
        numbers = times // width + (1 << 62) // width
        at = np.searchsorted(self.edges, times, "right") - 1
        inside = np.array([each is not None for each in self.last] + [False])[at]
        numbers[inside] = at[inside] - len(self.edges)
        return numbers

    def bucket(self, number: int, width: int) -> Slice:
        """Return the bucket of a number."""
        if number < 0:
            bucket = self.last[number]
            assert bucket is not None
            return bucket
        start = (number - (1 << 62) // width) * width
        return start, start + width
