"""The `*` of an expression written out: which columns it means, as a tokenizer of Spark SQL sees it.

A module of its own, loaded where an expression has a star: the tokenizer's package takes a fifth of the start of a driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType


def expand_star(text: str, columns: Mapping[str, str]) -> list[str]:
    """Return an expression with each `*` that means all columns written out, as several if it is nothing else.

    That of count(*) means none. `columns` are names, each with how it is written in Spark SQL.
    """
    tokens = Spark().tokenize(text)
    written = text
    for number in reversed(range(len(tokens))):
        if _means_all(tokens, number):
            token = tokens[number]
            left = _except(tokens, number)
            names = [written_as for name, written_as in columns.items() if name.lower() not in left.names]
            if number == 0:
                return names
            end = left.end if left.names else token.end
            written = written[: token.start] + ", ".join(names) + written[end + 1 :]
    return [written]


class _Except:
    """The columns that an EXCEPT (…) behind a star leaves out, and where it ends in the text."""

    def __init__(self, names: frozenset[str], end: int) -> None:
        self.names, self.end = names, end


def _except(tokens: Sequence[Token], number: int) -> _Except:
    rest = tokens[number + 1 :]
    if len(rest) < 3 or rest[0].token_type is not TokenType.EXCEPT or rest[1].token_type is not TokenType.L_PAREN:
        return _Except(frozenset(), tokens[number].end)
    names: list[str] = []
    for token in rest[2:]:
        if token.token_type is TokenType.R_PAREN:
            return _Except(frozenset(names), token.end)
        if token.token_type is not TokenType.COMMA:
            names.append(token.text.lower())
    return _Except(frozenset(), tokens[number].end)


def _means_all(tokens: Sequence[Token], number: int) -> bool:
    """Return whether a token is a star without a left operand: neither a product nor `column.*`."""
    if tokens[number].token_type is not TokenType.STAR:
        return False
    if number == 0:
        return True
    before = tokens[number - 1]
    if before.token_type is TokenType.L_PAREN:
        return number < 2 or tokens[number - 2].text.lower() != "count"
    return before.token_type is TokenType.COMMA
