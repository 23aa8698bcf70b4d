"""Keys and accumulators as bytes: the same as of single values, and back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.columns.encoding import (
    decode_accumulators,
    decode_key_columns,
    encode_accumulators,
    encode_key_columns,
)
from poundlock.operators.keyed.codec import decode, encode_keys
from support.examples import examples

TEXTS = st.text(max_size=40) | st.sampled_from(["", "a" * 31, "a" * 32, "é" * 16])


@given(values=st.lists(TEXTS | st.none(), max_size=20), kind=st.sampled_from([pa.string(), pa.large_string()]))
def test_texts_as_keys(values: list[str | None], kind: pa.DataType) -> None:
    column = pa.array(["before", *values], kind)[1:]
    encoded = encode_key_columns([column])
    assert encoded.to_pylist() == encode_keys(values)
    (back,) = decode_key_columns(encoded, [kind])
    assert back.type == kind
    assert back.to_pylist() == values


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ([pa.array([1, -5, 1 << 40, None])], [1, -5, 1 << 40, None]),
        ([pa.array([0.5, -0.0, None])], [0.5, 0.0, None]),
        ([pa.array(["a", "b"]), pa.array([1, None])], [("a", 1), ("b", None)]),
        ([pa.array([Decimal("1.50")], pa.decimal128(5, 2))], [Decimal("1.50")]),
        ([pa.array([dt.date(2020, 1, 2)])], [dt.date(2020, 1, 2)]),
        ([pa.array([], pa.string()), pa.array([], pa.int32())], []),
    ],
)
def test_keys_of_every_sort(columns: list[pa.Array], keys: list[Any]) -> None:
    encoded = encode_key_columns(columns)
    assert encoded.to_pylist() == encode_keys(keys)
    back = decode_key_columns(encoded, [column.type for column in columns])
    assert [column.to_pylist() for column in back] == [
        [0.0 if value == 0 else value for value in column.to_pylist()] for column in columns
    ]


EDGES = [0, 1, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, (1 << 63) - 1]
WHOLE = [
    *EDGES,
    *(-edge for edge in EDGES),
    -32,
    -33,
    -128,
    -129,
    -32_768,
    -32_769,
    -(1 << 31),
    -(1 << 31) - 1,
    -(1 << 63),
]
DAY = dt.datetime(2026, 1, 5, 10)
PARTS = {
    "whole": (pa.int64(), [*WHOLE, None]),
    "small": (pa.int16(), [0, -1, 127, 128, 32_767, -32_768, None]),
    "text": (pa.string(), ["", "a", "é" * 16, "x" * 300, "y" * 70_000, None]),
    "time": (pa.timestamp("us"), [DAY, DAY.replace(microsecond=5), None]),
    "instant": (pa.timestamp("ms", "UTC"), [DAY.replace(tzinfo=dt.UTC), None]),
    "decimal": (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("-2.00"), None]),
    "float": (pa.float64(), [0.0, -0.0, 1.5, float("nan"), None]),
    "flag": (pa.bool_(), [True, False, None]),
    "nothing": (pa.null(), [None]),
    "bytes": (pa.binary(), [b"", b"x" * 40, None]),
}


@given(
    names=st.lists(st.sampled_from(list(PARTS)), min_size=1, max_size=4),
    picks=st.lists(st.integers(0, 1000), min_size=1, max_size=8),
)
@examples(60)
def test_many_keys_have_the_bytes_of_each_alone(names: list[str], picks: list[int]) -> None:
    columns = []
    for place, name in enumerate(names):
        kind, values = PARTS[name]
        some = [values[(pick + place * at) % len(values)] for at, pick in enumerate((picks * 80)[:80])]
        columns.append(pa.array(some, kind))
    keys = encode_key_columns(columns)
    assert keys.type == pa.large_binary()
    few = [encode_key_columns([column.slice(at, 1) for column in columns])[0].as_py() for at in range(len(picks))]
    assert keys.to_pylist()[: len(few)] == few
    back = decode_key_columns(keys, [column.type for column in columns])
    for column, name in zip(back, names, strict=True):
        assert column.type == PARTS[name][0]
    assert encode_key_columns(back).to_pylist() == keys.to_pylist()


@pytest.mark.parametrize(
    "columns",
    [
        [pa.array([1, -2, 1 << 62]), pa.array([0.25, -1e300, float("inf")])],
        [pa.array([1, None])],
        [pa.array([0.5, None, float("nan")])],
        [pa.array(["a", None]), pa.array([True, False])],
        [pa.array([[1, 2], []]), pa.array([Decimal("1.50"), None], pa.decimal128(38, 2))],
        [pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))],
        [pa.array([number, number], pa.int64()) for number in range(20)],
        [pa.array([], pa.int64())],
    ],
)
def test_accumulators(columns: list[pa.Array]) -> None:
    encoded = encode_accumulators(columns)
    kinds = [column.type for column in columns]
    back = decode_accumulators(pa.concat_arrays([encode_accumulators([c[:0] for c in columns]), encoded]), kinds)
    for one, other in zip(back, columns, strict=True):
        assert one.type == other.type
        assert repr(one.to_pylist()) == repr(other.to_pylist())
    assert all(type(decode(row)) is list for row in encoded.to_pylist())
