"""The wall clocks of a time zone as an axis of time, for windows whose borders are those of local days and hours.

A wall time is over once no later instant has it. So where clocks are put back, a time that comes twice is over the second time; one that
clocks skip is over when they are put forward. These are the rules by which Flink's windows fire, but for zones whose clocks are moved by
less or more than an hour, which there fire at other times.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property, lru_cache

import numpy as np

from poundlock.formats.arrays import Numbers
from poundlock.operators.keyed.group import MAX, MIN

_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_WEEK = timedelta(days=7)  # clocks of no zone are moved twice within it
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FARTHEST_MS = 172_800_000  # how far a wall time and its instant are apart at most, with room


def moves_clocks(zone: tzinfo) -> bool:
    """Return whether the distance of a zone's clocks from UTC has changed since 1970, or will."""
    return bool(_changes(zone)[0])


@dataclass(frozen=True)
class LocalTimes:
    """The wall times of a zone, as ms since 1970 on its clocks. Picklable.

    Before 1970 and from 2200 on its clocks are taken as they are then.
    """

    zone: tzinfo

    def of(self, instants: Numbers) -> Numbers:
        """Return the wall times of instants, ms."""
        changes, offsets = self._table
        times: Numbers = instants + offsets[np.searchsorted(changes, instants, "right")]
        return times

    def at(self, instant: int) -> int:
        """Return the wall time of one instant, ms; MIN and MAX stay."""
        return instant if instant in (MIN, MAX) else int(self.of(np.array([instant]))[0])

    def over(self, instants: Numbers) -> Numbers:
        """Return up to which wall time, ms, all are over at instants: no later one has any of those."""
        changes, _ = self._table
        least: Numbers = np.minimum(self.of(instants), self._coming[np.searchsorted(changes, instants, "right")])
        return least

    def over_at(self, instant: int) -> int:
        """Return up to which wall time all are over at one instant, ms; MIN and MAX stay."""
        return instant if instant in (MIN, MAX) else int(self.over(np.array([instant]))[0])

    def ends(self, times: Numbers) -> Numbers:
        """Return the first instants at which wall times are over, ms."""
        low, high = times - _FARTHEST_MS, times + _FARTHEST_MS
        while (high - low > 1).any():
            middle = (low + high) // 2
            is_over = self.over(middle) >= times
            low, high = np.where(is_over, low, middle), np.where(is_over, middle, high)
        return high

    def end(self, time: int) -> int:
        """Return the first instant at which one wall time is over, ms; MIN and MAX stay."""
        return time if time in (MIN, MAX) else int(self.ends(np.array([time]))[0])

    @cached_property
    def _table(self) -> tuple[Numbers, Numbers]:
        """When clocks were moved, and how far ahead of UTC they are before the first time and behind each, ms."""
        changes, offsets = _changes(self.zone)
        return np.array(changes, np.int64), np.array(offsets, np.int64)

    @cached_property
    def _coming(self) -> Numbers:
        """By how many times clocks have been moved, the last wall time that is not to come again, ms."""
        changes, offsets = self._table
        again = np.append(changes + offsets[1:] - 1, MAX)
        least: Numbers = np.minimum.accumulate(again[::-1])[::-1]
        return least

    def __reduce__(self) -> tuple[object, ...]:
        return LocalTimes, (self.zone,)


@lru_cache(maxsize=64)
def _changes(zone: tzinfo) -> tuple[list[int], list[int]]:
    """Return the instants, ms, at which clocks are moved, and the distances from UTC before the first and behind each."""
    changes: list[int] = []
    offsets = [_offset(zone, _FIRST)]
    moment = _FIRST if zone.utcoffset(None) is None else _LAST
    while moment < _LAST:
        later = moment + _WEEK
        if _offset(zone, later) != offsets[-1]:
            seconds = range(int(_WEEK.total_seconds()))
            before, first = offsets[-1], moment
            at = bisect_right(seconds, 0, key=lambda s: _offset(zone, first + timedelta(seconds=s)) != before)
            changes.append((first + timedelta(seconds=at) - _EPOCH) // timedelta(milliseconds=1))
            offsets.append(_offset(zone, later))
        moment = later
    return changes, offsets


def _offset(zone: tzinfo, moment: datetime) -> int:
    return (moment.astimezone(zone).utcoffset() or timedelta(0)) // timedelta(milliseconds=1)
