"""Formats give what Flink gave: the lines of recorded cases as rows, and rows as recorded lines."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.formats.format import FormatContext
from poundlock.sql.formats.registry import decoder_of
from poundlock.sql.functions.function import EvaluationError
from poundlock.sql.types import STRING, SqlType
from support.table_formats import CASES, binary, columns_of, definition_of, encoder, lines_of, physical, plain

from zoneinfo import ZoneInfo  # isort: skip

PLAIN = [
    "format.csv", "format.json_ignore_errors", "format.csv_options", "format.json_ignore_fields", "changelog.debezium",
]  # fmt: skip
"""Cases whose query is the table as it is."""


def read(case: dict[str, Any]) -> pa.RecordBatch:
    (table,) = case["tables"]
    definition = definition_of(table["ddl"])
    options = TableOptions(table["name"], definition.options)
    options.required("connector")
    options.required("path")
    columns = physical(definition)
    decoder = decoder_of(options, FormatContext(table["name"], columns, ZoneInfo("UTC")))
    options.finish("filesystem")
    return decoder.decode(binary(lines_of(table)), [each.column for each in columns])[0]


def table_of_changes(rows: list[dict[str, Any]]) -> list[list[Any]]:
    made: list[list[Any]] = []
    for row in rows:
        kind = row.pop(ROW_KIND, "+I")
        values = [plain(each) for each in row.values()]
        if kind in ("+I", "+U"):
            made.append(values)
        else:
            made.remove(values)
    return made


def in_order(rows: list[list[Any]]) -> list[list[Any]]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize("name", PLAIN)
def test_rows_of_a_case(name: str) -> None:
    case = CASES[name]
    assert in_order(table_of_changes(read(case).to_pylist())) == in_order(case["expected"]["rows"])


def test_lines_of_text() -> None:
    case = CASES["format.raw_lines"]
    assert in_order([[line, len(line)] for line in read(case)["line"].to_pylist()]) == in_order(
        case["expected"]["rows"]
    )


def test_times_in_iso_8601() -> None:
    case = CASES["format.json_iso8601"]
    rows = [[plain(each) for each in row.values()] for row in read(case).to_pylist()]
    assert rows == [row[:3] for row in case["expected"]["rows"]]


def test_nested_json() -> None:
    case = CASES["format.json_nested"]
    rows = []
    for row in read(case).to_pylist():
        person, attributes = row["p"] or {}, row["attrs"]
        address = person.get("adr") or {}
        known = None if attributes is None else dict(attributes)
        rows.append(
            [
                row["id"],
                person.get("name"),
                address.get("city"),
                address.get("zip"),
                row["tags"],
                None if known is None else known.get("w"),
                None if known is None else len(known),
            ]
        )
    assert rows == case["expected"]["rows"]


@pytest.mark.parametrize("name", ["error.bad_json", "error.csv_bad_number"])
def test_records_that_cannot_be_read_fail(name: str) -> None:
    (table,) = CASES[name]["tables"]
    with pytest.raises(EvaluationError) as caught:
        read(CASES[name])
    assert caught.value.kind == CASES[name]["expected"]["class"]
    beginning = repr(lines_of(table)[1])
    assert f"{table['name']}: a record cannot be read: {beginning}" in caught.value.what
    assert f"{table['format']}.ignore-parse-errors" in caught.value.next


def test_csv_lines() -> None:
    columns = columns_of(
        id=SqlType("INT"),
        customer=STRING,
        amount=SqlType("DECIMAL", (10, 2)),
        ts=SqlType("TIMESTAMP", (3,)),
        note=STRING,
    )
    orders = [
        (row["id"], row["customer"], row["amount"], row["ts"], f'{row["product"]}, "{row["qty"]}"')
        for row in map(json.loads, lines_of(CASES["sink.csv"]["tables"][0]))
        if row["id"] < 8
    ]
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([each[0] for each in orders], pa.int32()),
            pa.array([each[1] for each in orders]),
            pa.array([None if each[2] is None else Decimal(str(each[2])) for each in orders], pa.decimal128(10, 2)),
            pa.array([datetime.fromisoformat(each[3]) for each in orders], pa.timestamp("us")),
            pa.array([each[4] for each in orders]),
        ],
        [each.column for each in columns],
    )
    lines = [line.decode() for line in encoder(columns, "csv").encode(rows).to_pylist()]
    assert in_order([[line] for line in lines]) == in_order(CASES["sink.csv"]["expected"]["rows"])


def test_json_lines_without_nulls() -> None:
    columns = columns_of(id=SqlType("INT"), customer=STRING, amount=SqlType("DECIMAL", (20, 10)))
    amount = Decimal("0.0000025000")
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([1, 4, 5], pa.int32()),
            pa.array(["ann", None, "cid"]),
            pa.array([amount, amount, None], pa.decimal128(20, 10)),
        ],
        [each.column for each in columns],
    )
    options = {"encode__ignore_null_fields": "true", "encode__decimal_as_plain_number": "true"}
    lines = [line.decode() for line in encoder(columns, "json", **options).encode(rows).to_pylist()]
    assert [[line] for line in lines] == CASES["sink.json_null_fields"]["expected"]["rows"]
