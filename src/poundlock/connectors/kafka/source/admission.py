"""How many offsets of each partition a checkpoint reads, and the pieces of them: arithmetic, the same for the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from poundlock.connectors.kafka.offsets import Offsets, Partition

_EVEN_PART = 10  # one tenth of the limit of a checkpoint is for everyone alike


def share(waiting: Mapping[Partition, int], limit: int | None) -> Offsets:
    """Return how many offsets of each partition to read, of those that wait; in all exactly the limit if more wait.

    A tenth of the limit is spread evenly, so that a small partition is not held up by a large one; the rest goes in proportion to
    what waits, so that partitions with an old backlog stay in step in event time.
    """
    if limit is None or sum(waiting.values()) <= limit:
        return dict(waiting)
    given = _evenly(waiting, limit // _EVEN_PART)
    left = {place: count - given[place] for place, count in waiting.items()}
    room, total = limit - sum(given.values()), sum(left.values())
    for place, count in left.items():
        given[place] += count * room // total
    missing = limit - sum(given.values())
    # What rounding left over: to those who lost most by it.
    order = sorted(left, key=lambda place: (-(left[place] * room % total), place))
    for place in [p for p in order if given[p] < waiting[p]][:missing]:
        given[place] += 1
    return given


def _evenly(waiting: Mapping[Partition, int], limit: int) -> Offsets:
    """Return equal parts of a limit, where what the smaller partitions do not need goes to the larger ones."""
    given, left = {}, len(waiting)
    for place in sorted(waiting, key=lambda p: (waiting[p], p)):
        given[place] = min(waiting[place], limit // left)
        limit -= given[place]
        left -= 1
    return given


def cut(
    ranges: Mapping[Partition, tuple[int, int]], *, most: int, at_least: int | None
) -> Iterator[tuple[Partition, int, int]]:
    """Yield the ranges cut into pieces of about equal size, by partition and offset: of `most` offsets, and `at_least` so many pieces,
    if there are as many offsets; None = as few as `most` allows.
    """
    total = sum(after - first for first, after in ranges.values())
    size = most if at_least is None else max(1, min(most, total // at_least))
    for place, (first, after) in sorted(ranges.items()):
        pieces = -(-(after - first) // size)
        bounds = [first + (after - first) * i // pieces for i in range(pieces)] + [after]
        for begin, end in pairwise(bounds):
            yield place, begin, end
