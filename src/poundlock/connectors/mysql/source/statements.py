"""What a statement in the log does to tables that are read. Row-based logging has as text only what defines tables; anything else stands for lost rows."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from poundlock.connectors.mysql.source.log import Statement

_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_DOTTED = re.compile(rf"({_NAME})(?:\s*\.\s*({_NAME}))?")
_COMMENT = re.compile(r"/\*(?![!M]).*?\*/|--\s[^\n]*|#[^\n]*", re.DOTALL)
_TABLE = rf"\s+(?:IF\s+EXISTS\s+|IF\s+NOT\s+EXISTS\s+)?({_NAME}(?:\s*\.\s*{_NAME})?)"
_EMPTIES = re.compile(rf"TRUNCATE(?:\s+TABLE)?{_TABLE}", re.IGNORECASE)
_ALTERS = re.compile(rf"ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE{_TABLE}(.*)", re.IGNORECASE | re.DOTALL)
_REMOVES = re.compile(
    r"(?:DROP\s+TABLES?|RENAME\s+TABLES?|CREATE\s+OR\s+REPLACE\s+TABLE)\b(.*)", re.IGNORECASE | re.DOTALL
)
_REMOVES_ALL = re.compile(rf"DROP\s+(?:DATABASE|SCHEMA){_TABLE}", re.IGNORECASE)
_IN_ROWS = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD)\b(.*)", re.IGNORECASE | re.DOTALL)
_BACK = re.compile(r"ROLLBACK\b", re.IGNORECASE)

Kind = Literal["emptied", "added", "altered", "removed", "as text", "rolled back"]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a statement does: to a table, None = to the transaction that it stands in.

    Args:
        kind: "emptied": all rows are gone; "added": there are further columns, and rows are as they were; "altered": anything may
            be; "removed": the table is another one now, or none; "as text": rows change, and the log does not have them.
        columns: those that are added.
    """

    kind: Kind
    table: str | None
    columns: tuple[str, ...] = ()


def effects(statement: Statement, tables: Collection[str]) -> list[Effect]:
    """Return what a statement does to some tables ("database.table")."""
    text = _COMMENT.sub(" ", statement.text).strip()
    if _BACK.match(text):
        return [Effect("rolled back", None)]
    if (match := _EMPTIES.match(text)) is not None:
        return [Effect("emptied", name) for name in _named(match[1], statement.database, tables)]
    if (match := _ALTERS.match(text)) is not None:
        added = _added(match[2])
        names = _named(match[1], statement.database, tables)
        # A table that takes the name of one that is read.
        others = [] if added is not None else _named(match[2], statement.database, set(tables) - set(names))
        kind: Kind = "altered" if added is None else "added"
        return [Effect(kind, name, added or ()) for name in names] + [Effect("altered", name) for name in others]
    if (match := _REMOVES_ALL.match(text)) is not None:
        database = _bare(match[1])
        return [Effect("removed", name) for name in tables if name.partition(".")[0] == database]
    for pattern, kind_of in _BY_NAMES:
        if (match := pattern.match(text)) is not None:
            return [Effect(kind_of, name) for name in _named(match[1], statement.database, tables)]
    return []


_BY_NAMES: tuple[tuple[re.Pattern[str], Kind], ...] = ((_REMOVES, "removed"), (_IN_ROWS, "as text"))


def _named(text: str, database: str, tables: Collection[str]) -> list[str]:
    """Return which tables a part of a statement names."""
    named: list[str] = []
    for first, second in _DOTTED.findall(text):
        name = f"{_bare(first)}.{_bare(second)}" if second else f"{database}.{_bare(first)}"
        if name in tables and name not in named:
            named.append(name)
    return named


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


_ADDS = re.compile(rf"\s*ADD\s+(?:COLUMN\s+)?(?:IF\s+NOT\s+EXISTS\s+)?(?!INDEX\b|KEY\b|UNIQUE\b|CONSTRAINT\b|PRIMARY\b|FULLTEXT\b|PARTITION\b|PERIOD\b|SYSTEM\b|CHECK\b|FOREIGN\b|SPATIAL\b|VECTOR\b)({_NAME})\s+\w", re.IGNORECASE)  # fmt: skip
_INDEXES = re.compile(r"\s*(?:ADD|DROP)\s+(?:UNIQUE\s+|FULLTEXT\s+)?(?:INDEX|KEY)\b", re.IGNORECASE)
_HARMLESS = re.compile(r"\s*(?:ALGORITHM|LOCK|COMMENT|AUTO_INCREMENT)\s*=?\s*\S+\s*$", re.IGNORECASE)


def _added(actions: str) -> tuple[str, ...] | None:
    """Return the columns that an ALTER adds; None if it does anything else that rows may see."""
    added = []
    for action in _apart(actions):
        if (match := _ADDS.match(action)) is not None:
            added.append(_bare(match[1]))
        elif not _INDEXES.match(action) and not _HARMLESS.match(action):
            return None
    return tuple(added)


def _apart(text: str) -> list[str]:
    """Return the parts of a text between commas that stand in no parentheses and no quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"`":
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
