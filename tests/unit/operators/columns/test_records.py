"""Whole rows as bytes and back, over values of every type, whole and cut out of larger columns."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import TerminalError
from poundlock.operators.columns.records import columns_of, decode_records, encode_records, joined_rows, layout_of
from poundlock.operators.keyed.codec import decode
from support.examples import examples

TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int16(): st.integers(-(1 << 15), (1 << 15) - 1),
    pa.int8(): st.integers(-128, 127),
    pa.float64(): st.floats(allow_nan=False),
    pa.float32(): st.floats(allow_nan=False, width=32),
    pa.string(): st.text(max_size=40) | st.sampled_from(["a" * 31, "a" * 32, "é" * 16]),
    pa.binary(): st.binary(max_size=40),
    pa.decimal128(10, 2): st.decimals(-1000, 1000, places=2),
    pa.decimal128(38, 0): st.integers(-(10**37), 10**37).map(Decimal),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(dt.date(1, 1, 1), dt.date(9999, 1, 1)),
    pa.timestamp("us", "UTC"): st.datetimes(dt.datetime(1900, 1, 1), timezones=st.just(dt.UTC)),
    pa.timestamp("us"): st.datetimes(),
    pa.list_(pa.int64()): st.lists(st.integers(0, 5), max_size=3),
    pa.struct([("a", pa.int64()), ("b", pa.string())]): st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.text()}),
    pa.map_(pa.string(), pa.int64()): st.lists(
        st.tuples(st.text("abc", max_size=2), st.integers(0, 9)), max_size=3, unique_by=lambda item: item[0]
    ),
}


@examples(60)
@given(data=st.data())
def test_rows_come_back_as_they_were(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=6) | st.just([pa.bool_()] * 17))
    count = data.draw(st.integers(0, 6))
    columns = []
    for kind in kinds:
        values = data.draw(st.lists(st.none() | TYPES[kind], min_size=count + 2, max_size=count + 2))
        columns.append(pa.array(values, kind)[1:-1])
    rows = pa.RecordBatch.from_arrays(columns, [f"c{number}" for number in range(len(kinds))])
    layout = layout_of(rows.schema)
    assert layout is not None
    assert columns_of(layout) == rows.schema
    encoded = encode_records(rows)
    assert all(len(decode(row)) == len(kinds) for row in encoded.to_pylist())
    back = decode_records(pa.concat_arrays([encoded[:0], encoded, encoded])[count:], rows.schema)
    assert back.schema == rows.schema
    back.validate(full=True)
    assert back.to_pylist() == rows.to_pylist()
    some = data.draw(st.lists(st.sampled_from(rows.schema.names), min_size=1, unique=True))
    assert decode_records(encoded, rows.schema, some).select(some).to_pylist() == rows.select(some).to_pylist()


def test_texts_of_every_length() -> None:
    lengths = [0, 31, 32, 255, 256, 65_535, 65_536, 200_000]
    for kind, letter in ((pa.string(), "x"), (pa.binary(), b"x")):
        rows = pa.RecordBatch.from_arrays(
            [pa.array([letter * n for n in lengths], kind), pa.array(lengths)], ["t", "n"]
        )
        encoded = encode_records(rows)
        assert [decode(row) for row in encoded.to_pylist()] == [[letter * n, n] for n in lengths]
        assert decode_records(encoded, rows.schema).equals(rows)


def test_values_at_nulls_are_passed_over() -> None:
    column = pa.Array.from_buffers(
        pa.string(), 2, [pa.py_buffer(b"\x01"), pa.array([0, 1, 5], pa.int32()).buffers()[1], pa.py_buffer(b"aXXXX")]
    )
    rows = pa.RecordBatch.from_arrays([column], ["c"])
    assert decode_records(encode_records(rows), rows.schema).to_pylist() == [{"c": "a"}, {"c": None}]


def test_nan_and_minus_zero_stay() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([math.nan, -0.0, math.inf])], ["c"])
    assert str(decode_records(encode_records(rows), rows.schema).column(0).to_pylist()) == "[nan, -0.0, inf]"


def test_rows_of_other_columns_are_refused() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array(["a", "b"])], ["n", "t"])
    for other in (["n bigint"], ["n int", "t string"], ["t string", "n bigint"], ["n bigint", "t binary"]):
        with pytest.raises(TerminalError, match="other columns than its manifest says\nNext: report this as a bug"):
            decode_records(encode_records(rows), columns_of(f"rows of {', '.join(other)}"))


def test_a_type_without_a_name_has_no_layout() -> None:
    assert layout_of(pa.schema([("n", pa.uint64())])) is None
    assert layout_of(pa.schema([("t", pa.large_string())])) is None


def test_rows_are_joined() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array(["a", "b"])], ["n", "t"])
    assert joined_rows([rows]) is rows
    assert joined_rows([rows, rows.slice(1)]).to_pylist() == [*rows.to_pylist(), *rows.to_pylist()[1:]]
