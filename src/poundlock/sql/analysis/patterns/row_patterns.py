"""PATTERN of MATCH_RECOGNIZE: its text as variables one behind the other. What Flink has not is refused by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from poundlock.errors import DefinitionError
from poundlock.stream.matching import PatternVariable

_TOKEN = re.compile(
    r"\s*(?:(?P<name>`[^`]+`|[A-Za-z_$]\w*)|(?P<count>\{\s*\d*\s*(?:,\s*\d*\s*)?\})|(?P<sign>\{-|-\}|[()|*+?^$,]))"
)
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_REFUSED = {
    "|": "alternatives with |",
    "{-": "exclusions with {- -}",
    "^": "the anchor ^",
    "$": "the anchor $",
}
_MOST_ROWS = 10_000
"""That a quantifier may count: each is a state of its own."""


def pattern_of(text: str) -> tuple[PatternVariable, ...]:
    """Return the variables of a pattern.

    Raises:
        DefinitionError: it is none, or one that Flink has not.
    """
    parser = _Parser(_tokens(text))
    written = parser.sequence()
    if parser.next is not None:
        raise _wrong(f"{parser.next} has no place in PATTERN ({text})")
    _check(written)
    return tuple(replace(each.variable, is_greedy=each.is_greedy) for each in written)


@dataclass(frozen=True)
class _Written:
    variable: PatternVariable
    is_quantified: bool = False
    is_reluctant: bool = False

    @property
    def is_greedy(self) -> bool:
        least, most = self.variable.least, self.variable.most
        return self.is_quantified and not self.is_reluctant and (least, most) != (0, 1) and least != most


class _Parser:
    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens, self._at = tokens, 0

    @property
    def next(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _taken(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def sequence(self) -> list[_Written]:
        made: list[_Written] = []
        while (token := self.next) is not None and token != ")":
            if token in _REFUSED:
                raise _refused(_REFUSED[token])
            if token == "(":
                made += self._group()
            elif token[0] in "`$_" or token[0].isalpha():
                made.append(self._variable())
            else:
                raise _wrong(f"{token} has no place there in PATTERN")
        return made

    def _group(self) -> list[_Written]:
        self._taken()
        inner = self.sequence()
        if self.next != ")":
            raise _wrong("a ( in PATTERN has no )")
        self._taken()
        if not self._is_quantifier():
            return inner
        if len(inner) != 1 or inner[0].is_quantified:
            raise _refused("a quantifier of a group of variables")
        return [self._quantified(inner[0])]

    def _variable(self) -> _Written:
        name = self._taken()
        if name.upper() == "PERMUTE" and self.next == "(":
            raise _refused("PERMUTE")
        return self._quantified(_Written(PatternVariable(name.strip("`"))))

    def _is_quantifier(self) -> bool:
        return self.next is not None and (self.next in _QUANTIFIERS or (self.next[0] == "{" and self.next != "{-"))

    def _quantified(self, written: _Written) -> _Written:
        if not self._is_quantifier():
            return written
        token = self._taken()
        least, most = _QUANTIFIERS[token] if token in _QUANTIFIERS else _counts(token)
        is_reluctant = self.next == "?"
        if is_reluctant:
            self._taken()
        return _Written(replace(written.variable, least=least, most=most), True, is_reluctant)


def _tokens(text: str) -> list[str]:
    made, at = [], 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None:
            raise _wrong(f"{text[at:].strip()[:20]} has no place in PATTERN")
        made.append(token[0].strip())
        at = token.end()
    return made


def _counts(token: str) -> tuple[int, int | None]:
    """Return what {n}, {n,}, {n,m} and {,m} count."""
    first, comma, last = (each.strip() for each in token.strip("{}").partition(","))
    if not first and not last:
        raise _wrong(f"{token} counts nothing")
    least = int(first or 0)
    most = int(last) if last else None if comma else least
    if most == 0 or (most is not None and most < least) or max(least, most or 0) > _MOST_ROWS:
        raise _wrong(f"{token} is no number of rows: at least 1 at most, and no more than {_MOST_ROWS:,}")
    return least, most


def _check(written: Sequence[_Written]) -> None:
    if not written:
        raise _wrong("PATTERN names no variable")
    names = [each.variable.name for each in written]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DefinitionError(
            f"the variable {twice[0]} stands in PATTERN twice", next="give the second one another name and condition"
        )
    for each in written:
        if each.is_reluctant and (each.variable.least, each.variable.most) == (0, 1):
            raise _refused(f"{each.variable.name}??, an optional variable that is reluctant,")
    if all(each.variable.least == 0 for each in written):
        raise DefinitionError(
            "a pattern that no row at all would match", next="write a variable of at least one row, such as A or A+"
        )
    if written[-1].is_greedy:
        last = written[-1].variable.name
        raise DefinitionError(
            f"the last variable of PATTERN, {last}, is greedy: which row is its last would never be known",
            next=f"write a variable behind it, or a reluctant quantifier such as {last}+?",
        )


def _refused(what: str) -> DefinitionError:
    return DefinitionError(
        f"{what} in PATTERN, which Flink has not", next="write variables one behind the other: A B+ C"
    )


def _wrong(what: str) -> DefinitionError:
    return DefinitionError(what, next="write variables with quantifiers, such as A B+ C{2,3}? D")
