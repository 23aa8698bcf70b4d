"""A script of Flink SQL as statements: what each is, its words, and where it stands.

Nothing is looked up here. Statements that are not queries in sqlglot's grammar (SET, SHOW, EXPLAIN, statement sets …) are read from
their words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from poundlock.sql.dialect import Flink, FlinkParser
from poundlock.sql.errors import Place, SqlError, cut, deep_statements, place_of, too_deep
from poundlock.sql.object_statements import ObjectStatement, object_statement
from poundlock.sql.parsing.clauses import unread
from poundlock.sql.parsing.quotes import unended
from poundlock.sql.reserved import RESERVED

_WHAT_THERE_IS = "write a statement such as CREATE TABLE, CREATE VIEW, INSERT INTO, SELECT, SET, SHOW, DESCRIBE, EXPLAIN, STOP JOB or EXECUTE STATEMENT SET"
_BEGINNINGS = (
    "SELECT", "WITH", "VALUES", "(", "INSERT", "CREATE", "DROP", "ALTER", "DESCRIBE", "DESC", "USE", "DELETE", "UPDATE", "TRUNCATE",
)  # fmt: skip
_SHOWN = (
    "CATALOGS", "CURRENT CATALOG", "DATABASES", "CURRENT DATABASE", "TABLES", "VIEWS", "COLUMNS", "FUNCTIONS",
    "USER FUNCTIONS", "CREATE TABLE", "CREATE VIEW", "CREATE CATALOG", "PARTITIONS", "JOBS", "MODULES", "FULL MODULES",
)  # fmt: skip

_ENDS, _CLEARS = ("QUIT", "EXIT"), "CLEAR"
"""Commands of Flink's client, which files for it may have: the end of the script, and of the screen, which a script has none of."""
_DETAILS = ("CHANGELOG_MODE", "ESTIMATED_COST", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A statement that sqlglot's grammar has: a query, INSERT, CREATE, DROP, ALTER, DESCRIBE, USE."""

    text: str
    place: Place
    expression: exp.Expr


@dataclass(frozen=True, slots=True)
class SetOption:
    """SET 'key' = 'value'; without a key: show all that was set."""

    text: str
    place: Place
    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class ResetOption:
    """RESET 'key'; without one: everything."""

    text: str
    place: Place
    key: str | None


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW what [FROM name] [[NOT] LIKE 'pattern']."""

    text: str
    place: Place
    what: str  # in capitals
    name: str | None
    pattern: str | None
    is_negated: bool
    ignores_case: bool = False  # ILIKE


@dataclass(frozen=True, slots=True)
class StatementSet:
    """Inserts that are one job."""

    text: str
    place: Place
    inserts: tuple[ParsedStatement, ...]


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN of a query, an insert or a set of them, with details such as CHANGELOG_MODE."""

    text: str
    place: Place
    of: ParsedStatement | StatementSet
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StopJob:
    """STOP JOB 'id' [WITH SAVEPOINT] [WITH DRAIN]."""

    text: str
    place: Place
    job: str
    with_savepoint: bool
    with_drain: bool


Statement = ParsedStatement | SetOption | ResetOption | Show | StatementSet | Explain | StopJob | ObjectStatement


def statements_of(script: str) -> list[Statement]:
    """Return the statements of a script, which `;` separates.

    Raises:
        SqlError: a statement is none of Flink's grammar; it says where.
    """
    return list(_Reader(script).statements())


class _Reader:
    def __init__(self, script: str) -> None:
        self._script = script
        try:
            self._tokens: Sequence[Token] = Flink().tokenize(script)
        except TokenError:
            raise self._error("a text or a comment does not end", unended(script), "write its end") from None

    def statements(self) -> Iterator[Statement]:
        chunks = self._chunks()
        for chunk in chunks:
            command = chunk[0].text.upper() if len(chunk) == 1 else ""
            if command in _ENDS:  # nothing behind it is looked at, as in Flink's client
                return
            if command != _CLEARS:
                yield self._statement(chunk, chunks)

    def _chunks(self) -> Iterator[list[Token]]:
        chunk: list[Token] = []
        for token in self._tokens:
            if token.token_type is not TokenType.SEMICOLON:
                chunk.append(token)
            elif chunk:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def _statement(self, chunk: list[Token], behind: Iterator[list[Token]]) -> Statement:
        words = [token.text.upper() for token in chunk[:6]]
        if words[0] == "EXPLAIN":
            rest, details = self._details(chunk)
            if not rest:
                raise self._at(chunk[-1], "EXPLAIN of nothing", "write a query or an INSERT behind it")
            inner = None if rest[0].text.upper() == "EXPLAIN" else self._statement(rest, behind)
            if not isinstance(inner, (ParsedStatement, StatementSet)):
                raise self._at(
                    rest[0], f"EXPLAIN does not take {rest[0].text.upper()}", "write a query or an INSERT behind it"
                )
            return Explain(self._text(chunk), self._place(chunk[0]), inner, details)
        if words[:4] == ["EXECUTE", "STATEMENT", "SET", "BEGIN"]:
            return self._set(chunk, chunk[4:], behind)
        if words[:3] in (["BEGIN", "STATEMENT", "SET"], ["STATEMENT", "SET", "BEGIN"]):
            return self._set(chunk, chunk[3:], behind)
        if words[0] == "EXECUTE":
            return self._statement(chunk[1:], behind) if words[1:2] not in ([], ["EXECUTE"]) else self._refused(chunk)
        if words[0] == "SET":
            return self._option(chunk)
        if words[0] == "RESET":
            key = chunk[1].text if len(chunk) == 2 else None
            return (
                ResetOption(self._text(chunk), self._place(chunk[0]), key) if len(chunk) < 3 else self._refused(chunk)
            )
        if words[0] == "SHOW" and words[1:2] != ["PARTITIONS"]:
            return self._show(chunk)
        if words[:2] == ["STOP", "JOB"]:
            return self._stop(chunk)
        of_object = object_statement(chunk, self._text(chunk), self._place(chunk[0]), self._at)
        if of_object is not None:
            return of_object
        return self._parsed(chunk) if words[0] in _BEGINNINGS else self._refused(chunk)

    def _details(self, chunk: list[Token]) -> tuple[list[Token], tuple[str, ...]]:
        """Return what is to be explained, and with which details."""
        if [token.text.upper() for token in chunk[1:3]] == ["PLAN", "FOR"]:
            return chunk[3:], ()
        details, at = [], 1
        while at < len(chunk) and (word := chunk[at].text.upper()) in _DETAILS:
            if word != "CHANGELOG_MODE":
                raise self._at(chunk[at], f"EXPLAIN {word} is not there", "leave it out, or write CHANGELOG_MODE")
            details.append(word)
            at += 2 if at + 1 < len(chunk) and chunk[at + 1].text == "," else 1
        return chunk[at:], tuple(details)

    def _parsed(self, chunk: list[Token]) -> ParsedStatement:
        text, parser = self._text(chunk), FlinkParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
        try:
            with deep_statements():
                (expression,) = parser.parse(chunk, self._script)
        except ParseError as error:
            known = error.errors[0] if error.errors else {}
            what = (known.get("description") or str(error)).rstrip(".")
            token = parser.failed_at or chunk[-1]
            raise self._at(token, f"{what}, got {cut(self._text([token]))!r}", "correct the statement there") from None
        except ValueError as error:  # sqlglot refuses some words, such as an empty name, where it makes its tree
            raise self._at(chunk[0], f"{error}".rstrip("."), "correct the statement") from None
        except RecursionError:
            raise too_deep(self._place(chunk[0]), self._script) from None
        if expression is None or isinstance(expression, exp.Command):
            return self._refused(chunk)
        for node, clause in unread(expression):
            what = f"{clause} is not there: Flink has no such clause, or this has not"
            refused = self._error(what, place_of(node, self._script), "write the statement without it")
            refused.kind = "unsupported_query"
            raise refused
        for name in expression.find_all(exp.Identifier):
            if not name.args.get("quoted") and name.name.upper() in RESERVED and "start" in name.meta:
                what = f"{name.name} is a word of the language and no name"
                raise self._error(what, place_of(name, self._script), f"write `{name.name}` in backquotes")
        return ParsedStatement(text, self._place(chunk[0]), expression)

    def _set(self, chunk: list[Token], first: list[Token], behind: Iterator[list[Token]]) -> StatementSet:
        inserts = []
        own: list[Token] | None = first or next(behind, None)
        while own is not None and not (len(own) == 1 and own[0].text.upper() == "END"):
            parsed = self._parsed(own)
            if not isinstance(parsed.expression, exp.Insert):
                raise self._at(own[0], f"a statement set has no {own[0].text.upper()}", "leave INSERT INTO in it alone")
            inserts.append(parsed)
            own = next(behind, None)
        if own is None:
            raise self._at(chunk[0], "a statement set without its END", "write END; behind its last INSERT")
        if not inserts:
            raise self._at(chunk[0], "a statement set without an INSERT", "write one before END")
        return StatementSet(self._script[chunk[0].start : own[-1].end + 1], self._place(chunk[0]), tuple(inserts))

    def _option(self, chunk: list[Token]) -> SetOption:
        text, place = self._text(chunk), self._place(chunk[0])
        if len(chunk) == 1:
            return SetOption(text, place, None, None)
        signs = [number for number, token in enumerate(chunk) if token.token_type is TokenType.EQ]
        if not signs or signs[0] == 1 or signs[0] == len(chunk) - 1:
            raise self._at(chunk[1], "SET without a key, = and a value", "write SET 'key' = 'value'")
        return SetOption(text, place, self._joined(chunk[1 : signs[0]]), self._joined(chunk[signs[0] + 1 :]))

    def _show(self, chunk: list[Token]) -> Show:
        words = [token.text.upper() for token in chunk[1:]]
        known = sorted(_SHOWN, key=len, reverse=True)
        what = next((each for each in known if words[: each.count(" ") + 1] == each.split()), None)
        if what is None:
            raise self._at(chunk[-1], f"there is no {self._text(chunk)[:60]}", f"SHOW takes {', '.join(_SHOWN)}")
        rest = chunk[what.count(" ") + 2 :]
        name = pattern = None
        is_negated = ignores_case = False
        if rest and (rest[0].text.upper() in ("FROM", "IN") or what.startswith("CREATE")):
            rest = rest[0 if what.startswith("CREATE") else 1 :]
            stop = next(
                (n for n, token in enumerate(rest) if token.text.upper() in ("LIKE", "NOT", "ILIKE")), len(rest)
            )
            name, rest = self._joined(rest[:stop]), rest[stop:]
        if rest and rest[0].text.upper() == "NOT":
            is_negated, rest = True, rest[1:]
        if len(rest) == 2 and rest[0].text.upper() in ("LIKE", "ILIKE"):
            pattern, ignores_case, rest = rest[1].text, rest[0].text.upper() == "ILIKE", []
        if rest:
            raise self._at(
                rest[0],
                f"SHOW {what} does not take {rest[0].text!r}",
                "write [FROM name] [[NOT] LIKE 'pattern'] behind it",
            )
        return Show(self._text(chunk), self._place(chunk[0]), what, name, pattern, is_negated, ignores_case)

    def _stop(self, chunk: list[Token]) -> StopJob:
        if len(chunk) < 3:
            raise self._at(chunk[-1], "STOP JOB of no job", "write STOP JOB 'id', as SHOW JOBS has it")
        words = [token.text.upper() for token in chunk[3:]]
        parts = [words[at : at + 2] for at in range(0, len(words), 2)]
        known = (["WITH", "SAVEPOINT"], ["WITH", "DRAIN"])
        wrong = next((at for at, part in enumerate(parts) if part not in known), None)
        if wrong is not None:
            what = f"STOP JOB does not take {chunk[3 + 2 * wrong].text!r}"
            raise self._at(chunk[3 + 2 * wrong], what, "write STOP JOB 'id' WITH SAVEPOINT WITH DRAIN, or less of it")
        if known[1] in parts and known[0] not in parts:
            raise self._at(chunk[3], "WITH DRAIN without a savepoint", "write WITH SAVEPOINT WITH DRAIN")
        return StopJob(self._text(chunk), self._place(chunk[0]), chunk[2].text, known[0] in parts, known[1] in parts)

    def _refused(self, chunk: list[Token]) -> ParsedStatement:
        raise self._at(
            chunk[0], f"no statement begins with {chunk[0].text.upper()}, or none goes on like this", _WHAT_THERE_IS
        )

    def _joined(self, tokens: Sequence[Token]) -> str:
        if len(tokens) == 1:
            return tokens[0].text
        return self._script[tokens[0].start : tokens[-1].end + 1] if tokens else ""

    def _text(self, chunk: Sequence[Token]) -> str:
        return self._script[chunk[0].start : chunk[-1].end + 1]

    def _place(self, token: Token) -> Place:
        return Place.at(self._script, token.start)

    def _at(self, token: Token, what: str, next: str) -> SqlError:
        return self._error(what, self._place(token), next)

    def _error(self, what: str, place: Place, next: str) -> SqlError:
        return SqlError(what, place=place, script=self._script, next=next, kind="syntax")


def _place(token: Token) -> Place:
    """Return where a token begins; sqlglot counts its last column."""
    return Place(token.line, max(token.col - (token.end - token.start), 1))
