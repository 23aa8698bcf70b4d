"""What is coloured as what while it is typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.sql.shell.highlighting import highlighted


def parts(text: str) -> list[tuple[str, str]]:
    """Return the parts of a text with what they are, without blanks."""
    return [(text[p.start : p.stop].strip(), p.kind) for p in highlighted(text) if text[p.start : p.stop].strip()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SELECT upper(`order`), 2.5 FROM orders",
            [("SELECT", "keyword"), ("upper", "function"), ("(", "sign"), ("`order`", "name"), (")", "sign"),
             (",", "sign"), ("2.5", "number"), ("FROM", "keyword"), ("orders", "plain")],
        ),
        ("set 'a.b' = 'it''s'", [("set", "keyword"), ("'a.b'", "text"), ("=", "sign"), ("'it''s'", "text")]),
        ("count", [("count", "keyword")]),
        ("id -- it is 'one'\n, n", [("id", "plain"), ("-- it is 'one'", "comment"), (",", "sign"), ("n", "plain")]),
        ("1 /* SELECT */ + 1", [("1", "number"), ("/* SELECT */", "comment"), ("+", "sign"), ("1", "number")]),
        ("SELECT 'not yet", [("SELECT", "keyword"), ("'not yet", "text")]),
        ("FROM `ord", [("FROM", "keyword"), ("`ord", "name")]),
        ("id /* not\nyet", [("id", "plain"), ("/* not\nyet", "comment")]),
        ("x'0A'", [("x'0A'", "text")]),
        ("help", [("help", "keyword")]),
        ("", []),
    ],
)  # fmt: skip
def test_what_a_part_is(text: str, expected: list[tuple[str, str]]) -> None:
    assert parts(text) == expected


@given(st.text(st.sampled_from("ab1 '`-/*;.(\n\"\\\xe4xX$=é"), max_size=30))
def test_all_of_a_text_is_in_one_part_or_another(text: str) -> None:
    at = 0
    for part in highlighted(text):
        assert part.start == at
        assert part.stop > at
        at = part.stop
    assert at == len(text)
