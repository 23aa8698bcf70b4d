"""Regular expressions: of Java's, by RE2 and by Python's re."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import texts_of
from poundlock.sql.functions.kernels.java_regex import compiled
from poundlock.sql.functions.patterns import FUNCTIONS
from support.examples import examples
from support.sql_functions import Functions

PATTERNS = Functions(FUNCTIONS)

FEW = examples(15)
PLAIN = ("[0-9]+", "a|b", "(a)(b)?", "[^a-z]", "x{2,3}", "é+", "^a", "a.c", r"\d-\d", r"[\w.]+@", "a*?b", r"\Qa.b\E")
OTHER = (r"\bab\b", "a$", "(?i)AB", "(?=a)", r"(a)\1", "a*+b", "(?<n>a)b", "a*", "")
TEXT = st.text(st.sampled_from("abcx09é.@-\n "), max_size=8)


@given(st.lists(st.none() | TEXT, min_size=1, max_size=6), st.sampled_from(PLAIN + OTHER))
@FEW
def test_columns_match_as_single_texts_do(values: list[str | None], pattern: str) -> None:
    column, regex = pa.array(values, pa.string()), compiled(pattern)
    matches = [None if text is None else list(regex.matches(text)) for text in values]
    assert PATTERNS.call("REGEXP", column, pattern) == [
        None if found is None else bool(found) and pattern != "" for found in matches
    ]
    assert PATTERNS.call("REGEXP_COUNT", column, pattern) == [
        None if found is None else len(found) for found in matches
    ]
    firsts = [found[0][0] if found else None for found in matches]
    assert PATTERNS.call("REGEXP_EXTRACT", column, pattern) == firsts
    assert PATTERNS.call("REGEXP_SUBSTR", column, pattern) == firsts
    assert PATTERNS.call("REGEXP_INSTR", column, pattern) == [
        None if found is None else found[0].start() + 1 if found else 0 for found in matches
    ]
    assert PATTERNS.call("REGEXP_REPLACE", column, pattern, r"<\1$>") == [
        None if text is None else regex.replaced(text, r"<\1$>") for text in values
    ]
    varying = pa.array([pattern, "[^"] * len(values), pa.string()).slice(0, len(values))
    assert PATTERNS.call("REGEXP_EXTRACT", column, varying)[::2] == firsts[::2]


def test_which_patterns_are_left_to_re2() -> None:
    assert [pattern for pattern in PLAIN if compiled(pattern).re2 is None] == []
    assert [pattern for pattern in OTHER if compiled(pattern).re2 is not None] == ["(?<n>a)b", "a*", ""]


@pytest.mark.parametrize(
    ("pattern", "certain"),
    [
        ("(&|^)id=([^&]*)", [True, True]),
        ("x(q)?", [False]),
        ("(a)|(b)", [False, False]),
        ("((a)|b)+c", [True, False]),
        ("(?:(a)(b))*(c){0,2}(d)+(e){1}", [False, False, False, True, True]),
        ("(?:x|(y))(z)", [False, True]),
        ("(a(b)?)(?<n>c)", [True, False, True]),
    ],
)
@given(st.lists(st.text(st.sampled_from("abcdexyzq&id=n"), max_size=10), min_size=1, max_size=5))
@FEW
def test_groups_that_every_match_has_are_left_to_re2(pattern: str, certain: list[bool], values: list[str]) -> None:
    regex = compiled(pattern)
    assert [each is not None for each in regex.extracts] == [True, *certain]
    for group in range(len(certain) + 1):
        found = [regex.python.search(text) for text in values]
        assert PATTERNS.call("REGEXP_EXTRACT", pa.array(values), pattern, group) == [
            None if each is None else each[group] for each in found
        ]


# What Java 17 says: the matches in order, each group after a match.
@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("a*?", "ab", ["", "", ""]),
        ("|a", "ca", ["", "", ""]),
        ("x(q)?", "xxq", ["x", "xq"]),
        ("(c)?|a.", "a1", ["", "", ""]),
        ("[a-c&&[^b]]+", "abcca", ["a", "cca"]),
        ("[a[0-2]]+", "a1b", ["a1"]),
        ("[^a&&[^b]]", "abc", ["b", "c"]),
        ("[]a]+", "a]b", ["a]"]),
        (r"[\w-.]+", "a-b.c d", ["a-b.c", "d"]),
        (r"\p{Upper}\P{Alpha}", "A1Bb", ["A1"]),
        (r"\p{L}+", "aé1日", ["aé", "日"]),
        (r"\x41\u0042\0103", "ABC", ["ABC"]),
        ("(?m:^).", "a\nb\r\nc", ["a", "b", "c"]),
        ("(?m:^)", "a\n", [""]),
        ("a$", "a\r\n", ["a"]),
        (".", "a\n\r\u0085b", ["a", "b"]),
        ("(?s).", "a\n", ["a", "\n"]),
        (r"\R", "a\r\nb", ["\r\n"]),
        ("(?i)é", "É", []),
        (r"\w\b", "aé b", ["b"]),
        (r"\d", "1١", ["1"]),
        ("(?<year>[0-9]+)-\\k<year>", "12-12", ["12-12"]),
        (r"(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\11", "abcdefghija1", ["abcdefghija1"]),
    ],
)
def test_java_finds_these(pattern: str, text: str, matches: list[str]) -> None:
    assert [match[0] for match in compiled(pattern).matches(text)] == matches


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("REGEXP_EXTRACT", ("ab", "(a)(b)", 2), "b"),
        ("REGEXP_EXTRACT", ("ab", "(a)(b)", 3), None),
        ("REGEXP_EXTRACT", ("ab", "(a)(b)", -1), None),
        ("REGEXP_EXTRACT_ALL", ("a1b2", "([a-z])([0-9])"), ["a", "b"]),
        ("REGEXP_EXTRACT_ALL", ("a1b2", "([a-z])([0-9])", 2), ["1", "2"]),
        ("REGEXP_EXTRACT_ALL", ("a1b2", "[a-z]"), None),
        ("REGEXP_EXTRACT_ALL", ("a1b2", "[a-z]", 0), ["a", "b"]),
        ("REGEXP_EXTRACT_ALL", ("ab", "(x)?", 1), [None, None, None]),
        ("REGEXP_REPLACE", ("a.b", r"\.", r"\\"), r"a\\b"),
        ("SIMILAR_TO", ("a1b", "a%b"), True),
        ("SIMILAR_TO", ("a.b", "a.b"), True),
        ("SIMILAR_TO", ("axb", "a.b"), False),
        ("SIMILAR_TO", ("axb", "a(x|y)_"), True),
        ("SIMILAR_TO", ("a%", "a!%", "!"), True),
        ("SIMILAR_TO", ("ab", "a!%", "!"), False),
        ("SIMILAR_TO", ("a7", "a[[:DIGIT:]]"), True),
        ("SIMILAR_TO", ("a\n", "a_"), True),
    ],
)
def test_single_calls(name: str, arguments: tuple[object, ...], value: object) -> None:
    assert PATTERNS.call(name, *arguments) == [value] * 3


def test_a_value_that_is_no_pattern_gives_null_and_false() -> None:
    wrong = pa.array(["(", "[a", None])
    assert PATTERNS.call("REGEXP", "a", wrong) == [False, False, None]
    for name in ("REGEXP_EXTRACT", "REGEXP_COUNT", "REGEXP_INSTR", "REGEXP_SUBSTR"):
        assert PATTERNS.call(name, "a", wrong) == [None, None, None]
    assert PATTERNS.call("REGEXP_REPLACE", "a", wrong, "x") == [None, None, None]


@pytest.mark.parametrize(
    "pattern", ["(a", "a)", "[a", "*a", r"\y", "(?x)a", r"\p{IsHan}", "a(?i)b", "[b-a]", "a{x}", "(?<=a*)b"]
)
def test_a_literal_that_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(f"'{pattern}' is no regular expression")):
        PATTERNS.type_of("REGEXP_EXTRACT", "a", pattern)


def test_a_wrong_pattern_of_sql_is_refused() -> None:
    with pytest.raises(DefinitionError, match="SIMILAR TO"):
        PATTERNS.type_of("SIMILAR_TO", "a", "(")


def test_a_beginning_counts_once() -> None:
    texts = texts_of(["aa", "ab", "ba"])
    assert PATTERNS.call("REGEXP_COUNT", texts, "^a") == [1, 1, 0]
    assert PATTERNS.call("REGEXP_COUNT", texts, "[^b]") == [2, 1, 1]
