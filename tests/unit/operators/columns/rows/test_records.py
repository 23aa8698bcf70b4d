"""Records of state by columns against the codec of single values: the same values either way, whoever wrote them."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import TerminalError
from poundlock.formats.arrays import binary_array
from poundlock.formats.convert import column_values
from poundlock.operators.columns.msgpack.cursor import Cursor
from poundlock.operators.columns.msgpack.values import packed_records, packed_timed, unpacked
from poundlock.operators.columns.msgpack.writing import lists_of
from poundlock.operators.columns.rows.records import lists_of_records, records_of, timed_records_of
from poundlock.operators.keyed.codec import encode_each
from support.examples import examples

MOMENT = datetime(2026, 1, 5, 3, 4, 5, 678, UTC)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [0, 1, -1, -33, 127, 128, 255, 256, 1 << 16, 1 << 31, 1 << 33, -(1 << 15), -(1 << 63), (1 << 63) - 1],
    pa.int8(): [-128, 127, 0],
    pa.float64(): [0.0, -0.0, 1.5, float("inf")],
    pa.float32(): [0.5, -2.0],
    pa.bool_(): [True, False],
    pa.string(): ["", "a", "x" * 31, "x" * 32, "y" * 300, "z" * 70_000, "größe"],
    pa.large_string(): ["", "b" * 40],
    pa.binary(): [b"", b"\0\xff", b"q" * 300],
    pa.timestamp("us", "UTC"): [MOMENT, MOMENT + timedelta(days=-30_000)],
    pa.timestamp("us"): [MOMENT.replace(tzinfo=None)],
    pa.date32(): [date(2026, 1, 5)],
    pa.decimal128(38, 3): [Decimal("1.500"), Decimal("-99999999999999999999999999999999999.999"), Decimal("0.000")],
    pa.list_(pa.int64()): [[], [1, None, 3]],
    pa.map_(pa.string(), pa.int64()): [{}, {"a": 1}],
    pa.struct([("n", pa.int64())]): [{"n": None}, {"n": 5}],
}


def table(dice: random.Random, kinds: list[pa.DataType], count: int, nulls: bool) -> pa.RecordBatch:
    fields = [pa.field("c" * (number + 1) * 3, kind) for number, kind in enumerate(kinds)]
    columns = [
        pa.array([dice.choice([None, *VALUES[k]] if nulls else VALUES[k]) for _ in range(count)], k) for k in kinds
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


@examples(80)
@given(
    st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=17), st.integers(0, 9), st.booleans(), st.integers()
)
def test_records_are_read_whoever_wrote_them(kinds: list[pa.DataType], count: int, nulls: bool, seed: int) -> None:
    rows = table(random.Random(seed), kinds, count + 2, nulls).slice(1, count)
    names, columns = rows.schema.names, rows.columns
    records = [dict(zip(names, row, strict=True)) for row in zip(*map(column_values, columns), strict=True)]
    written = packed_records(columns, names)
    assert unpacked(written) == records
    for values in (written, binary_array(encode_each(list(records)))):
        read = pa.RecordBatch.from_arrays(records_of(values, rows.schema), schema=rows.schema)
        assert read.to_pylist() == rows.to_pylist()


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers())
def test_lists_of_records(counts: list[int], seed: int) -> None:
    rows = table(random.Random(seed), [pa.int64(), pa.string(), pa.date32()], sum(counts), True)
    records, names = packed_records(rows.columns, rows.schema.names), rows.schema.names
    written = lists_of(records, np.array(counts, np.int64))
    lists, every = unpacked(written), iter(unpacked(records))
    assert lists == [[next(every) for _ in range(count)] for count in counts]
    for values in (written, binary_array(encode_each(lists))):
        lengths, columns = lists_of_records(values, rows.schema)
        assert lengths.tolist() == counts
        assert pa.RecordBatch.from_arrays(columns, names).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("most", [15, 16, (1 << 16) - 1, 1 << 16])
def test_a_list_may_be_as_long_as_msgpack_has_them(most: int) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(np.arange(most + 3))], ["n"])
    counts = np.array([1, most, 2])
    written = lists_of(packed_records(rows.columns, ["n"]), counts)
    assert list(map(len, unpacked(written))) == counts.tolist()
    lists = unpacked(written) if most < 1 << 16 else None
    assert lists is None or lists[1][-1] == {"n": most}
    lengths = Cursor(written).list_lengths()
    assert lengths is not None
    assert lengths.tolist() == counts.tolist()


@given(st.lists(st.one_of(st.none(), st.integers(-(1 << 40), 1 << 40)), max_size=6), st.integers())
def test_records_with_a_time(times: list[int | None], seed: int) -> None:
    rows = table(random.Random(seed), [pa.int64(), pa.string()], len(times), True)
    at = pa.array(times, pa.int64())
    written = packed_timed(at, packed_records(rows.columns, rows.schema.names))
    for values in (written, binary_array(encode_each(unpacked(written)))):
        held, columns = timed_records_of(values, rows.schema)
        assert held.to_pylist() == times
        assert pa.RecordBatch.from_arrays(columns, rows.schema.names).to_pylist() == rows.to_pylist()


def test_a_column_that_is_not_there_is_null_and_one_too_many_is_left_out() -> None:
    values = binary_array(encode_each([{"a": 1, "old": "x"}, {"a": None, "old": None}]))
    a, b = records_of(values, pa.schema([("a", pa.int64()), ("b", pa.string())]))
    assert (a.to_pylist(), b.to_pylist()) == ([1, None], [None, None])


@pytest.mark.parametrize("kind", [pa.int8(), pa.string(), pa.timestamp("us", "UTC"), pa.bool_()])
def test_a_value_of_another_type_is_refused(kind: pa.DataType) -> None:
    values = binary_array(encode_each([{"a": 1}, {"a": 300}]))
    with pytest.raises(TerminalError, match="state holds a record that is not of the columns there are: column 'a'"):
        records_of(values, pa.schema([("a", kind)]))
