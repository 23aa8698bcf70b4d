"""The columns of a relation, as the script calls them and as they are called in the batches that tasks have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from poundlock.sql.expressions.tree import ColumnRef
from poundlock.sql.types import SqlType

TimeKind = Literal["rowtime", "proctime"]


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a relation.

    Args:
        name: as the script calls it.
        column: as it is called in batches, which no other column of the statement is.
        time: whether it is a time attribute: event time that a watermark follows, or the clock.
    """

    name: str
    column: str
    type: SqlType
    time: TimeKind | None = None

    @property
    def ref(self) -> ColumnRef:
        """The column as an expression."""
        return ColumnRef(self.column, self.type)

    def renamed(self, name: str) -> Field:
        """Return the same column under another name in the script."""
        return replace(self, name=name)

    def plain(self) -> Field:
        """Return the same column as no time attribute."""
        return replace(self, time=None)


_OURS = ("row_kind", "sql_rowtime", "value", "window_start", "window_end")
"""Columns that steps of ours put beside those of a statement."""


class ColumnNames:
    """Gives names to the columns of a statement's batches, each once."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = dict.fromkeys(_OURS, 0)

    def fresh(self, name: str) -> str:
        """Return a name that no column has; the wanted one where that is free."""
        name = name.lstrip("_") or "column"  # what begins so is hidden
        if name not in self._taken:
            self._taken[name] = 0
            return name
        while True:
            self._taken[name] += 1
            made = f"{name}_{self._taken[name]}"
            if made not in self._taken:
                self._taken[made] = 0
                return made


def distinct_names(names: Iterable[str]) -> Iterator[str]:
    """Yield names as Flink makes those of a result differ: a number behind one that was there before."""
    seen: set[str] = set()
    for name in names:
        made, number = name, 0
        while made in seen:
            made, number = f"{name}{number}", number + 1
        seen.add(made)
        yield made
