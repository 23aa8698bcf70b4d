"""State as bytes: what goes in comes out, types included, and what cannot is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.operators.keyed import codec
from support.examples import examples

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

zones = st.sampled_from([None, UTC, timezone(timedelta(hours=-3, minutes=-30))])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(1 << 62, 1 << 65),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.dates(),
    st.datetimes(timezones=zones),
    st.times(),
    st.timedeltas(),
)
atoms = st.deferred(lambda: scalars)
hashable = st.recursive(atoms, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3))
values = st.recursive(
    st.deferred(lambda: hashable),  # a strategy that is spelled out again and again has a long name
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(atoms, inner, max_size=3),
        st.dictionaries(st.tuples(atoms, atoms), inner, max_size=3),
        st.sets(atoms, max_size=3),
    ),
    max_leaves=6,
)


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal in every type they hold."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a.items(), b.items(), strict=True))
    return bool(a == b)


@examples(50)
@given(values)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(codec.decode(codec.encode(codec.pack(value))), value)


@examples(50)
@given(st.sets(st.deferred(lambda: hashable), max_size=6), st.randoms())
def test_a_set_has_the_same_bytes_whatever_its_history(members: set[Any], chance: Any) -> None:
    shuffled = list(members)
    chance.shuffle(shuffled)
    assert codec.encode(codec.pack(set(shuffled))) == codec.encode(codec.pack(members))


class Colour(Enum):
    RED = 1


@dataclass
class Thing:
    n: int = 1


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Thing(),
        Colour.RED,
        1j,
        {"a": [Thing()]},
        (1, Thing()),
        {Colour.RED: 1},
        bytearray(b"x"),
        [-(10**5000)],
    ],
)
def test_other_types_are_refused_with_what_to_do(value: Any) -> None:
    with pytest.raises(
        DefinitionError, match=r"state cannot keep a .*\nNext: keep numbers of up to 4,000 digits, texts"
    ):
        codec.pack(value)
    with pytest.raises(DefinitionError, match="state cannot keep"):
        codec.encode_each([1, value])


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(DefinitionError, match="not valid Unicode"):
        codec.encode(codec.pack("\ud800"))


def test_keys_that_sql_groups_together_have_the_same_bytes() -> None:
    assert codec.encode_key(0.0) == codec.encode_key(-0.0)
    assert codec.encode_key(math.nan) == codec.encode_key(float("nan"))
    told = {codec.encode_key(key) for key in (None, 0, "0", b"0", 0.5, (0,), ("0",), Decimal(0), date(2020, 1, 1))}
    assert len(told) == 9


def test_a_value_of_an_unknown_kind_is_refused() -> None:
    assert isinstance(codec.decode(codec.encode(codec.pack(datetime(2020, 1, 1)))), datetime)
    assert codec.decode(codec.encode(codec.pack(time(1, 2)))) == time(1, 2)
    known = codec.encode(codec.pack((1,)))
    data = known[:1] + b"\x63" + known[2:]  # msgpack: "two bytes of kind 1" becomes "of kind 99"
    with pytest.raises(TerminalError, match="unknown kind 99"):
        codec.decode(data)


def test_nan_is_one_key_alone_and_in_a_tuple() -> None:
    window = (0, 10)
    for key in (math.nan, (math.nan, 1), ((math.nan, "a"), window)):
        read = codec.canonical_key(codec.decode(codec.encode(codec.pack(key))))
        assert {key: 1}[read] == 1


def test_keys_of_a_column_of_numbers_are_made_one_value_each() -> None:
    nan, zero, other = codec.normal([float("nan"), -0.0, 3])
    assert (nan is codec.normal([float("nan")])[0], str(zero), other) == (True, "0.0", 3)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {"a": v}, lambda v: frozenset({v})])
def test_what_is_nested_as_deep_as_state_keeps_is_read_again_and_deeper_is_refused(wrap: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(100):
        value = wrap(value)
    assert codec.decode(codec.encode(codec.pack(value))) == value
    with pytest.raises(DefinitionError, match="more than 100 levels deep"):
        codec.pack(wrap(value))


def test_a_time_of_columns_that_python_has_not_is_named() -> None:
    data = msgspec.msgpack.encode(msgspec.msgpack.Ext(codec.UTC_MICROS, (1 << 60).to_bytes(8, "big")))
    with pytest.raises(TerminalError, match=r"behind the year 9999, which Python has not\nNext: leave such rows out"):
        codec.decode(data)
