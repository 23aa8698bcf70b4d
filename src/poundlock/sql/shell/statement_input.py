"""What is typed into a shell, as statements: where each ends, and whether the last one has ended.

A statement ends with `;`. A statement set has several of them, and ends with `END;`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from poundlock.sql.dialect import Flink

_SET_BEGINS = (
    ("EXECUTE", "STATEMENT", "SET", "BEGIN"),
    ("BEGIN", "STATEMENT", "SET"),
    ("EXPLAIN", "STATEMENT", "SET", "BEGIN"),
)
_EXPLAINED = (("EXPLAIN", "PLAN", "FOR"), ("EXPLAIN",))


def is_ended(text: str) -> bool:
    """Return whether the last statement of a text has ended; there is none to end in blanks and comments."""
    try:
        tokens = Flink().tokenize(text)
    except TokenError:  # a text or a comment goes on
        return False
    return all(ended for _, ended in _statements(tokens))


def statements_in(text: str) -> list[str]:
    """Return the statements of a text, each as a script of its own in which it stands where it does in the text.

    What stands before it is blank there, so that errors say the line and the column of the text. A text that is not whole, such as
    one with a quote that nothing closes, is one statement: whoever reads it says what is wrong.
    """
    try:
        tokens = Flink().tokenize(text)
    except TokenError:
        return [text]
    made = []
    for statement, _ in _statements(tokens):
        start, end = statement[0].start, statement[-1].end + 1
        made.append(re.sub(r"[^\n]", " ", text[:start]) + text[start:end])
    return made


def _statements(tokens: Sequence[Token]) -> Iterator[tuple[list[Token], bool]]:
    """Yield the tokens of each statement, without the `;` behind it, and whether there is one."""
    statement: list[Token] = []
    part: list[Token] = []  # of a statement set: since the `;` before
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            statement.append(token)
            part.append(token)
            continue
        if not statement:
            continue
        if _is_set(statement) and _words(part) != ["END"]:
            statement.append(token)
            part = []
            continue
        yield statement, True
        statement, part = [], []
    if statement:
        yield statement, False


def _is_set(statement: Sequence[Token]) -> bool:
    words = _words(statement[:7])
    for before in _EXPLAINED:
        if tuple(words[: len(before)]) == before and _begins_set(words[len(before) :]):
            return True
    return _begins_set(words)


def _begins_set(words: Sequence[str]) -> bool:
    return any(tuple(words[: len(begin)]) == begin for begin in _SET_BEGINS)


def _words(tokens: Sequence[Token]) -> list[str]:
    return [token.text.upper() for token in tokens]
