"""Rows as BSON by columns, against what pymongo's own decoder and encoder say."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from typing import Any

import bson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.connectors.mongodb.bson_columns import (
    document,
    element,
    fits,
    has_micros,
    moment,
    object_ids,
    subdocument,
    truth,
    whole_number,
)
from poundlock.formats.arrays import bytes_scalar
from support.examples import examples

SCHEMA = pa.schema(
    {
        "bool": pa.bool_(), "i8": pa.int8(), "i32": pa.int32(), "i64": pa.int64(), "u32": pa.uint32(), "u64": pa.uint64(),
        "float": pa.float64(), "text": pa.string(), "bytes": pa.binary(), "date": pa.date32(), "at": pa.timestamp("us", "UTC"),
        "decimal": pa.decimal128(38, 2), "list": pa.list_(pa.int32()), "map": pa.map_(pa.string(), pa.float64()),
        "struct": pa.struct({"x": pa.int64(), "y": pa.list_(pa.string())}), "deep": pa.list_(pa.struct({"q": pa.map_(pa.string(), pa.string())})),
        "null": pa.null(),
    }
)  # fmt: skip
TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)
FLOATS = st.floats(allow_nan=False)
MOMENTS = st.datetimes(datetime.datetime(1600, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(datetime.UTC))
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(), "i8": st.integers(-128, 127), "i32": st.integers(-(1 << 31), (1 << 31) - 1),
    "i64": st.integers(-(1 << 63), (1 << 63) - 1), "u32": st.integers(0, (1 << 32) - 1), "u64": st.integers(0, (1 << 63) - 1),
    "float": FLOATS, "text": TEXTS, "bytes": st.binary(max_size=4), "date": st.dates(datetime.date(1600, 1, 1), datetime.date(2200, 1, 1)),
    "at": MOMENTS, "decimal": st.integers(1 - 10**34, 10**34 - 1).map(lambda n: decimal.Decimal(n).scaleb(-2, decimal.Context(40))),
    "list": st.lists(st.none() | st.integers(0, 9), max_size=12), "map": st.dictionaries(NAMES, st.none() | FLOATS, max_size=3).map(lambda d: [*d.items()]),
    "struct": st.fixed_dictionaries({"x": st.none() | st.integers(0, 9), "y": st.none() | st.lists(TEXTS, max_size=2)}),
    "deep": st.lists(st.none() | st.fixed_dictionaries({"q": st.none() | st.dictionaries(NAMES, TEXTS, max_size=2).map(lambda d: [*d.items()])}), max_size=3),
}  # fmt: skip
ROWS = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


def documents(batch: pa.RecordBatch) -> list[bytes | None]:
    made: list[bytes | None] = document([element(name, batch.column(name)) for name in batch.schema.names]).to_pylist()
    return made


def as_bson(name: str, value: Any) -> Any:
    """Return a value as pymongo takes it."""
    if value is None:
        return None
    if name in ("i64", "u32", "u64", "x"):
        return bson.Int64(value)
    if name == "date":
        return datetime.datetime.combine(value, datetime.time())
    if name == "at":
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    if name == "decimal":
        return bson.Decimal128(value)
    if name in ("map", "q"):
        return {key: as_bson("", each) for key, each in value}
    if name in ("struct", "each"):
        return {key: as_bson(key, each) for key, each in sorted(value.items())}
    return [as_bson("each", each) for each in value] if name == "deep" else value


@examples(30)
@given(st.lists(ROWS, max_size=4), st.integers(0, 2))
def test_a_document_is_what_pymongo_makes(rows: list[dict[str, Any]], skipped: int) -> None:
    batch = pa.RecordBatch.from_pylist([{**row, "null": None} for row in rows], schema=SCHEMA).slice(skipped)
    wanted = [{name: as_bson(name, {**row, "null": None}[name]) for name in SCHEMA.names} for row in rows[skipped:]]
    assert documents(batch) == [bson.encode(each) for each in wanted]


def test_what_bson_cannot_hold_is_null() -> None:
    rows = [
        {"u64": 1 << 63},
        {"decimal": decimal.Decimal(10**34).scaleb(-2, decimal.Context(40))},
        {"decimal": -decimal.Decimal(10**34).scaleb(-2, decimal.Context(40))},
        {"map": [("a", 1.0), ("a\0b", 2.0)]},
        {"deep": [{"q": None}, {"q": [("\0", "x")]}]},
        {"deep": [{"q": [("x", "\0")]}]},
    ]
    batch = pa.RecordBatch.from_pylist([{**dict.fromkeys(SCHEMA.names), **row} for row in rows], schema=SCHEMA)
    assert [each is None for each in documents(batch)] == [True, True, True, True, True, False]


def test_parts_that_are_the_same_in_all() -> None:
    fixed = truth("t") + moment("d", 5) + subdocument("s", whole_number("v", -5), subdocument("e"))
    (made,) = document([object_ids("_id", 0xFFFFFF, 1, b"abcde", 2), bytes_scalar(fixed)]).to_pylist()[1:]
    assert bson.decode(made) == {
        "_id": bson.ObjectId("000000016162636465000000"),
        "t": True,
        "d": datetime.datetime(1970, 1, 1, 0, 0, 0, 5000),
        "s": {"v": -5, "e": {}},
    }


@pytest.mark.parametrize(
    ("kind", "does"),
    [
        (pa.dictionary(pa.int32(), pa.string()), True),
        (pa.list_(pa.map_(pa.string(), pa.struct({"a": pa.date32()}))), True),
        (pa.map_(pa.int64(), pa.string()), False),
        (pa.struct({"a.b": pa.int64()}), False),
        (pa.struct({"$a": pa.int64()}), False),
        (pa.struct([]), False),
        (pa.list_(pa.time64("us")), False),
        (pa.decimal256(50, 2), False),
        (pa.duration("us"), False),
    ],
)
def test_which_types_fit(kind: pa.DataType, does: bool) -> None:
    assert fits(kind) is does


def test_parts_of_a_millisecond_are_seen() -> None:
    assert has_micros(pa.array([1000, 1001, None, -1000, -1], pa.timestamp("us"))).tolist() == [
        False,
        True,
        False,
        False,
        True,
    ]
    assert not has_micros(pa.array([1, 2], pa.timestamp("s"))).any()
    dictionary = pa.array(["a", "b", "a"]).dictionary_encode()
    assert [bson.decode(each) for each in document([element("d", dictionary)]).to_pylist()] == [
        {"d": "a"},
        {"d": "b"},
        {"d": "a"},
    ]
