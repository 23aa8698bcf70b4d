"""What each part of a text of SQL is, for its colour: told by the tokens of the dialect, also where the text is no statement yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from poundlock.sql.dialect import Flink
from poundlock.sql.reserved import RESERVED
from poundlock.sql.shell.words import COMMANDS, KEYWORDS, STATEMENTS, function_names

PartKind = Literal["keyword", "function", "text", "number", "name", "comment", "sign", "plain"]
"""A name is one in backquotes; all other words that are neither keywords nor functions are plain."""
_OPEN = re.compile(
    r"'(?:[^']|'')*(?:'|(?P<text>\Z))|`[^`]*(?:`|(?P<name>\Z))|--[^\n]*|/\*.*?(?:\*/|(?P<comment>\Z))", re.DOTALL
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_KEYWORDS = RESERVED.union(KEYWORDS, *(re.findall(r"\w+", each) for each in STATEMENTS), map(str.upper, COMMANDS))
_FUNCTIONS = frozenset(function_names())


@dataclass(frozen=True, slots=True)
class HighlightedPart:
    """A part of a text, from a place to the one behind it."""

    start: int
    stop: int
    kind: PartKind


def highlighted(text: str) -> list[HighlightedPart]:
    """Return the parts of a text, one behind the other, without a gap. A text, name or comment that nothing closes goes to the end."""
    return list(_without_gaps(text, _parts(text)))


def _parts(text: str) -> Iterator[HighlightedPart]:
    closed, kind = _closed(text)
    try:
        tokens = Flink().tokenize(text[:closed])
    except TokenError:  # a sign or number that is none
        yield HighlightedPart(0, closed, "plain")
        tokens = []
    for place, token in enumerate(tokens):
        behind = tokens[place + 1] if place + 1 < len(tokens) else None
        yield HighlightedPart(token.start, token.end + 1, _kind_of(token, behind))
    if kind is not None:
        yield HighlightedPart(closed, len(text), kind)


def _closed(text: str) -> tuple[int, PartKind | None]:
    """Return where something begins that nothing closes, and what it is; the end of the text and None where all is closed."""
    for match in _OPEN.finditer(text):
        if match.lastgroup is not None:
            return match.start(), match.lastgroup  # type: ignore[return-value]
    return len(text), None


def _kind_of(token: Token, behind: Token | None) -> PartKind:
    kind = token.token_type
    if kind in (TokenType.STRING, TokenType.HEX_STRING):
        return "text"
    if kind is TokenType.NUMBER:
        return "number"
    if kind is TokenType.IDENTIFIER:
        return "name"
    word = token.text.upper()
    if not _WORD.match(token.text):
        return "sign"
    if word in _FUNCTIONS and behind is not None and behind.token_type is TokenType.L_PAREN:
        return "function"
    return "keyword" if word in _KEYWORDS else "plain"


def _without_gaps(text: str, parts: Iterator[HighlightedPart]) -> Iterator[HighlightedPart]:
    """Yield parts, with what stands between them: blanks, and comments, which are no tokens."""
    at = 0
    for part in parts:
        yield from _gap(text, at, part.start)
        yield part
        at = part.stop
    yield from _gap(text, at, len(text))


def _gap(text: str, start: int, stop: int) -> Iterator[HighlightedPart]:
    if start < stop:
        is_comment = text[start:stop].lstrip().startswith(("--", "/*"))
        yield HighlightedPart(start, stop, "comment" if is_comment else "plain")
