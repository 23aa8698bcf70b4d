"""CSV: the ways of cutting agree, options, what is coerced, and what is put in quotes."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.sql.errors import OptionError
from poundlock.sql.formats import csv_records
from poundlock.sql.formats.csv_records import CsvDialect, cut, fields_of
from poundlock.sql.functions.function import EvaluationError
from poundlock.sql.types import STRING, SqlType
from support.examples import examples
from support.table_formats import binary, columns_of, decoder, encoder

INT, DOUBLE, BOOLEAN = SqlType("INT"), SqlType("DOUBLE"), SqlType("BOOLEAN")
TIMESTAMP, DECIMAL = SqlType("TIMESTAMP", (3,)), SqlType("DECIMAL", (10, 2))

DIALECTS = [
    CsvDialect(), CsvDialect(";", "'", "\\"), CsvDialect(quote=""), CsvDialect("\t", '"', "\\", has_comments=True),
    CsvDialect("|", has_comments=True), CsvDialect(trims=True), CsvDialect(";", "'", "\\", trims=True), CsvDialect("\t", trims=True),
    CsvDialect(ends_with_delimiter=False, drops_more=True), CsvDialect(ends_with_delimiter=False), CsvDialect(needs_all=True),
]  # fmt: skip
pieces = st.sampled_from(
    ["a", "bc", "é", ",", ";", '"', '""', "'", "\\", "\t", "|", " ", "#", "", "1", "\r", "x,y", '"q"', "\0", '"a,b",'],
)


@given(
    dialect=st.sampled_from(DIALECTS),
    rows=st.lists(st.lists(pieces, max_size=7).map("".join), min_size=20, max_size=60),
    fields=st.integers(1, 4),
    broken=st.booleans(),
)
@examples(300)
def test_records_are_cut_alike_by_columns_and_alone(
    dialect: CsvDialect, rows: list[str], fields: int, broken: bool
) -> None:
    records = binary([row.encode() + (b"\xff" if broken and place == 7 else b"") for place, row in enumerate(rows)])
    whole = cut(records, fields, dialect)
    rest = [row for row in range(len(rows)) if row in whole.places or row in whole.bad]
    alone = csv_records._one_by_one(records, np.arange(len(rows)), fields, dialect)
    assert whole.places.tolist() == alone.places.tolist()
    assert whole.bad == alone.bad
    assert [each.to_pylist() for each in whole.columns] == [each.to_pylist() for each in alone.columns]
    counts = np.full(len(whole.places), fields) if whole.counts is None else whole.counts
    assert alone.counts is not None
    assert counts.tolist() == alone.counts.tolist()
    assert len(rest) == len(whole.places) + len(whole.bad)


def test_plain_and_quoted_records_are_cut_by_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    alone = csv_records._one_by_one

    def counted(records: pa.Array, *rest: Any) -> Any:
        calls.append(len(records))
        return alone(records, *rest)

    monkeypatch.setattr(csv_records, "_one_by_one", counted)
    rows = [b'1,"a, b",2'] * 40
    assert cut(binary(rows), 3, CsvDialect()).columns[1].to_pylist() == ["a, b"] * 40
    assert calls == []
    cut(binary([*rows, b'1,"a" ,2']), 3, CsvDialect())
    assert calls == [1]


def test_fields_as_jackson_cuts_them() -> None:
    assert fields_of('"a""b" ,c"d', CsvDialect()) == ['a"b', 'c"d']
    assert fields_of("'a\\'b'|\\||\\n", CsvDialect("|", "'", "\\")) == ["a'b", "|", "\n"]
    assert fields_of("", CsvDialect()) == [""]
    assert fields_of('a,"b" \r,c', CsvDialect()) == fields_of("a,b\n,c", CsvDialect()) == ["a", "b"]
    assert fields_of('"a\n",b\n', CsvDialect()) == ["a\n", "b"]
    assert fields_of('a,"', CsvDialect(quote="")) == ["a", '"']
    for record in ('"a', '"a"b', "a\\"):
        with pytest.raises(ValueError, match=r"close|closing|escape"):
            fields_of(record, CsvDialect(escape="\\"))


TRIMMED = [
    (' 1 , b" ', ["1", 'b"']), (' x , "q " ', ["x", "q "]), ("1, ", ["1", ""]), (" , ", ["", ""]), ('1," b "', ["1", " b "]),
    ("\t1\t,\x01b\x01", ["1", "b"]), (" 1,b \r\nz", ["1", "b"]), ('" a" ,b', [" a", "b"]),
]  # fmt: skip
"""What Flink 2.3's Jackson makes of them with TRIM_SPACES."""


@pytest.mark.parametrize(("record", "fields"), TRIMMED)
def test_blanks_around_fields_in_no_quotes(record: str, fields: list[str]) -> None:
    dialect = CsvDialect(trims=True)
    assert fields_of(record, dialect) == fields
    several = cut(binary([record.encode()] * 20), len(fields), dialect)
    assert [column.to_pylist() for column in several.columns] == [[each] * 20 for each in fields]


def test_blanks_that_are_delimiters_or_escaped() -> None:
    assert fields_of("\t a\t", CsvDialect("\t", trims=True)) == ["", "a", ""]
    assert fields_of(" x\t y ", CsvDialect("\t", trims=True)) == ["x", "y"]
    assert fields_of(" a\\ ,\\ b", CsvDialect(escape="\\", trims=True)) == ["a", " b"]


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize(
    ("option", "record", "otherwise", "given"),
    [
        ("trim_spaces", ' 1 , b" ', [1, ' b" '], [1, 'b"']),
        ("ignore_trailing_unmappable", "1,b,3,4", ["error"], [1, "b"]),
        ("empty_string_as_null", "1,", [1, ""], [1, None]),
        ("empty_string_as_null", '1,""', [1, ""], [1, None]),
    ],
)
def test_options_of_reading(option: str, record: str, otherwise: list[Any], given: list[Any], count: int) -> None:
    types = {"a": INT, "b": STRING}
    assert rows_of(types, *[record] * count, **{option: "true"}) == [given] * count
    if otherwise == ["error"]:
        with pytest.raises(EvaluationError):
            rows_of(types, *[record] * count)
    else:
        assert rows_of(types, *[record] * count) == [otherwise] * count


@pytest.mark.parametrize("count", [1, 40])
def test_how_many_fields_a_record_may_have(count: int) -> None:
    types = {"a": INT, "b": STRING}
    assert rows_of(types, *["1,b,"] * count) == [[1, "b"]] * count
    with pytest.raises(EvaluationError, match="it has 3 fields, the table 2"):
        rows_of(types, *["1,b,"] * count, allow_trailing_comma="false")
    assert rows_of(types, "2,c", *["1"] * count, ignore_parse_errors="true") == [[2, "c"], *[[1, None]] * count]
    lenient = {"ignore_parse_errors": "true", "fail_on_missing_columns": "true"}
    assert rows_of(types, "2,c", *["1"] * count, **lenient) == [[2, "c"]]


def rows_of(types: dict[str, SqlType], *records: str, **options: str) -> list[list[Any]]:
    given = [each.encode() for each in records]
    made, _ = decoder(columns_of(**types), "csv", **options).decode(binary(given), list(types))
    return [list(row.values()) for row in made.to_pylist()]


@pytest.mark.parametrize("count", [1, 40])
def test_values_of_texts(count: int) -> None:
    types = {"i": INT, "f": DOUBLE, "b": BOOLEAN, "d": DECIMAL, "t": TIMESTAMP, "day": SqlType("DATE")}
    plain, lax = "1,2.5,true,2.50,2026-01-05 10:00:00.5,2026-01-05", " +7 ,1e3, TRUE ,1E1,2026-1-5 1:2:3,2024-2-30"
    expected = [
        [1, 2.5, True, Decimal("2.50"), datetime(2026, 1, 5, 10, 0, 0, 500_000), date(2026, 1, 5)],
        [7, 1000.0, True, Decimal("10.00"), datetime(2026, 1, 5, 1, 2, 3), date(2024, 3, 1)],
    ]
    assert rows_of(types, *[plain, lax] * count) == expected * count


@pytest.mark.parametrize("record", ["", "1", "1,2,3", "x,2", '"1,2'])
def test_records_that_are_none(record: str) -> None:
    types = {"a": INT, "b": INT}
    with pytest.raises(EvaluationError) as caught:
        rows_of(types, "7,8", record)
    assert caught.value.kind == "bad_record"
    assert repr(record.encode()) in caught.value.what


def test_what_is_left_out_and_what_becomes_null() -> None:
    types = {"a": INT, "b": INT}
    columns = columns_of(**types)
    records = [b"1,x", b"1,2,3", b"5", b"", None, b"#", b"6,7,", b'"', b"\xff,1"]
    made, places = decoder(columns, "csv", ignore_parse_errors="true", allow_comments="true").decode(
        binary(records), ["a", "b"]
    )
    assert [list(row.values()) for row in made.to_pylist()] == [[1, None], [5, None], [None, None], [6, 7]]
    assert places is not None
    assert places.tolist() == [0, 2, 3, 6]


def test_arrays_and_rows() -> None:
    types = {"xs": SqlType("ARRAY", of=(INT,)), "r": SqlType("ROW", of=(INT, STRING), names=("p", "q"))}
    assert rows_of(types, "1;2,3;a", ",", " ,5;") == [
        [[1, 2], {"p": 3, "q": "a"}], [[], None], [[], {"p": 5, "q": ""}],
    ]  # fmt: skip
    for record in ("1;x,3;a", "1,3", "1,3;a;b"):
        with pytest.raises(EvaluationError):
            rows_of(types, record)
    assert rows_of(types, "1;x,3", ignore_parse_errors="true") == [[[1, None], {"p": 3, "q": None}]]


def test_a_column_that_is_not_wanted_is_not_read() -> None:
    made, _ = decoder(columns_of(a=INT, b=INT), "csv").decode(binary([b"x,1"]), ["b"])
    assert made.to_pylist() == [{"b": 1}]


def lines(types: dict[str, SqlType], rows: list[list[Any]], **options: str) -> list[str]:
    columns = [pa.array([row[at] for row in rows], kind.arrow) for at, kind in enumerate(types.values())]
    batch = pa.RecordBatch.from_arrays(columns, list(types))
    return [each.decode() for each in encoder(columns_of(**types), "csv", **options).encode(batch).to_pylist()]


def test_what_is_put_in_quotes() -> None:
    given = ["a", "", None, "a b", "a-b", "a+b", 'a"', "x" * 24, "x" * 25, "\U0001f600" * 13, "é"]
    assert lines({"s": STRING}, [[each] for each in given]) == [
        "a", "", "", '"a b"', "a-b", '"a+b"', '"a"""', "x" * 24, f'"{"x" * 25}"', f'"{chr(0x1F600) * 13}"', "é",
    ]  # fmt: skip


def test_options_of_writing() -> None:
    types = {"s": STRING, "d": DECIMAL, "xs": SqlType("ARRAY", of=(INT,))}
    row = ["a|b\\'", Decimal("100.00"), [1, None, 3]]
    options = {"field_delimiter": "|", "quote_character": "'", "escape_character": "\\", "null_literal": "n/a"}
    assert lines(types, [row, [None, None, None]], **options) == ["'a|b\\\\'''|1E+2|'1;n/a;3'", "n/a|n/a|n/a"]
    assert lines(types, [["a,b", Decimal("100.00"), [1]]], disable_quote_character="true") == ["a,b,1E+2,1"]
    made = lines(
        {"d": DECIMAL}, [[Decimal("100.00")], [Decimal("2.50")]], write_bigdecimal_in_scientific_notation="false"
    )
    assert made == ["100", "2.5"]
    assert lines({"a": INT, "b": INT}, [[1, 2]], field_delimiter="\\t") == ["1\t2"]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"quote_character": "'", "disable_quote_character": "true"}, "bad_option_value"),
        ({"field_delimiter": "ab"}, "bad_option_value"),
        ({"delimiter": ";"}, "unknown_option"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], kind: str) -> None:
    with pytest.raises(OptionError) as caught:
        decoder(columns_of(a=INT), "csv", **options)
    assert caught.value.kind == kind


def test_types_that_csv_has_not() -> None:
    for kind in (
        SqlType("MAP", of=(STRING, INT)),
        SqlType("ARRAY", of=(SqlType("ARRAY", of=(INT,)),)),
        SqlType("TIME", (6,)),
    ):
        with pytest.raises(OptionError, match="CSV has no"):
            decoder(columns_of(a=kind), "csv")
