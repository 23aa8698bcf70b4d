"""Keys as people write them: one form a type, read as one of the types that keys have."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from poundlock.operators.keyed.codec import encode_key
from poundlock.state.key_text import KeyTypes, key_text, plain

MOMENT = datetime(2018, 12, 19, 1, 50, 26, 432_000, tzinfo=UTC)
EAST = timezone(timedelta(hours=8))


@pytest.mark.parametrize(
    "key",
    [
        "ada", "", "12", "null", '"', "[1]", "X'00'", "ä b/c", None, True, False, 0, -12, 1 << 70, 1.5, -1e300, math.inf, Decimal("12.50"), Decimal("-0.05"),
        Decimal("1E+3"), date(2018, 12, 19), MOMENT, MOMENT.replace(tzinfo=None), MOMENT.replace(microsecond=0),
        datetime(2018, 12, 19, 8, tzinfo=EAST), time(1, 50), timedelta(seconds=3), b"", b"ab", b"\x00\xff",
        ("ada", 3), (None, date(2018, 12, 19)), ("12", 12), (b"\xff", Decimal("1.00"), MOMENT), ("null",), (True, 1.0),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_shown_is_read_back(key: Any) -> None:
    text = key_text(key)
    # Text that JSON reads as something else is written in quotes.
    text = f'"{text}"' if isinstance(key, str) and key == "null" else text
    text = r'"\""' if key == '"' else text
    assert encode_key(KeyTypes([key]).key_of(text)) == encode_key(key)


@pytest.mark.parametrize(
    ("known", "text", "wanted"),
    [
        ("ada", "12", "12"),
        ("ada", "1.50", "1.50"),
        ("ada", '"12"', "12"),
        ("ada", "true", "true"),
        (Decimal("1.10"), "2.5", Decimal("2.50")),
        (Decimal("1.10"), "-0.0700", Decimal("-0.07")),
        (Decimal("1E+1"), "120", Decimal("1.2E+2")),
        (b"a", "ada", b"ada"),
        (b"a", "x'00fF'", b"\x00\xff"),
        (MOMENT, "2018-12-19T09:50:26.432+08:00", MOMENT),
        (MOMENT, "2018-12-19 01:50:26.432", MOMENT),
        (MOMENT, "2018-12-19", datetime(2018, 12, 19, tzinfo=UTC)),
        (MOMENT.replace(tzinfo=None), "2018-12-19 08:00:00", datetime(2018, 12, 19, 8)),
        (math.nan, "NaN", math.nan),
        (1.5, "2", 2.0),
        (("a", Decimal("1.00")), '["1", 2.50]', ("1", Decimal("2.50"))),
        (("a", 1), "[1.50, 7]", ("1.50", 7)),
        (("a", date(2018, 12, 19)), '["x", "2018-12-20"]', ("x", date(2018, 12, 20))),
        ((b"a", True), "[\"X'FF'\", true]", (b"\xff", True)),
    ],
)
def test_a_text_is_read_as_the_type_that_the_keys_have(known: Any, text: str, wanted: Any) -> None:
    assert encode_key(KeyTypes([None, known]).key_of(text)) == encode_key(wanted)


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (1, "1.5"),
        (1, "ada"),
        (True, "yes"),
        (1.5, "x"),
        (Decimal("1.10"), "2.505"),
        (date(2018, 12, 19), "soon"),
        (MOMENT.replace(tzinfo=None), "2018-12-19T08:00:00Z"),
        (("a", 1), "a"),
        (("a", 1), '["a"]'),
        (("a", 1), '["a", "b"]'),
        (("a", 1), "[[[["),
    ],
)
def test_what_no_key_can_be_is_refused(known: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        KeyTypes([known]).key_of(text)


def test_keys_of_several_types_are_told_apart_by_quotes() -> None:
    types = KeyTypes([12, "ada", None, ("ada", 3)])
    assert [types.key_of(text) for text in ("12", '"12"', "ada", '["x", 4]', "null")] == [
        12,
        "12",
        "ada",
        ("x", 4),
        None,
    ]


def test_where_no_key_is_known_a_text_is_json_or_a_text() -> None:
    types = KeyTypes([None])
    assert [types.key_of(text) for text in ("12", "ada", '"12"', "1.5")] == [12, "ada", "12", 1.5]
    assert not types.complete
    assert KeyTypes([]).key_of('["ada", 3]') == ("ada", 3)


def test_values_are_shown_as_json_can_say_them() -> None:
    value = {("a", 1): [b"\xff", Decimal("1.50"), math.nan], 3: {"x": {MOMENT}}}
    assert plain(value) == {'["a", 1]': ["X'FF'", "1.50", "nan"], "3": {"x": ["2018-12-19T01:50:26.432000Z"]}}
