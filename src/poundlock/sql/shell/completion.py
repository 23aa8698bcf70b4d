"""What may be typed next: keywords, tables, columns, functions, options and settings, as the place in the statement asks for.

Text is read leniently here: most of what is being typed is no statement yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from poundlock.errors import PoundlockError
from poundlock.sql.catalog import kind_of
from poundlock.sql.connectors.registry import CONNECTORS
from poundlock.sql.reserved import RESERVED
from poundlock.sql.settings import SETTINGS, OneOf
from poundlock.sql.shell.named_tables import columns_of, named_tables
from poundlock.sql.shell.option_names import format_names, option_names
from poundlock.sql.shell.words import COMMANDS, KEYWORDS, STATEMENTS, function_names
from poundlock.sql.statements.session import SqlSession

Kind = Literal[
    "statement", "command", "keyword", "function", "table", "view", "column", "database", "catalog", "setting", "option", "value"
]  # fmt: skip
_PART = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*(?:'|\Z)|`[^`]*(?:`|\Z)|[A-Za-z_$][\w$]*|\d[\w.]*|\s+|.""", re.DOTALL
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTION = re.compile(r"'([^']*)'\s*=\s*'([^']*)'")
_BEFORE_TABLES = ("FROM", "JOIN", "INTO", "TABLE", "VIEW", "DESCRIBE", "DESC")
_CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "ON", "SET", "VALUES", "LIMIT", "WITH")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that may stand in the place of what has been typed of it.

    Args:
        text: as it is written.
        typed: how many characters before the cursor it replaces.
        note: more about it, such as a column's type.
    """

    text: str
    typed: int
    kind: Kind
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the cursor stands.

    Args:
        before: the words, signs and texts of the statement before what is being typed; words in capitals.
        typed: what is being typed, without a quote.
        quote: before it.
        statement: all of the statement, also behind the cursor.
    """

    before: tuple[str, ...]
    typed: str
    quote: str
    statement: str


def candidates(session: SqlSession, before: str, behind: str = "", *, asked: bool = True) -> list[Candidate]:
    """Return what may be typed at a place, most fitting first.

    Args:
        before: the text before the cursor.
        behind: the text behind it.
        asked: whether somebody asked for it: else where nothing of a word is typed, only names that the place needs are given.
    """
    place = _place(before, behind)
    if place is None:
        return []
    made = _Completion(session, place, asked).candidates()
    typed = len(place.quote) + len(place.typed)
    start = place.typed.lower()
    first = {each.text: Candidate(each.text, typed, each.kind, each.note) for each in reversed(list(made))}
    fitting = [each for each in first.values() if each.text.lower().lstrip("'`").startswith(start)]
    return fitting[::-1]


def _place(before: str, behind: str) -> _Place | None:
    """Return where the cursor stands; None in a comment."""
    parts = [match[0] for match in _PART.finditer(before)]
    ends = [number for number, part in enumerate(parts) if part == ";"]
    parts = parts[ends[-1] + 1 if ends else 0 :]
    rest = [match[0] for match in _PART.finditer(behind)]
    statement = "".join(parts) + "".join(rest[: rest.index(";")] if ";" in rest else rest)
    typed, quote = "", ""
    last = parts[-1] if parts else ""
    if last.startswith("--") or (last.startswith("/*") and not last.endswith("*/")):
        return None
    if last[:1] in ("'", "`") and (len(last) == 1 or last[-1] != last[0]):
        typed, quote = last[1:], last[0]
        parts.pop()
    elif last and re.match(r"[A-Za-z_$\d]", last):
        typed = last
        parts.pop()
    words = (part for part in parts if not part.isspace() and not part.startswith(("--", "/*")))
    return _Place(tuple(w.upper() if _PLAIN.fullmatch(w) else w for w in words), typed, quote, statement)


class _Completion:
    def __init__(self, session: SqlSession, place: _Place, asked: bool) -> None:
        self._session, self._place, self._asked = session, place, asked

    def candidates(self) -> Iterator[Candidate]:
        before = self._place.before
        wants_anything = self._asked or bool(self._place.typed)
        if before[:1] in (("SET",), ("RESET",)):
            yield from self._settings()
        elif (options := self._options()) is not None:
            yield from options
        elif self._place.quote == "'":
            return
        elif not before:
            if wants_anything:
                yield from _all("statement", STATEMENTS)
                yield from (Candidate(name, 0, "command", note) for name, note in COMMANDS.items())
        elif before[-1] == ".":
            yield from self._behind_point()
        elif before[0] == "USE":
            yield from self._used()
        else:
            yield from self._inside(wants_anything)

    def _inside(self, wants_anything: bool) -> Iterator[Candidate]:
        before = self._place.before
        if beginning := _goes_on(before):
            yield from _all("keyword", beginning)
            return
        if self._wants_tables():
            yield from self._relations()
            yield from _all("database", map(_written, self._session.catalogs.databases()))
            return
        if before[0] == "CREATE" and before[-1] in ("TABLE", "VIEW", "DATABASE"):
            return  # a new name
        if wants_anything:
            yield from self._columns()
        if wants_anything and not self._place.quote:
            yield from _all("function", map(_written, self._session.catalogs.functions.names()))
            yield from _all("function", function_names())
            yield from _all("keyword", KEYWORDS)

    # --- settings and options ---------------------------------------------------------------------------------------------

    def _settings(self) -> Iterator[Candidate]:
        before = self._place.before
        if len(before) == 1:
            for key, setting in SETTINGS.items():
                yield Candidate(f"'{key}'", 0, "setting", setting.note)
        elif len(before) == 3 and before[2] == "=":
            known = SETTINGS.get(before[1].strip("'").lower())
            if known is not None and isinstance(known.read, OneOf):
                yield from _all("value", (f"'{word}'" for word in known.read.words))

    def _options(self) -> list[Candidate] | None:
        """Return options of a table, or their values; None where the cursor is not within WITH ( … )."""
        before = self._place.before
        opened = _opened(before)
        if not opened or before[opened[-1] - 1] not in ("WITH", "SET") or before[0] not in ("CREATE", "ALTER"):
            return None
        if "TABLE" not in before[: opened[-1]]:
            return None
        given = dict(_OPTION.findall(self._place.statement))
        if before[-1] == "=":
            return self._option_values(before[-2].strip("'").lower())
        if before[-1] not in ("(", ","):
            return []
        format = given.get("format", given.get("value.format"))
        names = option_names(given.get("connector", self._connector_of_altered()), format)
        return list(_all("option", (f"'{name}'" for name in names or ("connector",) if name not in given)))

    def _connector_of_altered(self) -> str:
        before = self._place.before
        names = named_tables(self._place.statement)
        if before[0] != "ALTER" or not names:
            return ""
        try:
            _, relation = self._session.catalogs.find(next(iter(names.values())))
        except PoundlockError:
            return ""
        return relation.options.get("connector", "") if kind_of(relation) == "table" else ""  # type: ignore[union-attr]

    @staticmethod
    def _option_values(option: str) -> list[Candidate]:
        words: Sequence[str] = ()
        if option == "connector":
            words = sorted(CONNECTORS)
        elif option.endswith("format"):
            words = format_names()
        return list(_all("value", (f"'{word}'" for word in words)))

    # --- names ------------------------------------------------------------------------------------------------------------

    def _wants_tables(self) -> bool:
        before = self._place.before
        if before[0] == "CREATE" and len(before) < 4 and "LIKE" not in before:
            return False  # CREATE [TEMPORARY] TABLE: a new name
        if before[-1] in _BEFORE_TABLES or (before[-1] == "LIKE" and before[0] == "CREATE"):
            return True
        if before[-1] != ",":
            return False
        opened = _opened(before)
        inner = before[opened[-1] + 1 :] if opened else before
        clauses = [word for word in inner if word in _CLAUSES]
        return bool(clauses) and clauses[-1] == "FROM"

    def _relations(self, catalog: str | None = None, database: str | None = None) -> Iterator[Candidate]:
        for name, relation in self._session.catalogs.relations(catalog, database):
            yield Candidate(_written(name.name), 0, kind_of(relation))

    def _used(self) -> Iterator[Candidate]:
        catalogs = self._session.catalogs
        if self._place.before[-1] == "CATALOG":
            yield from _all("catalog", map(_written, catalogs.catalogs()))
        elif len(self._place.before) == 1:
            yield from _all("database", map(_written, catalogs.databases()))
            yield from _all("keyword", ["CATALOG"])

    def _behind_point(self) -> Iterator[Candidate]:
        """Yield columns of a table, tables of a database, databases of a catalog."""
        path = self._path()
        catalogs = self._session.catalogs
        named = named_tables(self._place.statement)
        if len(path) == 1:
            table = next((t for alias, t in named.items() if alias.upper() == path[0].upper()), None)
            if table is not None:
                yield from self._columns_of(table)
            for catalog in catalogs.catalogs():
                if catalog.upper() == path[0].upper():
                    yield from _all("database", map(_written, catalogs.databases(catalog)))
            for database in catalogs.databases():
                if database.upper() == path[0].upper():
                    yield from self._relations(None, database)
        elif len(path) == 2:
            for catalog in catalogs.catalogs():
                for database in catalogs.databases(catalog):
                    if (catalog.upper(), database.upper()) == (path[0].upper(), path[1].upper()):
                        yield from self._relations(catalog, database)

    def _path(self) -> list[str]:
        """Return the names before the last point, from the outermost on."""
        path: list[str] = []
        before = list(self._place.before)
        while len(before) >= 2 and before[-1] == ".":
            path.insert(0, before[-2].strip("`"))
            before = before[:-2]
        return path

    def _columns(self) -> Iterator[Candidate]:
        for table in dict.fromkeys(named_tables(self._place.statement).values()):
            yield from self._columns_of(table)

    def _columns_of(self, table: Sequence[str]) -> Iterator[Candidate]:
        for name, kind in columns_of(self._session, table):
            yield Candidate(_written(name), 0, "column", kind)


def _all(kind: Kind, texts: Iterable[str]) -> Iterator[Candidate]:
    return (Candidate(text, 0, kind) for text in texts)


def _goes_on(before: Sequence[str]) -> list[str]:
    """Return how the beginnings of statements that have been typed so far go on."""
    phrases = [phrase.split() for phrase in STATEMENTS]
    so_far = list(before)
    return [" ".join(words[len(so_far) :]) for words in phrases if words[: len(so_far)] == so_far and words != so_far]


def _opened(parts: Sequence[str]) -> list[int]:
    """Return the places of the parentheses that are open, the innermost last."""
    opened: list[int] = []
    for number, part in enumerate(parts):
        if part == "(":
            opened.append(number)
        elif part == ")" and opened:
            opened.pop()
    return opened


def _written(name: str) -> str:
    """Return a name as a statement writes it: in backquotes where it is a word of the language, or none."""
    return name if _PLAIN.fullmatch(name) and name.upper() not in RESERVED else f"`{name}`"
