"""Chunks change their form without losing a value or a place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import TerminalError
from poundlock.formats import ddl
from poundlock.formats.chunk import Batch, FileOrigin, Records
from poundlock.formats.convert import column_values, take, to_batch, to_records
from poundlock.formats.reject import Reject

Make = Callable[..., Any]
ROWS = st.lists(st.binary(max_size=12).filter(lambda b: b"\n" not in b), max_size=20)


@given(rows=ROWS)
def test_lines_in_every_form(rows: list[bytes], lines: Make, offsets: Make) -> None:
    chunk = lines(*rows)
    assert [r["value"] for r in to_records(chunk).rows] == rows
    assert to_batch(chunk).batch.column("value").to_pylist() == rows
    assert offsets(to_batch(chunk)) == offsets(to_records(chunk)) == [10 * i for i in range(len(rows))]


@given(rows=ROWS, data=st.data())
def test_take_keeps_rows_and_places_in_every_form(
    rows: list[bytes], data: st.DataObject, lines: Make, values: Make, offsets: Make
) -> None:
    once = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    twice = data.draw(st.lists(st.booleans(), min_size=sum(once), max_size=sum(once)))
    left = [i for i, keep in enumerate(once) if keep]
    left = [i for i, keep in zip(left, twice, strict=True) if keep]
    for chunk in (lines(*rows), values(*rows), to_records(lines(*rows))):
        kept = take(take(chunk, once), twice)
        assert type(kept) is type(chunk)
        assert [r["value"] for r in to_records(kept).rows] == [rows[i] for i in left]
        assert offsets(kept) == [10 * i for i in left]
        assert offsets(to_batch(kept)) == [10 * i for i in left]


def test_columns_are_matched_by_name() -> None:
    rows = Records([{"a": 1, "x": 0}, {"b": "two"}, {"a": None, "b": "three"}])
    batch = to_batch(rows, ddl.parse("b string, c date, a bigint")).batch
    assert batch.to_pylist() == [
        {"b": None, "c": None, "a": 1},
        {"b": "two", "c": None, "a": None},
        {"b": "three", "c": None, "a": None},
    ]
    narrow = to_batch(Batch(batch), ddl.parse("a int, d string")).batch
    assert narrow.schema == ddl.parse("a int, d string")
    assert narrow.to_pylist()[0] == {"a": 1, "d": None}


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("int", 1, 1.5),
        ("int", 1, True),
        ("tinyint", 1, 300),
        ("bigint", 1, "1"),
        ("string", "a", 1),
        ("string", "a", b"\xff"),
        ("boolean", True, 1),
        ("timestamp", datetime(2020, 1, 1, tzinfo=UTC), 1545184226432),
        ("array<string>", ["a"], "abc"),
        ("array<int>", [1], [1.5]),
        ("struct<a:int>", {"a": 1}, {"a": 1.5}),
        ("map<string,int>", {"a": 1}, {"a": 1.5}),
        ("int NOT NULL", 1, None),
    ],
)
def test_a_value_that_does_not_fit_is_named_and_never_changed(
    kind: str, good: object, bad: object, offsets: Make
) -> None:
    schema = ddl.parse(f"n string, v {kind}")
    rows = Records(
        [{"n": "a", "v": good}, {"n": "b", "v": bad}, {"n": "c", "v": good}], FileOrigin("f", range(3)), [0, 1, 2]
    )
    with pytest.raises(TerminalError, match="column 'v'") as caught:
        to_batch(rows, schema)
    assert "'offset': 1" in caught.value.what
    rejected: list[Reject] = []
    batch = to_batch(rows, schema, rejected.append)
    assert [r.where["offset"] for r in rejected] == [1]
    assert b'"n": "b"' in rejected[0].value
    assert offsets(batch) == [0, 2]
    assert to_records(batch).rows == [{"n": "a", "v": good}, {"n": "c", "v": good}]


def test_a_cast_that_fails_names_the_row(lines: Make) -> None:
    rejected: list[Reject] = []
    batch = to_batch(lines(b"1", b"x", b"3"), ddl.parse("value int"), rejected.append)
    assert batch.batch.to_pydict() == {"value": [1, 3]}
    assert [(r.value, r.where["offset"]) for r in rejected] == [(b"x", 10)]


def test_values_of_several_types_need_a_schema() -> None:
    with pytest.raises(TerminalError, match="schema"):
        to_batch(Records([{"a": 1}, {"a": "x"}]))


def test_a_batch_that_fits_is_not_copied(values: Make) -> None:
    chunk = values(b"a")
    assert to_batch(chunk) is chunk
    assert to_batch(chunk, pa.schema([("value", pa.binary())])) is chunk


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_are_the_datetimes_that_arrow_gives(unit: str, zone: str | None) -> None:
    step = {"s": 1, "ms": 1_000, "us": 1_000_000}[unit]
    seconds = [0, -1, 1_545_184_226, None, -62_135_596_800, 253_402_300_799]
    column = pa.array([None if s is None else s * step for s in seconds], pa.timestamp(unit, zone))
    assert column_values(column) == column.to_pylist()
    assert column_values(column.slice(2, 2)) == column.to_pylist()[2:4]
    assert column_values(column.slice(0, 0)) == []
    beyond = pa.array([253_402_300_800 * step], pa.timestamp(unit, zone))
    with pytest.raises(TerminalError, match="that Python has not"):
        column_values(beyond)
