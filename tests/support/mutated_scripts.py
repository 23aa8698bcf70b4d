"""Recorded scripts of Flink SQL with mistakes in them: what a person, or a tool, may hand in."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from poundlock.sql.dialect import Flink
from support.sql_scripts import CASES, whole_script

__all__ = ["Mutated", "bounded", "mutated_scripts"]

_TYPES = (
    "INT", "BIGINT", "STRING", "BOOLEAN", "DECIMAL(10, 2)", "DECIMAL(99, 98)", "DOUBLE", "DATE", "TIME", "TIMESTAMP(3)", "TIMESTAMP(12)",
    "TIMESTAMP_LTZ(3)", "BYTES", "VARCHAR(-1)", "CHAR(0)", "ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT, b STRING>", "MULTISET<INT>",
    "NULL", "RAW", "INTERVAL DAY",
)  # fmt: skip
_LITERALS = (
    "NULL", "TRUE", "0", "-1", "1.5", "1e400", "99999999999999999999", "9223372036854775808", "''", "'x'", "x'0g'", "x'00'", "DATE '2026-02-30'",
    "TIMESTAMP 'noon'", "INTERVAL '5' SECOND", "INTERVAL '-9' PARSEC", "ARRAY[1, 'a']", "MAP['a']", "ROW()", "(SELECT 1)", "(SELECT 1, 2)",
    "CAST(NULL AS INT)", "COUNT(*)", "ROW_NUMBER() OVER ()", "PROCTIME()", "UNKNOWN_FUNCTION(1)", "*", "t.*", "?", "$1", ":a", "@v",
)  # fmt: skip
_NAMES = (
    "nobody",
    "Nobody",
    "a.b.c.d.e",
    "`no body`",
    "``",
    "`a``b`",
    "straße",
    "名前",
    "_",
    "$x",
    "1a",
    "SELECT",
    "table",
    "`'`",
)
_CHARACTERS = (
    "\x00", "\x1b", "\t", "\r", "\u00a0", "\u2028", "\ufeff", "´", "“", "é", "🙂", "\ud800", "$", "\\", "#", "@", "{", "}", "[", "]", "(", ")", "<", ">",
    "!", "?", "^", "~", "|", "&", ";", ";;", ",", "..", "--", "%", "=", "::", "->",
)  # fmt: skip
_OPENED = ("'", "`", '"', "/*", "x'", "/*+ ", "$$", "--")
_IS_TYPE = re.compile(r"(?i)\b(?:INT|BIGINT|STRING|BOOLEAN|DOUBLE|FLOAT|DATE|TIME|TIMESTAMP|TIMESTAMP_LTZ|DECIMAL|BYTES)\b(?:\(\d+(?:, *\d+)?\))?")  # fmt: skip


@dataclass(frozen=True)
class Mutated:
    """A script with mistakes.

    Args:
        id: of the recorded script, and how it was changed.
        case: the recorded script.
    """

    id: str
    text: str
    case: str


class Words:
    """The words of all scripts.

    Args:
        texts: the scripts.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.every: list[str] = []
        self.of_kind: dict[object, list[str]] = {}
        for text in texts:
            for token in Flink().tokenize(text):
                word = text[token.start : token.end + 1]
                self.every.append(word)
                self.of_kind.setdefault(token.token_type, []).append(word)


def mutated_scripts(seed: int, count: int) -> list[Mutated]:
    """Return scripts with one to three mistakes each: the same ones for the same seed."""
    chance = random.Random(f"mutations {seed}")
    names = sorted(CASES)
    texts = {name: re.sub(r"\$\{path:([^}]*)\}", r"/nowhere/\1", whole_script(CASES[name])) for name in names}
    words = Words(texts.values())
    made = []
    for number in range(count):
        name = chance.choice(names)
        text, done = texts[name], []
        for _ in range(chance.choice((1, 1, 2, 3))):
            mutation = chance.choice(_MUTATIONS)
            text = mutation(text, chance, words)
            done.append(mutation.__name__.strip("_"))
        made.append(Mutated(f"{number}: {name}, {', '.join(done)}", text, name))
    return made


def _tokens(text: str) -> list[tuple[int, int]]:
    """Return where the tokens of a script begin and end; words between blanks where it has none."""
    try:
        return [(token.start, token.end + 1) for token in Flink().tokenize(text)] or [(0, len(text))]
    except TokenError:
        return [(found.start(), found.end()) for found in re.finditer(r"\S+", text)] or [(0, len(text))]


def _token_deleted(text: str, chance: random.Random, words: Words) -> str:
    begin, end = chance.choice(_tokens(text))
    return text[:begin] + text[end:]


def _tokens_swapped(text: str, chance: random.Random, words: Words) -> str:
    tokens = _tokens(text)
    first, second = sorted((chance.choice(tokens), chance.choice(tokens)))
    if first == second:
        return text
    between = text[first[1] : second[0]]
    return text[: first[0]] + text[slice(*second)] + between + text[slice(*first)] + text[second[1] :]


def _neighbours_swapped(text: str, chance: random.Random, words: Words) -> str:
    tokens = _tokens(text)
    place = chance.randrange(len(tokens))
    first, second = tokens[place], tokens[min(place + 1, len(tokens) - 1)]
    if first == second:
        return text
    return (
        text[: first[0]] + text[slice(*second)] + text[first[1] : second[0]] + text[slice(*first)] + text[second[1] :]
    )


def _token_doubled(text: str, chance: random.Random, words: Words) -> str:
    begin, end = chance.choice(_tokens(text))
    return f"{text[:end]} {text[begin:]}"


def _token_replaced(text: str, chance: random.Random, words: Words) -> str:
    return _replaced(text, chance, chance.choice(words.every))


def _token_of_its_kind(text: str, chance: random.Random, words: Words) -> str:
    """Another name in the place of a name, another number, another text: most such scripts can be parsed."""
    try:
        tokens = Flink().tokenize(text)
    except TokenError:
        return text
    plain = [each for each in tokens if each.token_type in (TokenType.VAR, TokenType.STRING, TokenType.NUMBER)]
    if not plain:
        return text
    token = chance.choice(plain)
    return text[: token.start] + chance.choice(words.of_kind[token.token_type]) + text[token.end + 1 :]


def _token_of_another(text: str, chance: random.Random, words: Words) -> str:
    """A word of another script in between."""
    begin, _ = chance.choice(_tokens(text))
    return f"{text[:begin]}{chance.choice(words.every)} {text[begin:]}"


def _cut(text: str, chance: random.Random, words: Words) -> str:
    return text[: chance.randrange(1, max(len(text), 2))]


def _beginning_cut(text: str, chance: random.Random, words: Words) -> str:
    return text[chance.randrange(len(text)) :] if text else text


def _part_doubled(text: str, chance: random.Random, words: Words) -> str:
    tokens = _tokens(text)
    first, last = sorted((chance.randrange(len(tokens)), chance.randrange(len(tokens))))
    begin, end = tokens[first][0], tokens[min(last, first + 12)][1]
    return f"{text[:end]} {text[begin:]}"


def _part_deleted(text: str, chance: random.Random, words: Words) -> str:
    tokens = _tokens(text)
    first = chance.randrange(len(tokens))
    last = min(first + chance.randrange(2, 12), len(tokens)) - 1
    return text[: tokens[first][0]] + text[tokens[max(first, last)][1] :]


def _another_type(text: str, chance: random.Random, words: Words) -> str:
    found = list(_IS_TYPE.finditer(text))
    if not found:
        return _replaced(text, chance, chance.choice(_TYPES))
    place = chance.choice(found)
    return text[: place.start()] + chance.choice(_TYPES) + text[place.end() :]


def _another_value(text: str, chance: random.Random, words: Words) -> str:
    return _replaced(text, chance, chance.choice(_LITERALS))


def _unknown_name(text: str, chance: random.Random, words: Words) -> str:
    return _replaced(text, chance, chance.choice(_NAMES))


def _odd_character(text: str, chance: random.Random, words: Words) -> str:
    place = chance.randrange(len(text) + 1)
    return text[:place] + chance.choice(_CHARACTERS) + text[place:]


def _quote_opened(text: str, chance: random.Random, words: Words) -> str:
    place = chance.randrange(len(text) + 1)
    return text[:place] + chance.choice(_OPENED) + text[place:]


def _nested(text: str, chance: random.Random, words: Words) -> str:
    begin, end = chance.choice(_tokens(text))
    return f"{text[:begin]}({text[begin:end]}){text[end:]}"


def _replaced(text: str, chance: random.Random, other: str) -> str:
    begin, end = chance.choice(_tokens(text))
    return text[:begin] + other + text[end:]


_MUTATIONS = (
    _token_of_its_kind, _token_of_its_kind, _token_of_its_kind, _another_type, _unknown_name,
    _token_deleted, _tokens_swapped, _neighbours_swapped, _token_doubled, _token_replaced, _token_of_another, _cut, _beginning_cut,
    _part_doubled, _part_deleted, _another_type, _another_value, _unknown_name, _odd_character, _quote_opened, _nested,
)  # fmt: skip


class OutOfTime(BaseException):
    """What was to be bounded took longer."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise OutOfTime where a block of the main thread takes more of the processor's time: a busy machine makes no difference."""

    def ended(number: int, frame: FrameType | None) -> None:
        raise OutOfTime(f"more than {seconds:.0f} s of the processor")

    before = signal.signal(signal.SIGVTALRM, ended)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
