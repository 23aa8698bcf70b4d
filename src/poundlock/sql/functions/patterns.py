"""Functions of regular expressions, which are Java's: see kernels/java_regex.py for what is translated.

All take their arguments as they are written; `s SIMILAR TO p [ESCAPE e]` is SIMILAR_TO(s, p[, e]).

Arrow's RE2 computes REGEXP, REGEXP_COUNT, REGEXP_REPLACE, REGEXP_SUBSTR and REGEXP_EXTRACT where the pattern is constant and means the
same to it: it has no \\b, $, backreference, lookaround, possessive quantifier or flag, for REPLACE and COUNT does not match an empty text, for COUNT has no ^,
and for EXTRACT the group is part of every match. Everything else is computed by Python's re, once for each distinct text.

A literal that is no regular expression is refused; a value that is none gives NULL, and FALSE of REGEXP, as in Flink.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import is_text
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction
from poundlock.sql.functions.kernels.distinct import constant_in, over_distinct
from poundlock.sql.functions.kernels.java_regex import JavaRegex, compiled
from poundlock.sql.functions.signatures import ARRAY_OF_STRING, BOOLEAN, INT, Nulls, constant_text, defined
from poundlock.sql.types import STRING, SqlType

_BEGIN = re.compile(r"(?<!\[)\^|\\A")


def _regex_in(pattern: str) -> JavaRegex | None:
    try:
        return compiled(pattern)
    except DefinitionError:
        return None


def _constant(column: pa.Array) -> JavaRegex | None:
    """Return the pattern of a column that has the same one in all rows, if RE2 has it."""
    pattern = constant_in(column)
    regex = _regex_in(pattern) if pattern else None
    return regex if regex is not None and regex.re2 is not None else None


def _regexp(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    regex = _constant(columns[1])
    if regex is not None:
        return pc.match_substring_regex(columns[0], pattern=regex.re2)
    return over_distinct(columns, _matches, pa.bool_())


def _matches(text: str, pattern: str) -> bool:
    regex = _regex_in(pattern) if pattern else None
    return regex is not None and regex.python.search(text) is not None


def _extract(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    group = constant_in(columns[2]) if len(columns) > 2 else 0
    regex = _constant(columns[1])
    re2 = regex.extracts[group] if regex is not None and group in range(len(regex.extracts)) else None
    if re2 is not None:
        return pc.struct_field(pc.extract_regex(columns[0], pattern=re2), indices=[0])
    return over_distinct(columns, _extracted, pa.string())


def _extracted(text: str, pattern: str, group: int = 0) -> str | None:
    match = _first(text, pattern)
    if match is None or not 0 <= group <= match.re.groups:
        return None
    extracted: str | None = match[group]
    return extracted


def _first(text: str, pattern: str) -> re.Match[str] | None:
    regex = _regex_in(pattern)
    return None if regex is None else regex.python.search(text)


def _extract_all(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return over_distinct(columns, _extracted_all, evaluation.returns.arrow)


def _extracted_all(text: str, pattern: str, group: int = 1) -> list[str | None] | None:
    regex = _regex_in(pattern)
    if regex is None or not 0 <= group <= regex.python.groups:
        return None
    return [match[group] for match in regex.matches(text)]


def _replace(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    regex, replacement = _constant(columns[1]), constant_in(columns[2])
    if regex is None or replacement is None or regex.may_be_empty:
        return over_distinct(columns, _replaced, pa.string())
    plain = replacement.replace("\\", "\\\\")
    return pc.replace_substring_regex(columns[0], pattern=regex.re2, replacement=plain)


def _replaced(text: str, pattern: str, replacement: str) -> str | None:
    regex = _regex_in(pattern)
    return None if regex is None else regex.replaced(text, replacement)


def _count(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    regex = _constant(columns[1])
    # Arrow goes on behind each match as if a text began there.
    if regex is None or regex.re2 is None or regex.may_be_empty or _BEGIN.search(regex.re2):
        return over_distinct(columns, _counted, pa.int32())
    return pc.count_substring_regex(columns[0], pattern=regex.re2)


def _counted(text: str, pattern: str) -> int | None:
    regex = _regex_in(pattern)
    return None if regex is None else sum(1 for _ in regex.matches(text))


def _instr(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return over_distinct(columns, _place, pa.int32())


def _place(text: str, pattern: str) -> int | None:
    regex = _regex_in(pattern)
    match = None if regex is None else regex.python.search(text)
    return None if regex is None else 0 if match is None else match.start() + 1


def _similar(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return over_distinct(columns, _is_similar, pa.bool_())


def _is_similar(text: str, pattern: str, escape: str = "") -> bool:
    try:
        return _similar_regex(pattern, escape).fullmatch(text) is not None
    except DefinitionError as error:
        raise TerminalError(error.what, next=error.next) from error


@lru_cache(maxsize=256)
def _similar_regex(pattern: str, escape: str) -> re.Pattern[str]:
    """Return a pattern of SQL's: % is any text, _ a character, the rest as in a regular expression, in which . \\ $ ^ are letters.

    Raises:
        DefinitionError: it is none.
    """
    written, at, in_class = [], 0, False
    while at < len(pattern):
        letter = pattern[at]
        if letter == escape and at + 1 < len(pattern):
            at += 1
            written.append(re.escape(pattern[at]))
        elif in_class:
            name = _NAMED.match(pattern, at)
            at += len(name[0]) - 1 if name else 0
            written.append(_NAMED_CLASSES[name[1].upper()] if name else "\\\\" if letter == "\\" else letter)
            in_class = letter != "]" or name is not None
        else:
            written.append({"%": ".*", "_": "."}.get(letter) or (re.escape(letter) if letter in ".\\$^" else letter))
            in_class = letter == "["
        at += 1
    try:
        return re.compile("".join(written), re.DOTALL | re.ASCII)
    except re.error as error:
        raise DefinitionError(f"SIMILAR TO '{pattern}': {error}", next="write a pattern of SQL's SIMILAR TO") from error


_NAMED = re.compile(r"\[:([A-Za-z]+):\]")
_NAMED_CLASSES = {
    "ALPHA": "A-Za-z", "UPPER": "A-Z", "LOWER": "a-z", "DIGIT": "0-9", "SPACE": " ", "WHITESPACE": r"\s",
    "ALNUM": "A-Za-z0-9",
}  # fmt: skip


_BEYOND = r"[\x{10000}-\x{10FFFF}]"  # two code units each in Java, neither of which is a letter or a digit
_NUMBER = (
    r"^(?:[+-]?\p{Nd}{1,18}|[\x00- ]*[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+[fFdD]?)[\x00- ]*)$"
)
"""What Java reads as a Long or as a Double."""


def _is_alpha(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return _all_in(columns[0], pc.utf8_is_alpha, of_numbers=False)


def _is_digit(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return _all_in(columns[0], pc.utf8_is_digit, of_numbers=pa.types.is_integer(columns[0].type))


def _is_decimal(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return _known(columns[0], lambda texts: pc.match_substring_regex(texts, pattern=_NUMBER), of_numbers=True)


def _all_in(column: pa.Array, of_texts: Callable[[pa.Array], pa.Array], *, of_numbers: bool) -> pa.Array:
    def test(texts: pa.Array) -> pa.Array:
        return pc.and_not(of_texts(texts), pc.match_substring_regex(texts, pattern=_BEYOND))

    return _known(column, test, of_numbers=of_numbers)


def _known(column: pa.Array, of_texts: Callable[[pa.Array], pa.Array], *, of_numbers: bool) -> pa.Array:
    """Return what a test says of texts, one answer for all numbers, and false where there is NULL."""
    if is_text(column.type):
        return pc.fill_null(of_texts(column), False)
    return pc.and_(pc.is_valid(column), pa.scalar(of_numbers))


def _similar_type(given: Sequence[Given]) -> SqlType:
    pattern, escape = constant_text(given, 1), constant_text(given, 2)
    if pattern is not None and (escape is not None or len(given) == 2):
        _similar_regex(pattern, escape or "")
    return BOOLEAN


def _checked(name: str, forms: str | tuple[str, ...], result: SqlType, run: Any, *, nulls: Nulls) -> SqlFunction:
    """Return a function whose second argument is a pattern: one that is written in the script is looked at."""

    def rule(given: Sequence[Given]) -> SqlType:
        pattern = constant_text(given, 1)
        if pattern is not None:
            compiled(pattern)
        return result

    return defined(name, forms, rule, run, nulls=nulls)


_TWO, _THREE = "text, text", "text, text, integer"
_SIMILAR_FORMS = ("text, text", "text, text, text")

FUNCTIONS: Sequence[SqlFunction] = (
    _checked("REGEXP", _TWO, BOOLEAN, _regexp, nulls="with arguments"),
    _checked("REGEXP_EXTRACT", (_TWO, _THREE), STRING, _extract, nulls="always"),
    _checked("REGEXP_EXTRACT_ALL", (_TWO, _THREE), ARRAY_OF_STRING, _extract_all, nulls="always"),
    _checked("REGEXP_REPLACE", "text, text, text", STRING, _replace, nulls="always"),
    _checked("REGEXP_COUNT", _TWO, INT, _count, nulls="always"),
    _checked("REGEXP_SUBSTR", _TWO, STRING, _extract, nulls="always"),
    _checked("REGEXP_INSTR", _TWO, INT, _instr, nulls="always"),
    defined("IS_ALPHA", ("text", "number"), BOOLEAN, _is_alpha, nulls="never"),
    defined("IS_DIGIT", ("text", "number"), BOOLEAN, _is_digit, nulls="never"),
    defined("IS_DECIMAL", ("text", "number"), BOOLEAN, _is_decimal, nulls="never"),
    defined("SIMILAR_TO", _SIMILAR_FORMS, _similar_type, _similar),
)
