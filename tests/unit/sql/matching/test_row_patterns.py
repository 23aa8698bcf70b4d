"""PATTERN as variables, and what Flink has not by its name."""

from __future__ import annotations

import pytest

from poundlock.errors import DefinitionError
from poundlock.sql.analysis.patterns.row_patterns import pattern_of
from poundlock.stream.matching import PatternVariable


def test_variables_and_their_quantifiers() -> None:
    made = pattern_of("a `B c`+ d* e? f{2} g{2,}? h{ 2 , 3 } i{,4} j*? k+? l{0,1} m{0,} n{2}? o")
    assert made == (
        PatternVariable("a"),
        PatternVariable("B c", 1, None, True),
        PatternVariable("d", 0, None, True),
        PatternVariable("e", 0, 1),
        PatternVariable("f", 2, 2),
        PatternVariable("g", 2, None, False),
        PatternVariable("h", 2, 3, True),
        PatternVariable("i", 0, 4, True),
        PatternVariable("j", 0, None, False),
        PatternVariable("k", 1, None, False),
        PatternVariable("l", 0, 1),
        PatternVariable("m", 0, None, True),
        PatternVariable("n", 2, 2),
        PatternVariable("o"),
    )


def test_groups_without_a_quantifier_are_what_stands_in_them() -> None:
    assert pattern_of("((a b) (c)+ d)") == pattern_of("a b c+ d")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("a | b", "alternatives"),
        ("a (b | c)", "alternatives"),
        ("(a b)+ c", "quantifier of a group"),
        ("(a+)* c", "quantifier of a group"),
        ("PERMUTE(a, b)", "PERMUTE"),
        ("a {- b -} c", "exclusions"),
        ("^ a b", r"anchor \^"),
        ("a b $", r"anchor \$"),
        ("a b a", "variable a stands in PATTERN twice"),
        ("a?? b", "reluctant"),
        ("a{0,1}? b", "reluctant"),
        ("a b+", "last variable of PATTERN, b, is greedy"),
        ("a b{2,3}", "last variable of PATTERN, b, is greedy"),
        ("a* b?", "no row at all"),
        ("a{0} b", "no number of rows"),
        ("a{3,2} b", "no number of rows"),
        ("a{20000} b", "no number of rows"),
        ("a{} b", "counts nothing"),
        ("a{,} b", "counts nothing"),
        ("", "names no variable"),
        ("a (b", r"has no \)"),
        ("a b)", "has no place"),
        ("a + + b", "has no place"),
        ("a; b", "; b has no place"),
    ],
)
def test_what_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(DefinitionError, match=words) as error:
        pattern_of(pattern)
    assert error.value.next
