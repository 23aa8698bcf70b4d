"""Changes in JSON: kinds of change and their records, rows before updates, and what is no change."""

from __future__ import annotations

from typing import Any

import pytest

from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.errors import OptionError
from poundlock.sql.functions.function import EvaluationError
from poundlock.sql.types import STRING, SqlType
from support.table_formats import binary, columns_of, decoder, encoder

COLUMNS = columns_of(id=SqlType("INT"), name=STRING)
NAMES = ["id", "name"]


def changes(format: str, *records: str | None, **options: str) -> tuple[list[tuple[Any, ...]], list[int]]:
    given = binary([None if each is None else each.encode() for each in records])
    rows, places = decoder(COLUMNS, format, **options).decode(given, NAMES)
    assert rows.schema.names == [*NAMES, ROW_KIND]
    return [(r[ROW_KIND], r["id"], r["name"]) for r in rows.to_pylist()], places.tolist()  # type: ignore[union-attr]


CREATED = '{"before":null,"after":{"id":1,"name":"a"},"op":"c","source":{"x":[1]}}'
UPDATED = '{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"b"},"op":"u"}'
DELETED = '{"before":{"id":1,"name":"b"},"after":null,"op":"d"}'


def test_debezium() -> None:
    rows, places = changes("debezium-json", CREATED, None, UPDATED, "", DELETED, CREATED.replace('"c"', '"r"'))
    assert rows == [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b"), ("+I", 1, "a")]
    assert places == [0, 2, 2, 4, 5]


def test_debezium_beside_its_schema() -> None:
    rows, places = changes("debezium-json", f'{{"schema":{{}},"payload":{UPDATED}}}', schema_include="true")
    assert rows == [("-U", 1, "a"), ("+U", 1, "b")]
    assert places == [0, 0]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ('{"before":null,"after":{"id":1},"op":"u"}', "REPLICA IDENTITY FULL"),
        ('{"before":null,"after":null,"op":"c"}', "the row of a change 'c' is missing"),
        ('{"before":null,"after":null,"op":"d"}', "the row of a change 'd' is missing"),
        ('{"before":null,"after":null,"op":"x"}', "there is no change 'x'"),
        ('{"id":1}', "there is no change None"),
        ('{"before":', "truncated"),
    ],
)
def test_what_is_no_change(record: str, why: str) -> None:
    with pytest.raises(EvaluationError, match=why) as caught:
        changes("debezium-json", CREATED, record)
    assert caught.value.kind == "bad_record"
    assert "debezium-json.ignore-parse-errors" in caught.value.next
    assert repr(record.encode())[:30] in caught.value.what
    rows, places = changes("debezium-json", record, CREATED, ignore_parse_errors="true")
    assert (rows, places) == ([("+I", 1, "a")], [1])


def test_canal() -> None:
    rows, places = changes(
        "canal-json",
        '{"data":[{"id":1,"name":"a"},{"id":"2","name":null}],"type":"INSERT","old":null}',
        '{"data":null,"type":"CREATE"}',
        '{"data":[{"id":1,"name":"b"},{"id":2,"name":"c"}],"old":[{"name":"a"},{"name":null}],"type":"UPDATE"}',
        '{"data":[{"id":1,"name":"b"}],"type":"DELETE"}',
    )
    assert rows == [
        ("+I", 1, "a"), ("+I", 2, None), ("-U", 1, "a"), ("+U", 1, "b"), ("-U", 2, None), ("+U", 2, "c"), ("-D", 1, "b"),
    ]  # fmt: skip
    assert places == [0, 0, 2, 2, 2, 2, 3]
    with pytest.raises(EvaluationError, match="before the change is missing"):
        changes("canal-json", '{"data":[{"id":1}],"type":"UPDATE"}')


def test_canal_of_some_tables() -> None:
    records = [
        f'{{"data":[{{"id":{n}}}],"type":"{kind}","database":"{base}","table":"{table}"}}'
        for n, (base, table, kind) in enumerate(
            [("a", "t1", "INSERT"), ("b", "t1", "INSERT"), ("a", "x", "no change"), ("a", "t22", "INSERT")]
        )
    ]
    rows, places = changes("canal-json", *records, database__include="a", table__include="t[0-9]+")
    assert rows == [("+I", 0, None), ("+I", 3, None)]
    assert places == [0, 3]
    with pytest.raises(OptionError) as caught:
        decoder(COLUMNS, "canal-json", table__include="(")
    assert caught.value.kind == "bad_option_value"


def test_maxwell() -> None:
    rows, places = changes(
        "maxwell-json",
        '{"data":{"id":1,"name":"a"},"type":"insert","ts":1}',
        '{"data":{"id":1,"name":"b"},"old":{"name":"a"},"type":"update"}',
        '{"data":{"id":1,"name":"c"},"old":{"name":null},"type":"update"}',
        '{"data":{"id":1,"name":"c"},"type":"delete"}',
    )
    assert rows == [
        ("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-U", 1, None), ("+U", 1, "c"), ("-D", 1, "c"),
    ]  # fmt: skip
    assert places == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("format", "comes", "goes"),
    [
        ("debezium-json", '{"before":null,"after":ROW,"op":"c"}', '{"before":ROW,"after":null,"op":"d"}'),
        ("canal-json", '{"data":[ROW],"type":"INSERT"}', '{"data":[ROW],"type":"DELETE"}'),
        ("maxwell-json", '{"data":ROW,"type":"insert"}', '{"data":ROW,"type":"delete"}'),
    ],
)
def test_writing(format: str, comes: str, goes: str) -> None:
    rows, _ = decoder(COLUMNS, "debezium-json").decode(binary([UPDATED.encode(), DELETED.encode()]), NAMES)
    made = [each.decode() for each in encoder(COLUMNS, format).encode(rows).to_pylist()]
    row = '{"id":1,"name":"%s"}'
    assert made == [goes.replace("ROW", row % "a"), comes.replace("ROW", row % "b"), goes.replace("ROW", row % "b")]
    appended = encoder(COLUMNS, format).encode(rows.drop_columns([ROW_KIND]))
    assert appended[0].as_py().decode() == comes.replace("ROW", row % "a")


def test_one_column_alone_and_none() -> None:
    reader = decoder(COLUMNS, "debezium-json")
    assert reader.is_updating
    rows, _ = reader.decode(binary([UPDATED.encode()]), ["name"])
    assert rows.to_pylist() == [{"name": "a", ROW_KIND: "-U"}, {"name": "b", ROW_KIND: "+U"}]
    assert reader.decode(binary([UPDATED.encode()]), [])[0].num_rows == 2
    assert reader.decode(binary([]), NAMES)[0].num_rows == 0


def test_changes_are_not_written_with_a_schema() -> None:
    with pytest.raises(OptionError, match="without a schema"):
        encoder(COLUMNS, "debezium-json", schema_include="true")
