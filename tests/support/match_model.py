"""Matches of a pattern by trying every way to divide rows among variables: what the automaton is held against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple

from poundlock.stream.matching import AfterMatch, PatternVariable

Division = tuple[int, ...]
"""The number of the variable of each row, from the first one on."""
Condition = Callable[[list[list[int]], int], bool]
"""Tells of the values of each variable's rows so far, and of a row, whether that may be of a variable."""


class NoPlace(Exception):
    """The next match would begin where this one did."""


class Known(NamedTuple):
    """A match: the numbers of its rows by variable, and when it is known."""

    rows: tuple[tuple[int, ...], ...]
    time: int


class MatchModel:
    """The matches of the rows of one key."""

    def __init__(
        self,
        pattern: Sequence[PatternVariable],
        after: AfterMatch,
        conditions: Sequence[Condition],
        within: int | None,
        rows: Sequence[tuple[int, int]],
    ) -> None:
        self.pattern, self.after, self.conditions, self.within, self.rows = pattern, after, conditions, within, rows

    def takes(self, start: int, before: Division, variable: int) -> bool:
        """Return whether the row behind some others may be of a variable."""
        values: list[list[int]] = [[] for _ in self.pattern]
        for at, each in enumerate(before):
            values[each].append(self.rows[start + at][1])
        return self.conditions[variable](values, self.rows[start + len(before)][1])

    def passes(self, start: int, before: Division, variable: int) -> bool:
        """Return whether a variable may be gone by although it could take one more row, which is the one behind some others."""
        return not (self.pattern[variable].is_greedy and self.takes(start, before, variable))

    def holds(self, start: int, division: Division) -> bool:
        """Return whether rows can be divided so, whatever comes behind them."""
        for at, variable in enumerate(division):
            before = division[:at]
            last = before[-1] if before else -1
            if not self.takes(start, before, variable):
                return False
            left = range(max(last, 0), variable)
            if variable == last and before.count(variable) == self.pattern[variable].most:
                return False
            if not all(self._may_go(start, before, each, before.count(each)) for each in left):
                return False
        return True

    def _may_go(self, start: int, before: Division, variable: int, count: int) -> bool:
        this = self.pattern[variable]
        if count < this.least:
            return False
        return count == this.most or self.passes(start, before, variable)

    def is_complete(self, start: int, division: Division) -> bool:
        """Return whether a division is a match."""
        before, last = division[:-1], division[-1]
        behind = range(last, len(self.pattern))
        return all(self._may_go(start, before, each, division.count(each)) for each in behind)

    def is_open(self, division: Division) -> bool:
        """Return whether rows may come to a division."""
        last = len(self.pattern) - 1
        return not (division[-1] == last and division.count(last) == self.pattern[last].most)

    def divisions(self, start: int, stop: int) -> Iterator[Division]:
        """Yield every way to divide rows."""
        for each in combinations_with_replacement(range(len(self.pattern)), stop - start):
            if self.holds(start, each):
                yield each

    def matches(self) -> Iterator[Known]:
        """Yield the matches in the order in which they are known.

        Raises:
            NoPlace: the next match would begin where this one did, or nowhere.
        """
        alive: dict[int, bool] = {}
        waiting: list[tuple[int, Division]] = []
        for number, (time, _) in enumerate(self.rows):
            if self.within is not None:
                for start in sorted(alive):
                    over = self.rows[start][0] + self.within
                    if alive[start] and over <= time:
                        same = [each for each in alive if self.rows[each][0] == self.rows[start][0]]
                        alive |= dict.fromkeys(same, False)
                        yield from self._due(alive, waiting, over)
            alive[number] = True
            for start in sorted(alive):
                if alive[start]:
                    ways = list(self.divisions(start, number + 1))
                    alive[start] = any(map(self.is_open, ways))
                    waiting += [(start, each) for each in ways if self.is_complete(start, each)]
            yield from self._due(alive, waiting, time)
        if self.within is not None:
            for start in sorted(alive):
                if alive[start]:
                    over = self.rows[start][0] + self.within
                    alive |= dict.fromkeys([e for e in alive if self.rows[e][0] == self.rows[start][0]], False)
                    yield from self._due(alive, waiting, over)

    def _due(self, alive: dict[int, bool], waiting: list[tuple[int, Division]], time: int) -> Iterator[Known]:
        while waiting:
            start, division = min(waiting, key=lambda each: each[0])
            if any(is_alive and each < start for each, is_alive in alive.items()):
                return
            rows = tuple(
                tuple(start + at for at, each in enumerate(division) if each == variable)
                for variable in range(len(self.pattern))
            )
            resumes = self._resumes(start, rows)
            yield Known(rows, time)
            for each in alive:
                alive[each] = alive[each] and each >= resumes
            waiting[:] = [each for each in waiting if each[0] >= resumes]

    def _resumes(self, start: int, rows: tuple[tuple[int, ...], ...]) -> int:
        if self.after.variable is None:
            return start + 1 if self.after.skip == "to next row" else max(map(max, filter(None, rows))) + 1
        own = rows[[each.name for each in self.pattern].index(self.after.variable)]
        at = own[0 if self.after.skip == "to first" else -1]
        if at == start:
            raise NoPlace(at)
        return at
