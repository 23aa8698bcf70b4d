"""Errors of SQL, which say where: line, column, the line of the script and a caret below the place."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

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
        kind: of error, one word for all that have the same reason: unknown_column, type_mismatch, syntax …
    """

    def __init__(self, what: str, *, place: Place, script: str, next: str, kind: str = "other") -> None:
        super().__init__(f"line {place.line}, column {place.column}: {what}", next=next)
        self.kind = kind
        self.place = place
        self.shown = place.shown_in(script)

    @classmethod
    def at(cls, node: exp.Expr, what: str, *, script: str, next: str, kind: str = "other") -> SqlError:
        """Return the error of a part of a statement: its place is that of the first name in it, or of the first one around it."""
        return cls(what, place=place_of(node), script=script, next=next, kind=kind)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("errors of a script stay in the process that reads it")


def place_of(node: exp.Expr) -> Place:
    """Return where a part of a statement begins: sqlglot knows it of names."""
    around: exp.Expr | None = node
    while around is not None:
        known = [each.meta for each in around.find_all(exp.Identifier, exp.Func, exp.Literal) if "line" in each.meta]
        if known:
            first = min(known, key=lambda each: each["start"])
            return Place(first["line"], max(first["col"] - (first["end"] - first["start"]), 1))
        around = around.parent
    return Place(1, 1)


class OptionError(DefinitionError):
    """An option of a table, or a setting, is not what it has to be.

    Args:
        kind: of error, as of `SqlError`: missing_option, unknown_option, bad_option_value …
    """

    def __init__(self, what: str, *, next: str, kind: str = "other") -> None:
        super().__init__(what, next=next)
        self.kind = kind

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("errors of a script stay in the process that reads it")
