"""Patterns of rows, as MATCH_RECOGNIZE of SQL has them: variables one behind the other, each of some rows, without a row between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from poundlock.stream.nodes import KeyedNode, SortColumn

Row = Sequence[Any]
"""The values of a row, by the columns of a `MatchProgram`."""


@dataclass(frozen=True, slots=True)
class PatternVariable:
    """A variable, and how many rows it is of.

    Args:
        most: None for any number.
        is_greedy: whether a row that the variable may take is never one of those behind it.
    """

    name: str
    least: int = 1
    most: int | None = 1
    is_greedy: bool = False

    def __str__(self) -> str:
        """Return it as SQL writes it."""
        if (self.least, self.most) == (1, 1):
            return self.name
        sure = self.least == self.most or (self.least, self.most) == (0, 1)  # greedy or not, it is the same
        return f"{self.name}{{{self.least},{'' if self.most is None else self.most}}}{'' if self.is_greedy or sure else '?'}"


@dataclass(frozen=True, slots=True)
class AfterMatch:
    """Where the next match may begin: behind the last row of a match, at its second row, or at the first or last row of a variable."""

    skip: Literal["past last row", "to next row", "to first", "to last"]
    variable: str | None = None

    def __str__(self) -> str:
        """Return it as SQL writes it."""
        return f"SKIP {self.skip.upper()}{'' if self.variable is None else f' {self.variable}'}"


@dataclass(slots=True)
class MatchedRows:
    """The rows of a match, or of what may become one.

    Args:
        rows: those of the key that are kept.
        start: where its first row is among them.
        counts: how many rows each variable has, in the order of the pattern: they stand one behind the other.
        row: that is looked at, which is behind the others; None where there is none.
        at: the variable that the row may be of.
    """

    rows: Sequence[Row]
    start: int
    counts: Sequence[int]
    row: Row | None = None
    at: int = 0

    def row_of(self, variable: int | None, offset: int, *, from_first: bool) -> Row | None:
        """Return a row of a variable, None where it has so many not; of all variables for None.

        Args:
            offset: how many rows behind its first, or before its last one.
        """
        counts, start = self.counts, self.start
        count = sum(counts)
        if variable is not None:
            start += sum(counts[:variable])
            count = counts[variable]
        is_own = self.row is not None and (variable is None or variable == self.at)
        place = offset if from_first else count + is_own - offset - 1
        if not 0 <= place < count + is_own:
            return None
        return self.row if place == count else self.rows[start + place]

    def rows_of(self, variable: int | None) -> list[Row]:
        """Return all rows of a variable, or of all variables."""
        counts, start = self.counts, self.start
        count = sum(counts)
        if variable is not None:
            start += sum(counts[:variable])
            count = counts[variable]
        made = list(self.rows[start : start + count])
        if self.row is not None and (variable is None or variable == self.at):
            made.append(self.row)
        return made


MatchCondition = Callable[[MatchedRows], bool]
MatchResult = Callable[[MatchedRows, int], tuple[Any, ...]]
"""Makes of a match, and the time in ms at which it is known, the values of the columns that come out."""


class MatchProgram(Protocol):
    """What rows have to be to be of a variable, and what comes out for a match. Picklable."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that a row is of."""

    def conditions(self) -> Sequence[MatchCondition | None]:
        """Return for each variable whether a row may be of it; None: any row may."""

    def result(self) -> MatchResult:
        """Return what makes the row of a match."""


@dataclass(frozen=True, eq=False)
class MatchNode(KeyedNode):
    """A row for each match of a pattern in the rows of a key, in the order of their time.

    By event time a row waits until the watermark reaches it; one that comes behind the watermark is dropped and counted. Without a
    column of event time rows count as they arrive, at the time of the clock.

    Args:
        order: what rows of one time are ordered by, before the order in which they came.
        within_ms: the time between the first and the last row of a match is shorter than that; None: any.
    """

    pattern: Sequence[PatternVariable]
    after: AfterMatch
    program: MatchProgram
    order: Sequence[SortColumn] = ()
    within_ms: int | None = None

    def describe(self) -> str:
        """Return the step in words, for `explain`."""
        within = "" if self.within_ms is None else f" within {self.within_ms} ms"
        return f"matches of {' '.join(map(str, self.pattern))}{within} AFTER MATCH {self.after}"
