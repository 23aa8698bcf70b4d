"""Errors of SQL, which say where: line, column, the line of the script and a caret below the place."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.dialect import Flink

_DEEPEST = 5_000
_LONGEST_LINE = 160
_WIDE = ("W", "F")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a script: line and column, both from 1."""

    line: int
    column: int

    @classmethod
    def at(cls, script: str, offset: int) -> Place:
        """Return the place of a character of a script, counted from 0."""
        return cls(script.count("\n", 0, offset) + 1, offset - script.rfind("\n", 0, offset))

    def shown_in(self, script: str) -> str:
        """Return the line of the script, or what stands around the place where it is long, and a caret below the place."""
        lines = script.split("\n")
        text = printable(lines[min(self.line, len(lines)) - 1].rstrip("\r"))
        before = self.column - 1
        if len(text) > _LONGEST_LINE:
            begin = max(min(before - _LONGEST_LINE // 2, len(text) - _LONGEST_LINE), 0)
            end = begin + _LONGEST_LINE
            more = "…" if begin else ""
            before += len(more) - begin
            text = f"{more}{text[begin:end]}{'…' if end < len(text) else ''}"
        width = sum(2 if unicodedata.east_asian_width(each) in _WIDE else 1 for each in text[:before])
        return f"{text}\n{' ' * (width + max(before - len(text), 0))}^"


NOWHERE = Place(1, 1)
"""The place of what no name and no value tells the place of: the beginning of the script."""


def printable(text: str) -> str:
    """Return a text that a terminal shows, and does not obey: each character that is not printed is one that is."""
    return (
        text
        if text.isprintable()
        else "".join(each if each.isprintable() else " " if each.isspace() else "�" for each in text)
    )


def cut(text: str, most: int = 60) -> str:
    """Return a text, or its beginning where it is long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shown(node: exp.Expr | None) -> str:
    """Return a part of a statement as text, or its beginning where it is long."""
    return "nothing" if node is None else cut(node.sql(dialect=Flink))


class SqlError(DefinitionError):
    """A statement cannot be run.

    Args:
        what: what is wrong, in words, without the place.
        place: where in the script.
        script: the whole of it.
        next: what to write.
        kind: of error, one word for all that have the same reason: unknown_column, type_mismatch, syntax …
        code: of the error whose words it has.
    """

    def __init__(self, what: str, *, place: Place, script: str, next: str, kind: str = "other", code: str = "") -> None:
        placed = f"line {place.line}, column {place.column}: {printable(what)}"
        super().__init__(placed, next=printable(next), kind=kind, code=code)
        self.place = place
        self.bare = what
        self.shown = place.shown_in(script)

    @classmethod
    def at(cls, node: exp.Expr, what: str, *, script: str, next: str, kind: str = "other") -> SqlError:
        """Return the error of a part of a statement: its place is that of the first name in it, or of the first one around it."""
        return cls(what, place=place_of(node, script), script=script, next=next, kind=kind)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("errors of a script stay in the process that reads it")


def place_of(node: exp.Expr, script: str) -> Place:
    """Return where a part of a statement begins: sqlglot knows it of names."""
    around: exp.Expr | None = node
    while around is not None:
        known = [
            each.meta["start"]
            for each in around.find_all(exp.Identifier, exp.Func, exp.Literal)
            if "start" in each.meta
        ]
        if known:
            return Place.at(script, min(known))
        around = around.parent
    return NOWHERE


def too_deep(place: Place, script: str) -> SqlError:
    """Return the error of a statement that is nested more deeply than can be gone through."""
    next = "write parts of it as views, or as columns of a sub-query"
    return SqlError(
        "the statement is nested too deeply", place=place, script=script, next=next, kind="unsupported_query"
    )


@contextmanager
def deep_statements() -> Iterator[None]:
    """Let functions call each other more deeply than Python does by default, as they do for what is nested in a statement."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


class OptionError(DefinitionError):
    """An option of a table, or a setting, is not what it has to be.

    Args:
        kind: of error, as of `SqlError`: missing_option, unknown_option, bad_option_value …
    """

    def __init__(self, what: str, *, next: str, kind: str = "other") -> None:
        super().__init__(what, next=next, kind=kind)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("errors of a script stay in the process that reads it")
