"""What may become a match in the rows of one key, and what is one and waits for an earlier one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from poundlock.errors import TerminalError
from poundlock.operators.matching.automaton import FINAL, Automaton
from poundlock.stream.matching import AfterMatch, MatchCondition, MatchedRows, PatternVariable, Row

_TRIM_AT = 512  # rows that nothing needs any more, which are removed at once


class PartialMatch(NamedTuple):
    """Rows that a pattern goes through, one behind the other.

    Args:
        state: that the automaton is in.
        start: the number of the first row.
        counts: how many rows each variable has.
    """

    state: int
    start: int
    counts: tuple[int, ...]


class Matching:
    """How matches are made: the same for all keys."""

    def __init__(
        self,
        pattern: Sequence[PatternVariable],
        after: AfterMatch,
        conditions: Sequence[MatchCondition | None],
        within_ms: int | None = None,
    ) -> None:
        self.automaton, self.conditions, self.within_ms = Automaton(pattern), conditions, within_ms
        self.width, self._after = len(pattern), after
        names = [each.name for each in pattern]
        self._target = 0 if after.variable is None else names.index(after.variable)

    def resumes_at(self, match: PartialMatch) -> int:
        """Return the number of the first row that the next match may begin with.

        Raises:
            TerminalError: the match has no such row, or would come again and again.
        """
        if self._after.skip == "to next row":
            return match.start + 1
        if self._after.skip == "past last row":
            return match.start + sum(match.counts)
        before, count = sum(match.counts[: self._target]), match.counts[self._target]
        if count == 0 or (before == 0 and (self._after.skip == "to first" or count == 1)):
            what = "has no row" if count == 0 else "is of the first row of the match, which would come again"
            raise TerminalError(
                f"AFTER MATCH {self._after}: the variable {what}",
                next="write AFTER MATCH SKIP PAST LAST ROW, or name another variable",
            )
        return match.start + before + (count - 1 if self._after.skip == "to last" else 0)


class KeyMatches:
    """The partial matches of one key, and its rows from the first one that such a match begins with.

    Args:
        kept: what `kept` has given.
    """

    __slots__ = ("_complete", "_first", "_matching", "_partial", "_rows", "_times")

    def __init__(self, matching: Matching, kept: Sequence[Any] | None = None) -> None:
        self._matching = matching
        self._first = 0  # the number of the first row that is kept
        self._times: list[int] = []
        self._rows: list[Row] = []
        self._partial: list[PartialMatch] = []
        self._complete: list[PartialMatch] = []
        if kept is not None:
            times, rows, partial, complete = kept
            self._times, self._rows = list(times), list(rows)
            self._partial = [PartialMatch(state, start, tuple(counts)) for state, start, *counts in partial]
            self._complete = [PartialMatch(FINAL, start, tuple(counts)) for start, *counts in complete]

    def kept(self) -> list[Any] | None:
        """Return it as state keeps it, None where nothing is begun."""
        self._trim()
        if not self._rows:
            return None
        partial = [[each.state, each.start - self._first, *each.counts] for each in self._partial]
        complete = [[each.start - self._first, *each.counts] for each in self._complete]
        return [self._times, self._rows, partial, complete]

    def over_at(self) -> int | None:
        """Return when the first partial match will have taken too long, in ms; None where none is begun, or may take any time."""
        within = self._matching.within_ms
        return None if within is None or not self._partial else self._began(self._partial) + within

    def advance(self, time: int) -> Iterator[tuple[MatchedRows, int]]:
        """End partial matches that have taken too long by some time, and yield the matches that waited for them, with when that was."""
        while (over := self.over_at()) is not None and over <= time:
            began = self._began(self._partial)
            self._partial = [each for each in self._partial if self._time_of(each.start) > began]
            yield from self._due(over)

    def add(self, time: int, row: Row) -> Iterator[tuple[MatchedRows, int]]:
        """Take a row, which is not earlier than those before it, and yield the matches that are known with it."""
        matching = self._matching
        automaton, number = matching.automaton, self._first + len(self._rows)
        self._times.append(time)
        self._rows.append(row)
        behind: list[PartialMatch] = []
        begin = PartialMatch(automaton.first, number, (0,) * matching.width)
        for partial in (*self._partial, begin):
            takes = _Asked(
                matching.conditions, MatchedRows(self._rows, partial.start - self._first, partial.counts, row)
            )
            for variable, state in automaton.steps(partial.state, takes):
                counts = (*partial.counts[:variable], partial.counts[variable] + 1, *partial.counts[variable + 1 :])
                if state != FINAL:
                    behind.append(PartialMatch(state, partial.start, counts))
                if automaton.may_end(state, takes):
                    self._complete.append(PartialMatch(FINAL, partial.start, counts))
        self._partial = behind
        yield from self._due(time)
        if not self._partial and not self._complete:
            self._first += len(self._rows)
            self._times, self._rows = [], []
        elif len(self._rows) > _TRIM_AT and self._needed() - self._first > _TRIM_AT:
            self._trim()

    def _due(self, time: int) -> Iterator[tuple[MatchedRows, int]]:
        """Yield complete matches that no partial one that began earlier can come before; what a match goes over is forgotten."""
        while self._complete:
            match = min(self._complete, key=lambda partial: partial.start)  # of several the one that was complete first
            if any(partial.start < match.start for partial in self._partial):
                return
            resumes = self._matching.resumes_at(match)
            yield MatchedRows(self._rows, match.start - self._first, match.counts), time
            self._partial = [partial for partial in self._partial if partial.start >= resumes]
            self._complete = [partial for partial in self._complete if partial.start >= resumes]

    def _time_of(self, number: int) -> int:
        return self._times[number - self._first]

    def _began(self, partial: Sequence[PartialMatch]) -> int:
        return self._time_of(min(each.start for each in partial))

    def _needed(self) -> int:
        return min((each.start for each in (*self._partial, *self._complete)), default=self._first + len(self._rows))

    def _trim(self) -> None:
        """Remove rows that no match has."""
        needed = self._needed()
        self._times, self._rows = self._times[needed - self._first :], self._rows[needed - self._first :]
        self._first = needed


class _Asked:
    """Answers whether a row may be of a variable, each asked once."""

    __slots__ = ("_conditions", "_known", "_rows")

    def __init__(self, conditions: Sequence[MatchCondition | None], rows: MatchedRows) -> None:
        self._conditions, self._rows = conditions, rows
        self._known: dict[int, bool] = {}

    def __call__(self, variable: int) -> bool:
        condition = self._conditions[variable]
        if condition is None:
            return True
        known = self._known.get(variable)
        if known is None:
            self._rows.at = variable
            known = self._known[variable] = condition(self._rows)
        return known
