"""What a format writes it reads as the same rows: each type, nulls, nested types, slices of arrays and empty batches."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.types import BYTES, STRING, SqlType
from support.examples import examples
from support.table_formats import columns_of, decoder, encoder

INT, BIGINT, DOUBLE, BOOLEAN = SqlType("INT"), SqlType("BIGINT"), SqlType("DOUBLE"), SqlType("BOOLEAN")
TIMESTAMP, INSTANT, DECIMAL = SqlType("TIMESTAMP", (3,)), SqlType("TIMESTAMP_LTZ", (3,)), SqlType("DECIMAL", (20, 4))
ROW = SqlType("ROW", of=(INT, STRING), names=("p", "q"))
NESTED = {
    "xs": SqlType("ARRAY", of=(INT,)),
    "r": ROW,
    "m": SqlType("MAP", of=(STRING, DECIMAL)),
    "rs": SqlType("ARRAY", of=(SqlType("ROW", of=(TIMESTAMP, SqlType("ARRAY", of=(STRING,))), names=("a", "b")),)),
}
FLAT = {
    "b": BOOLEAN, "i1": SqlType("TINYINT"), "i2": SqlType("SMALLINT"), "i4": INT, "i8": BIGINT, "f4": SqlType("FLOAT"),
    "f8": DOUBLE, "d": DECIMAL, "s": STRING, "y": BYTES, "day": SqlType("DATE"), "clock": SqlType("TIME", (3,)),
    "ts": TIMESTAMP,
}  # fmt: skip
FORMATS: Mapping[str, Mapping[str, SqlType]] = {
    "json": {**FLAT, "z": INSTANT, **NESTED},
    "csv": {**FLAT, "z": INSTANT},
    "avro": {**FLAT, **NESTED},
}

moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(
    lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=30)


def values_of(kind: SqlType, blank: bool = True) -> st.SearchStrategy[Any]:
    whole = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
    if kind.root in whole:
        top = 1 << whole[kind.root]
        made: st.SearchStrategy[Any] = st.integers(-top, top - 1)
    elif kind.root == "ROW":
        made = st.fixed_dictionaries({n: values_of(of) for n, of in zip(kind.names, kind.of, strict=True)})
    elif kind.root == "ARRAY":
        made = st.lists(values_of(kind.of[0]), max_size=3)
    elif kind.root == "MAP":
        made = st.dictionaries(texts, values_of(kind.of[1]), max_size=3).map(lambda d: list(d.items()))
    else:
        made = {
            "BOOLEAN": st.booleans(), "FLOAT": st.floats(width=32, allow_nan=False),
            "DOUBLE": st.floats(allow_nan=False), "DECIMAL": st.decimals(-(10**16) + 1, 10**16 - 1, places=4),
            "VARCHAR": texts, "VARBINARY": st.binary(max_size=20), "DATE": st.dates(), "TIMESTAMP": moments,
            "TIMESTAMP_LTZ": moments.map(lambda t: t.replace(tzinfo=UTC)),
            "TIME": st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
        }[kind.root]  # fmt: skip
    return st.none() | made


def batches(types: Mapping[str, SqlType]) -> st.SearchStrategy[pa.RecordBatch]:
    def make(rows: list[dict[str, Any]], cut: tuple[int, int]) -> pa.RecordBatch:
        columns = [pa.array([row[name] for row in rows], kind.arrow) for name, kind in types.items()]
        whole = pa.RecordBatch.from_arrays(columns, list(types))
        return whole.slice(min(cut[0], len(rows)), cut[1])

    row = st.fixed_dictionaries({name: values_of(kind) for name, kind in types.items()})
    return st.builds(make, st.lists(row, max_size=5), st.tuples(st.integers(0, 2), st.integers(0, 5)))


@pytest.mark.parametrize(("format", "name"), [(f, n) for f, types in FORMATS.items() for n in types])
@given(data=st.data())
@examples(40)
def test_each_type_comes_back(format: str, name: str, data: st.DataObject) -> None:
    types = {"k": INT, name: FORMATS[format][name]}
    rows = data.draw(batches(types))
    options = {"csv": {"null_literal": "\\N"}, "avro": {}, "json": {}}[format]
    columns = columns_of(**types)
    records = encoder(columns, format, **options).encode(rows)
    assert records.type == pa.binary()
    assert len(records) == rows.num_rows
    made, places = decoder(columns, format, **options).decode(records, list(types))
    assert places is None
    assert made.schema.types == [kind.arrow for kind in types.values()]
    expected = rows.to_pylist()
    if name == "s":
        expected = [{**row, "s": None if row["s"] == options.get("null_literal") else row["s"]} for row in expected]
    assert made.to_pylist() == expected


@given(rows=batches({**FLAT, **NESTED}), wide=st.booleans())
@examples(20)
def test_columns_that_are_wanted_come_alone(rows: pa.RecordBatch, wide: bool) -> None:
    columns = columns_of(**FLAT, **NESTED)
    records = encoder(columns, "json").encode(rows)
    wanted = ["d", "ts", "r"] if wide else ["i4"]
    made, _ = decoder(columns, "json").decode(records, wanted)
    assert (
        made.select(wanted).to_pylist()
        == rows.select([n for n in rows.schema.names if n in wanted]).select(wanted).to_pylist()
    )


@pytest.mark.parametrize("format", ["debezium-json", "canal-json", "maxwell-json"])
@given(
    rows=batches({"k": INT, "d": DECIMAL, "r": ROW, "xs": NESTED["xs"]}),
    kinds=st.lists(st.sampled_from(["+I", "-U", "+U", "-D"]), min_size=5),
)
@examples(40)
def test_changes_come_back_as_insertions_and_deletions(format: str, rows: pa.RecordBatch, kinds: list[str]) -> None:
    columns = columns_of(k=INT, d=DECIMAL, r=ROW, xs=NESTED["xs"])
    given_kinds = kinds[: rows.num_rows]
    changes = rows.append_column(ROW_KIND, pa.array(given_kinds, pa.string()))
    made, _ = decoder(columns, format).decode(encoder(columns, format).encode(changes), rows.schema.names)
    shown = {"+I": "+I", "+U": "+I", "-U": "-D", "-D": "-D"}
    expected = [{**row, ROW_KIND: shown[kind]} for row, kind in zip(rows.to_pylist(), given_kinds, strict=True)]
    assert made.to_pylist() == expected


def test_an_empty_batch_has_the_columns() -> None:
    for format, types in FORMATS.items():
        columns = columns_of(**types)
        nothing = pa.RecordBatch.from_arrays([pa.array([], kind.arrow) for kind in types.values()], list(types))
        records = encoder(columns, format).encode(nothing)
        assert len(records) == 0
        made, _ = decoder(columns, format).decode(records, list(types))
        assert made.schema.types == nothing.schema.types


def test_decimals_keep_all_digits() -> None:
    wide = SqlType("DECIMAL", (38, 10))
    value = Decimal("1234567890123456789012345678.0123456789")
    rows = pa.RecordBatch.from_arrays([pa.array([value, -value], wide.arrow)], ["d"])
    for format in FORMATS:
        columns = columns_of(d=wide)
        made, _ = decoder(columns, format).decode(encoder(columns, format).encode(rows), ["d"])
        assert made["d"].to_pylist() == [value, -value]


def test_dates_before_1970() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([date(1, 1, 1), date(1969, 12, 31)])], ["d"])
    for format in FORMATS:
        columns = columns_of(d=SqlType("DATE"))
        made, _ = decoder(columns, format).decode(encoder(columns, format).encode(rows), ["d"])
        assert made.to_pylist() == rows.to_pylist()
