"""Rows behind the watermark and the sessions of their keys: which session each row joins, which rows are late, and what fires with them.

That is decided row by row, by the bounds of sessions alone. What the sessions hold is added up behind it, for all rows at once: in each
step a sum takes in the sum before it, which is as long as itself, so there are as many steps as the most rows of one session have bits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, indices_of, joined
from poundlock.operators.columns.aggregation import Aggregation
from poundlock.operators.columns.groups import Groups


@dataclass(frozen=True)
class Firings:
    """Sessions that fire, each with a row that came to it.

    A session has a number. One that fired has that of its last firing, which are counted on from those of the sessions.

    Args:
        rows: the row of each.
        starts: of the sessions as they are then, ms; `ends` likewise.
        first: the number of the first session that the row touched; -1: it touched none.
        counts: how many others it touched.
        rounds: the round in which each is added up: behind that of each other, and not before that of the first; from 1 on.
        others: the numbers of all those others, firing behind firing.
    """

    rows: Numbers
    starts: Numbers
    ends: Numbers
    first: Numbers
    counts: Numbers
    rounds: Numbers
    others: Numbers

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class KnownSessions:
    """The sessions that some keys have.

    Args:
        keys: how many keys there are.
        key_of: the number of each session's key.
        starts: ms; `ends` likewise.
    """

    keys: int
    key_of: Numbers
    starts: Numbers
    ends: Numbers

    def join(self, key_of: Numbers, times: Numbers, *, gap: int, fires_to: int, late_to: int) -> tuple[Flags, Firings]:
        """Return which rows are late if they join the sessions of their keys one after the other, and what fires with the others.

        Args:
            key_of: the number of each row's key.
            times: of the rows, ms.
            gap: of the sessions, ms.
            fires_to: the last timestamp of sessions that fire as soon as a row comes to them: the watermark.
            late_to: that of sessions that are gone by then.
        """
        all_starts, all_ends, all_numbers = self._by_key()
        late = np.zeros(len(times), np.bool_)
        fired: list[tuple[int, int, int, int, int, int]] = []
        others: list[int] = []
        rounds = [0] * len(self.starts)
        for row, (key, start) in enumerate(zip(key_of.tolist(), times.tolist(), strict=True)):
            starts, ends, numbers = all_starts[key], all_ends[key], all_numbers[key]
            end = start + gap
            stop = bisect_right(starts, end)
            first = bisect_left(ends, start, 0, stop)
            touched = numbers[first:stop]
            if touched:
                start, end = min(start, starts[first]), max(end, ends[stop - 1])
            elif end - 1 <= late_to:
                late[row] = True
                continue
            number = -1  # what is open yet does not fire with a row
            if end - 1 <= fires_to:
                number = len(rounds)
                rounds.append(
                    max([1, *(rounds[each] for each in touched[:1]), *(1 + rounds[each] for each in touched[1:])])
                )
                fired.append((row, start, end, touched[0] if touched else -1, len(touched[1:]), rounds[-1]))
                others += touched[1:]
            starts[first:stop], ends[first:stop], numbers[first:stop] = [start], [end], [number]
        of = np.array(fired, np.int64).reshape(-1, 6).T
        return late, Firings(of[0], of[1], of[2], of[3], of[4], of[5], np.array(others, np.int64))

    def _by_key(self) -> list[list[list[int]]]:
        """Return starts, ends and numbers of the sessions of each key, in the order of time."""
        order = np.lexsort((self.starts, self.key_of))
        edges = np.searchsorted(self.key_of[order], np.arange(self.keys + 1)).tolist()
        columns = [values[order].tolist() for values in (self.starts, self.ends, np.arange(len(self.starts)))]
        return [[column[first:stop] for first, stop in pairwise(edges)] for column in columns]


def running(
    firings: Firings, sessions: Sequence[pa.Array], rows: Sequence[pa.Array], aggregates: Aggregation
) -> list[pa.Array]:
    """Return what each session holds when it fires.

    Args:
        sessions: what each session holds before rows come to it.
        rows: what the row of each firing is alone.
    """
    before, n = len(sessions[0]), len(firings)
    pool = [joined(each) for each in zip(rows, sessions, strict=True)]
    place = np.append(n + np.arange(before), np.empty(n, np.int64))  # in the pool, of sessions and of firings
    rounds = np.append(np.zeros(before, np.int64), firings.rounds)
    owners = np.repeat(np.arange(n), firings.counts)
    for number in range(1, int(firings.rounds.max(initial=0)) + 1):
        own = np.flatnonzero(firings.rounds == number)
        first = firings.first[own]
        known = (first >= 0) & (rounds[first] < number)
        other = firings.rounds[owners] == number
        owner = np.concatenate([own[known], owners[other], own])
        parts = np.concatenate([place[first[known]], place[firings.others[other]], own])
        order = np.argsort(owner, kind="stable")
        starts = np.flatnonzero(np.diff(owner[order], prepend=-1))
        held = aggregates.merge(pool, Groups(parts[order], starts))
        follows = np.where((first >= 0) & ~known, np.searchsorted(own, first - before), -1)
        place[before + own] = len(pool[0]) + np.arange(len(own))
        pool = [joined(each) for each in zip(pool, _run_on(held, follows, aggregates), strict=True)]
    done = indices_of(place[before:])
    return [column.take(done) for column in pool]


def _run_on(held: Sequence[pa.Array], follows: Numbers, aggregates: Aggregation) -> Sequence[pa.Array]:
    """Return each behind all that it follows.

    Args:
        follows: the place of the one that each follows at once; -1: none. No two follow the same one.
    """
    while len(some := np.flatnonzero(follows >= 0)):
        pairs = np.stack([follows[some], some], axis=1).ravel()
        longer = aggregates.merge(held, Groups(pairs, np.arange(0, len(pairs), 2)))
        places = np.arange(len(follows))
        places[some] = len(follows) + np.arange(len(some))
        taken = indices_of(places)
        held = [joined(each).take(taken) for each in zip(held, longer, strict=True)]
        follows[some] = follows[follows[some]]
    return held
