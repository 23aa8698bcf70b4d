"""The tables that a statement names while it is being typed, and their columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from poundlock.errors import PoundlockError
from poundlock.sql.dialect import Flink
from poundlock.sql.reserved import RESERVED
from poundlock.sql.statements.definitions import describe
from poundlock.sql.statements.session import SqlSession

_NAME = r"(?:`[^`]+`|[A-Za-z_]\w*)"
_PATH = rf"{_NAME}(?:\s*\.\s*{_NAME}){{0,2}}"
_NAMED = re.compile(rf"({_PATH})(?:\s+(?:AS\s+)?({_NAME}))?", re.IGNORECASE)
_BEFORE = re.compile(r"\b(?:FROM|JOIN|INTO|TABLE|DESCRIBE|DESC)\s+", re.IGNORECASE)
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_WORDS_BEHIND = frozenset(
    {"MATCH_RECOGNIZE", "PARTITION", "FOR", "TUMBLE", "HOP", "CUMULATE", "SESSION", "RENAME", "ADD", "SET"}
)


def named_tables(statement: str) -> dict[str, tuple[str, ...]]:
    """Return the tables of a statement by the name, or the alias, that stands for their columns: the path of each."""
    text = _COMMENTS.sub(" ", statement)
    named: dict[str, tuple[str, ...]] = {}
    for before in _BEFORE.finditer(text):
        at = before.end()
        while (match := _NAMED.match(text, at)) is not None:
            path = tuple(part.strip("` \n\t") for part in re.findall(_NAME, match[1]))
            alias = (match[2] or "").strip("`")
            if _is_word(match[1]):
                break
            named.setdefault(path[-1] if not alias or _is_word(match[2]) else alias, path)
            behind = re.match(r"\s*,\s*", text[match.end() :])
            if behind is None or before[0].strip().upper() != "FROM":
                break
            at = match.end() + behind.end()
    return named


def columns_of(session: SqlSession, table: Sequence[str]) -> list[tuple[str, str]]:
    """Return name and type of each column of a table or view; none where there is no such table, or its view is wrong."""
    name = exp.to_table(".".join(f"`{part}`" for part in table), dialect=Flink)
    try:
        return [(row[0], row[1]) for row in describe(session.analysis(""), name).rows]
    except PoundlockError:
        return []


def _is_word(name: str | None) -> bool:
    return name is not None and (name.upper() in RESERVED or name.upper() in _WORDS_BEHIND)
