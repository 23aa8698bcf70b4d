"""The states of a pattern: which variables the next row may be of. The rules are those of Flink's library of event patterns.

A row that a greedy variable may take is never one of a variable behind it, whatever comes then: there is no going back. Of all other ways
to divide rows among variables each is followed by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from poundlock.stream.matching import PatternVariable

FINAL = -1
"""The state in which a match is complete."""
Takes = Callable[[int], bool]
"""Tells whether the row that is looked at may be of a variable."""


@dataclass(slots=True)
class PatternState:
    """A state.

    Args:
        variable: that the next row may be of.
        take: the state behind that row.
        skip: the state whose variable the row may be of instead; None where it may not.
        is_greedy: whether it may be so only if it is not of this one.
    """

    variable: int
    take: int
    skip: int | None = None
    is_greedy: bool = False


class Automaton:
    """The states of a pattern."""

    def __init__(self, pattern: Sequence[PatternVariable]) -> None:
        self.states: list[PatternState] = []
        following = FINAL
        for number in range(len(pattern) - 1, -1, -1):
            following = self._begin_of(number, pattern[number], following)
        self.first = following

    def _begin_of(self, number: int, variable: PatternVariable, following: int) -> int:
        """Return the state in which the first row of a variable is awaited; the states behind it are those of its further rows."""
        greedy = variable.is_greedy
        least, behind = max(variable.least, 1), following
        if variable.most is None:
            behind = self._add(PatternState(number, len(self.states), following, greedy))
        for _ in range(least, variable.most or least):
            behind = self._add(PatternState(number, behind, following, greedy))
        for _ in range(least - 1):
            behind = self._add(PatternState(number, behind))
        return self._add(PatternState(number, behind, following if variable.least == 0 else None, greedy))

    def _add(self, state: PatternState) -> int:
        self.states.append(state)
        return len(self.states) - 1

    def steps(self, state: int, takes: Takes) -> Iterator[tuple[int, int]]:
        """Yield each variable that a row may be of in a state, and the state behind it."""
        while state != FINAL:
            here = self.states[state]
            is_taken = takes(here.variable)
            if is_taken:
                yield here.variable, here.take
            if here.skip is None or (here.is_greedy and is_taken):
                return
            state = here.skip

    def may_end(self, state: int, takes: Takes) -> bool:
        """Return whether a match may be complete in a state without a further row; of the last row a greedy variable is asked once more."""
        while state != FINAL:
            here = self.states[state]
            if here.skip is None or (here.is_greedy and takes(here.variable)):
                return False
            state = here.skip
        return True
