"""Errors of SQL, which say where: line, column, the line of the script and a caret below the place."""

from __future__ import annotations

from dataclasses import dataclass

from poundlock.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a script: line and column, both from 1."""

    line: int
    column: int

    def shown_in(self, script: str) -> str:
        """Return the line of the script, and a caret below the place."""
        lines = script.splitlines() or [""]
        text = lines[min(self.line, len(lines)) - 1]
        # A tab stands for one column, so that the caret stands where the place is.
        return f"{text.expandtabs(1)}\n{' ' * (self.column - 1)}^"


class SqlError(DefinitionError):
    """A statement cannot be run.

    Args:
        what: what is wrong, in words, without the place.
        place: where in the script.
        script: the whole of it.
        next: what to write.
    """

    def __init__(self, what: str, *, place: Place, script: str, next: str) -> None:
        super().__init__(f"line {place.line}, column {place.column}: {what}", next=next)
        self.place = place
        self.shown = place.shown_in(script)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("errors of a script stay in the process that reads it")
