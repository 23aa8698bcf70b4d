"""Pieces of Spark SQL that a plan can understand by their words alone: columns, their names, calls of functions.

Texts are cut, never written anew: what goes on to Spark is what the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token


_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Words that are values or functions although they look like columns. `user` is one too, but many a table has such a column.
_NOT_COLUMNS = frozenset(
    [
        "null",
        "true",
        "false",
        "current_date",
        "current_timestamp",
        "current_time",
        "current_user",
        "session_user",
        "localtimestamp",
        "case",
        "not",
        "distinct",
        "interval",
        "grouping__id",
    ]
)


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column, or a field of one, and what it is to be called.

    Args:
        path: its name, or the names on the way to a field of a struct.
        name: what it is called: its alias, or the last name of its path.
    """

    path: tuple[str, ...]
    name: str

    @property
    def column(self) -> str | None:
        """The name of a column that is not a field of another."""
        return self.path[0] if len(self.path) == 1 else None


@dataclass(frozen=True, slots=True)
class Part:
    """A token of Spark SQL.

    Args:
        text: what it says; without quotes where it has some.
        start: position of its first character.
        end: position behind its last character.
        kind: "word", "quoted" (in backquotes), "string", "number" or "mark".
    """

    text: str
    start: int
    end: int
    kind: str

    @property
    def lower(self) -> str:
        """What it says if it is a word or a mark, in small letters; else nothing."""
        return self.text.lower() if self.kind in ("word", "mark") else ""

    @property
    def names_column(self) -> bool:
        """Whether it can be the name of a column."""
        return self.kind == "quoted" or (self.kind == "word" and self.lower not in _NOT_COLUMNS)


def parts_of(text: str) -> Sequence[Part]:
    """Return the tokens of a text; none where it is not Spark SQL at all."""
    if _WORD.fullmatch(text):
        return [Part(text, 0, len(text), "word")]
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import SqlglotError

    try:
        return [_part(token, text) for token in Spark().tokenize(text)]
    except SqlglotError:
        return []


def _part(token: Token, text: str) -> Part:
    first = text[token.start]
    if first == "`":
        kind = "quoted"
    elif first in "'\"" or (text[token.end] in "'\"" and token.end > token.start):
        kind = "string"
    elif _WORD.fullmatch(token.text):
        kind = "word"
    else:
        kind = "number" if first.isdigit() else "mark"
    return Part(token.text, token.start, token.end + 1, kind)


def named_column(text: str) -> NamedColumn | None:
    """Return the column that an expression is, such as "user", "`a b`" or "left.user AS u"; None if it is anything else."""
    body, alias = without_alias(parts_of(text))
    if len(body) % 2 == 0 or any(part.lower != "." for part in body[1::2]):
        return None
    names = body[::2]
    if not names[0].names_column or any(part.kind not in ("word", "quoted") for part in names[1:]):
        return None
    return NamedColumn(tuple(part.text for part in names), names[-1].text if alias is None else alias)


def without_alias(parts: Sequence[Part]) -> tuple[Sequence[Part], str | None]:
    """Return an expression without the name that it is given, and the name; None if it is given none."""
    if len(parts) < 2 or not parts[-1].names_column:
        return parts, None
    if parts[-2].lower == "as" and len(parts) > 2:
        return parts[:-2], parts[-1].text
    ends = parts[-2].kind in ("quoted", "number", "string") or parts[-2].lower in (")", "]")
    if ends or (parts[-2].names_column and _is_path(parts[:-1])):
        return parts[:-1], parts[-1].text
    return parts, None


def _is_path(parts: Sequence[Part]) -> bool:
    return len(parts) % 2 == 1 and all(part.lower == "." for part in parts[1::2])


def resolve_column(schema: pa.Schema, name: str, operator: str) -> str:
    """Return the column of a schema that a name means, which need not be in the same case.

    Raises:
        DefinitionError: there is none, or several differ from the name by case only.
    """
    if name in schema.names:
        return name
    alike = [each for each in schema.names if each.lower() == name.lower()]
    if len(alike) == 1:
        return str(alike[0])
    names = ", ".join(each for each in schema.names if not each.startswith("__"))
    if alike:
        raise DefinitionError(
            f"{operator}: {name!r} may mean any of {', '.join(alike)}", next="write the name as the column has it"
        )
    raise DefinitionError(f"{operator}: there is no column {name!r}", next=f"use one of {names}")
