"""LIKE, and the || of texts.

A pattern is compiled once for each different one; a text of all rows is matched against it by Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import indices_of, numbers_in
from poundlock.sql.coercion import BINARIES, BOOLEAN, TEXTS, longest
from poundlock.sql.functions.function import Evaluation, EvaluationError, Given, SqlFunction, TypeMismatch
from poundlock.sql.functions.kernels.columns import one_text, placed
from poundlock.sql.functions.kernels.distinct import valid_of
from poundlock.sql.types import STRING, SqlType

_WILDCARDS = ("%", "_")


def _pattern_type(given: Sequence[Given]) -> SqlType:
    for each in given:
        if each.type.root not in (*TEXTS, "NULL"):
            raise TypeMismatch(f"LIKE with {each.type}, which is no text", next="CAST it to STRING")
    if len(given) > 2 and isinstance(given[2].value, str) and len(given[2].value) != 1:
        raise DefinitionError(
            f"LIKE … ESCAPE {given[2].value!r}: that is not one character", next="write LIKE 'a\\_b' ESCAPE '\\'"
        )
    pattern, escape = given[1].value, given[2].value if len(given) > 2 else None
    if isinstance(pattern, str) and (len(given) == 2 or isinstance(escape, str)):
        like_parts(pattern, escape)
    return BOOLEAN.with_null(any(each.type.is_nullable for each in given[:2]))


def _texts(given: Sequence[Given]) -> Sequence[SqlType | None]:
    return [STRING if each.type.root == "NULL" else None for each in given]


def like_parts(pattern: str, escape: str | None) -> list[str]:
    """Return the parts of a pattern of LIKE: `%`, `_`, and texts, with a = before each.

    Raises:
        DefinitionError: it escapes what need not be.
    """
    parts: list[str] = []
    plain, at = "", 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in (*_WILDCARDS, escape):
                raise DefinitionError(
                    f"the pattern {pattern!r} of LIKE escapes what is no %, _ or {escape!r}",
                    next=f"write {escape}{escape} for {escape} itself",
                )
            plain += pattern[at]
        elif sign in _WILDCARDS:
            parts += [f"={plain}"] if plain else []
            parts.append(sign)
            plain = ""
        else:
            plain += sign
        at += 1
    return [*parts, f"={plain}"] if plain else parts


def _is_like(text: pa.Array, parts: list[str]) -> pa.Array:
    """Return which texts have a pattern: the frequent ones without a regular expression."""
    texts = [part[1:] for part in parts if part[0] == "="]
    match ["text" if part[0] == "=" else part for part in parts]:
        case []:
            return pc.equal(text, one_text(""))
        case ["text"]:
            return pc.equal(text, one_text(texts[0]))
        case ["text", "%"]:
            return pc.starts_with(text, texts[0])
        case ["%", "text"]:
            return pc.ends_with(text, texts[0])
        case ["%", "text", "%"]:
            return pc.match_substring(text, texts[0])
    regex = "".join(re.escape(part[1:]) if part[0] == "=" else {"%": ".*", "_": "."}[part] for part in parts)
    return pc.match_substring_regex(text, rf"(?s)\A{regex}\z")


def _matched(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    text, pattern = columns[:2]
    escape = columns[2][0].as_py() if len(columns) > 2 and len(text) else None
    encoded = pattern.dictionary_encode()
    known = [_parts_of(each, escape) for each in encoded.dictionary.to_pylist()]
    if len(known) == 1 and not pattern.null_count:
        return _is_like(text, known[0])
    valid = valid_of((text, pattern))
    codes = numbers_in(encoded.indices)
    parts = []
    for code, each in enumerate(known):
        rows = np.flatnonzero(codes == code) if valid is None else np.flatnonzero((codes == code) & valid)
        parts.append((rows, _is_like(text.take(indices_of(rows)), each)))
    return placed(parts, len(text), pa.bool_())


def _parts_of(pattern: str, escape: str | None) -> list[str]:
    try:
        return like_parts(pattern, escape)
    except DefinitionError as error:
        raise EvaluationError(error.what, next=error.next) from None


def _joined_type(given: Sequence[Given]) -> SqlType:
    types = [each.type for each in given]
    is_nullable = any(each.is_nullable for each in types)
    for several, fixed, varying in ((TEXTS, "CHAR", "VARCHAR"), (BINARIES, "BINARY", "VARBINARY")):
        if all(each.root in several for each in types):
            is_fixed = all(each.root == fixed for each in types)
            root = fixed if is_fixed else varying
            return SqlType(root, (longest(types),), is_nullable=is_nullable)  # type: ignore[arg-type]
    raise TypeMismatch(
        " || ".join(map(str, types)) + ": these are not all texts", next="CAST what is no text to STRING"
    )


def _joined(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    empty = pa.Array.from_buffers(columns[0].type, 1, [None, pa.py_buffer(b"\0" * 8), pa.py_buffer(b"")])[0]
    return pc.binary_join_element_wise(*columns, empty)


FUNCTIONS: Sequence[SqlFunction] = (
    SqlFunction("LIKE", _pattern_type, _matched, _texts),
    SqlFunction("||", _joined_type, _joined, _texts, is_total=True),
)
