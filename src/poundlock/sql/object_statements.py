"""Statements that define, change and show functions, catalogs and databases, read from their words: sqlglot's grammar has others of these names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from poundlock.sql.errors import Place, SqlError
from poundlock.sql.function_names import WORDS, Scope

Refused = Callable[[Token, str, str], SqlError]
"""Makes the error of a word: what is wrong, and what to write."""
_NO_NAMES = (TokenType.STRING, TokenType.NUMBER, TokenType.DOT, TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA)


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """CREATE, or ALTER, [TEMPORARY [SYSTEM]] FUNCTION [IF NOT EXISTS] name AS 'module.attribute' LANGUAGE PYTHON.

    Args:
        is_change: whether it is ALTER, which replaces a function.
        if_so: whether it does nothing where the function is there already, or ALTER where it is not.
    """

    text: str
    place: Place
    name: tuple[str, ...]
    path: str
    scope: Scope
    is_change: bool
    if_so: bool


@dataclass(frozen=True, slots=True)
class DropFunction:
    """DROP [TEMPORARY [SYSTEM]] FUNCTION [IF EXISTS] name."""

    text: str
    place: Place
    name: tuple[str, ...]
    scope: Scope
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateCatalog:
    """CREATE CATALOG [IF NOT EXISTS] name [COMMENT 'text'] WITH ('key' = 'value')."""

    text: str
    place: Place
    name: str
    options: Mapping[str, str]
    if_not_exists: bool
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class AlterCatalog:
    """ALTER CATALOG name SET ('key' = 'value'), RESET ('key') or COMMENT 'text'.

    Args:
        options: what is set.
        reset: the options that are to be as where nobody gives them.
        comment: the new one; None = it stays.
    """

    text: str
    place: Place
    name: str
    options: Mapping[str, str]
    reset: tuple[str, ...]
    comment: str | None


@dataclass(frozen=True, slots=True)
class DescribeCatalog:
    """DESCRIBE CATALOG [EXTENDED] name."""

    text: str
    place: Place
    name: str
    is_extended: bool


@dataclass(frozen=True, slots=True)
class DropCatalog:
    """DROP CATALOG [IF EXISTS] name."""

    text: str
    place: Place
    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """CREATE DATABASE [IF NOT EXISTS] name [COMMENT 'text'] [WITH ('key' = 'value')]."""

    text: str
    place: Place
    name: tuple[str, ...]
    if_not_exists: bool
    comment: str | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    """ALTER DATABASE name SET ('key' = 'value')."""

    text: str
    place: Place
    name: tuple[str, ...]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ShowPartitions:
    """SHOW PARTITIONS table [PARTITION (column = 'value')]."""

    text: str
    place: Place
    table: tuple[str, ...]
    values: Mapping[str, str]


ObjectStatement = (
    CreateFunction
    | DropFunction
    | CreateCatalog
    | AlterCatalog
    | DescribeCatalog
    | DropCatalog
    | CreateDatabase
    | AlterDatabase
    | ShowPartitions
)
_DATABASE = ("DATABASE", "SCHEMA")


def object_statement(chunk: Sequence[Token], text: str, place: Place, refused: Refused) -> ObjectStatement | None:
    """Return the statement that is of a function, a catalog, a database or partitions, None for all others.

    Raises:
        SqlError: it goes on as none does.
    """
    words = _Words(chunk, refused)
    verb = chunk[0].text.upper()
    if verb in ("DESCRIBE", "DESC") and len(chunk) > 2 and chunk[1].text.upper() == "CATALOG":
        words.take(verb, "CATALOG")
        return _described_catalog(words, text, place)
    if verb in ("DESCRIBE", "DESC") and len(chunk) > 2 and chunk[1].text.upper() in _DATABASE:
        words.take(verb)
        raise words.error("DESCRIBE DATABASE is not there, as in Flink 2.3", "SHOW DATABASES has their names")
    if verb == "SHOW":
        words.take(verb, "PARTITIONS")
        return _partitions(words, text, place)
    if verb not in ("CREATE", "ALTER", "DROP"):
        return None
    words.take(verb)
    scope: Scope = "catalog"
    if words.take("TEMPORARY"):
        scope = "system" if words.take("SYSTEM") else "temporary"
    if words.take("FUNCTION"):
        return _function(words, verb, scope, text, place)
    if scope == "system":
        raise words.error(f"{verb} TEMPORARY SYSTEM of something else than a FUNCTION", "write FUNCTION behind it")
    if scope == "catalog" and words.take("CATALOG"):
        return _catalog(words, verb, text, place)
    if scope == "catalog" and verb != "DROP" and any(words.take(word) for word in _DATABASE):
        return _database(words, verb, text, place)
    return None


def _database(words: _Words, verb: str, text: str, place: Place) -> ObjectStatement:
    if verb == "ALTER":
        name = words.name("database")
        if not words.take("SET"):
            raise words.error("ALTER DATABASE that sets nothing", "write SET ('key' = 'value') behind the name")
        properties = words.pairs("SET")
        words.end()
        return AlterDatabase(text, place, name, properties)
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    name = words.name("database")
    comment = words.string("a comment in quotes") if words.take("COMMENT") else None
    properties = words.options()
    words.end()
    return CreateDatabase(text, place, name, if_not_exists, comment, properties)


def _partitions(words: _Words, text: str, place: Place) -> ShowPartitions:
    table = words.name("table")
    values = words.pairs("PARTITION", of_columns=True) if words.take("PARTITION") else {}
    words.end()
    return ShowPartitions(text, place, table, values)


def _function(words: _Words, verb: str, scope: Scope, text: str, place: Place) -> ObjectStatement:
    if verb == "DROP":
        if_exists = words.take("IF", "EXISTS")
        name = words.name("function")
        words.end()
        return DropFunction(text, place, name, scope, if_exists)
    is_change = verb == "ALTER"
    if_so = words.take("IF", "EXISTS") if is_change else words.take("IF", "NOT", "EXISTS")
    name = words.name("function")
    if not words.take("AS"):
        raise words.error(
            "a function without AS", f"write {verb} {WORDS[scope]}FUNCTION name AS 'module.function' LANGUAGE PYTHON"
        )
    path = words.string("the place of the function in Python, in quotes")
    if not words.take("LANGUAGE", "PYTHON"):
        what = "functions are written in Python here, and Flink's default is JAVA"
        raise words.error(what, "write LANGUAGE PYTHON behind it")
    words.end()
    return CreateFunction(text, place, name, path, scope, is_change, if_so)


def _catalog(words: _Words, verb: str, text: str, place: Place) -> ObjectStatement:
    if verb == "ALTER":
        return _altered_catalog(words, text, place)
    if verb == "DROP":
        if_exists = words.take("IF", "EXISTS")
        name = ".".join(words.name("catalog"))
        words.end()
        return DropCatalog(text, place, name, if_exists)
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    name = ".".join(words.name("catalog"))
    comment = words.string("a comment in quotes") if words.take("COMMENT") else None
    options = words.options()
    words.end()
    return CreateCatalog(text, place, name, options, if_not_exists, comment)


def _altered_catalog(words: _Words, text: str, place: Place) -> AlterCatalog:
    name = ".".join(words.name("catalog"))
    options: Mapping[str, str] = {}
    reset: tuple[str, ...] = ()
    comment = None
    if words.take("SET"):
        options = words.pairs("SET")
    elif words.take("RESET"):
        reset = words.strings("RESET")
    elif words.take("COMMENT"):
        comment = words.string("a comment in quotes")
    else:
        raise words.error(
            "ALTER CATALOG that changes nothing",
            "write SET ('key' = 'value'), RESET ('key') or COMMENT 'text' behind the name",
        )
    words.end()
    return AlterCatalog(text, place, name, options, reset, comment)


def _described_catalog(words: _Words, text: str, place: Place) -> DescribeCatalog:
    is_extended = words.take("EXTENDED")
    name = ".".join(words.name("catalog"))
    words.end()
    return DescribeCatalog(text, place, name, is_extended)


class _Words:
    """The words of a statement, from the first to the last."""

    def __init__(self, tokens: Sequence[Token], refused: Refused) -> None:
        self._tokens, self._refused = tokens, refused
        self._at = 0

    def take(self, *words: str) -> bool:
        """Go past some words; return whether they come next."""
        some = self._tokens[self._at : self._at + len(words)]
        if [each.text.upper() for each in some] != list(words):
            return False
        self._at += len(words)
        return True

    def name(self, of: str) -> tuple[str, ...]:
        """Return the name that comes next, with what stands before its dots."""
        parts = []
        while self._at < len(self._tokens) and self._tokens[self._at].token_type not in _NO_NAMES:
            parts.append(self._tokens[self._at].text)
            self._at += 1
            if self._at >= len(self._tokens) or self._tokens[self._at].token_type is not TokenType.DOT:
                break
            self._at += 1
        if not parts:
            raise self.error(f"a {of} without a name", f"name the {of}")
        return tuple(parts)

    def string(self, wanted: str) -> str:
        """Return the text in quotes that comes next."""
        if self._at >= len(self._tokens) or self._tokens[self._at].token_type is not TokenType.STRING:
            raise self.error(f"{wanted} is missing", f"write {wanted}")
        self._at += 1
        return self._tokens[self._at - 1].text

    def options(self) -> dict[str, str]:
        """Return the options of WITH, none where it does not come next."""
        return self.pairs("WITH") if self.take("WITH") else {}

    def pairs(self, word: str, *, of_columns: bool = False) -> dict[str, str]:
        """Return the options in brackets that come next, behind a word.

        Args:
            of_columns: whether they are columns with their values: names, and numbers too.
        """
        if not self.take("("):
            raise self.error(f"{word} without what is in it", f"write {word} ('key' = 'value')")
        options: dict[str, str] = {}
        while True:
            key = self.name("column")[0] if of_columns else self.string("an option's name in quotes")
            if not self.take("="):
                raise self.error(f"{key!r} without a value", f"write '{key}' = 'value'")
            options[key] = self._value() if of_columns else self.string("an option's value in quotes")
            if self._ends(word):
                return options

    def _value(self) -> str:
        """Return the text in quotes or the number that comes next."""
        if self._at < len(self._tokens) and self._tokens[self._at].token_type is TokenType.NUMBER:
            self._at += 1
            return self._tokens[self._at - 1].text
        return self.string("a value in quotes")

    def strings(self, word: str) -> tuple[str, ...]:
        """Return the names of options in brackets that come next, behind a word."""
        if not self.take("("):
            raise self.error(f"{word} without its options", f"write {word} ('key')")
        names = [self.string("an option's name in quotes")]
        while not self._ends(word):
            names.append(self.string("an option's name in quotes"))
        return tuple(names)

    def _ends(self, word: str) -> bool:
        """Go past ) or a comma; return whether it is )."""
        if self.take(")"):
            return True
        if not self.take(","):
            raise self.error(f"{word} does not end", "write ) behind its last option")
        return False

    def end(self) -> None:
        """Raise SqlError where another word comes."""
        if self._at < len(self._tokens):
            word = self._tokens[self._at].text
            raise self.error(f"{word!r} is not possible here", "end the statement before it")

    def error(self, what: str, next: str) -> SqlError:
        """Return the error of the word that comes next, or of the last one."""
        return self._refused(self._tokens[min(self._at, len(self._tokens) - 1)], what, next)
