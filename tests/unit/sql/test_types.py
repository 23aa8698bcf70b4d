"""The types of Flink SQL: as they are declared, as Flink writes them, and in Arrow."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.script import ParsedStatement, statements_of
from poundlock.sql.types import BYTES, STRING, SqlType, type_of

CASES = json.loads((Path(__file__).parents[2] / "conformance/data/sql.json").read_text())["cases"]
WRITTEN = sorted({column["type"] for case in CASES for column in case["expected"].get("columns", ())})


def of(declared: str) -> SqlType:
    (made,) = statements_of(f"CREATE TABLE t (x {declared})")
    assert isinstance(made, ParsedStatement)
    column = made.expression.find(exp.ColumnDef)
    assert column is not None
    assert column.kind is not None
    return type_of(column.kind)


@pytest.mark.parametrize("written", [each for each in WRITTEN if "ROWTIME" not in each])
def test_what_flink_writes_is_read_to_the_same(written: str) -> None:
    assert str(of(written)) == written.replace("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(3)")


@pytest.mark.parametrize(
    ("declared", "written", "arrow"),
    [
        ("INTEGER", "INT", pa.int32()),
        ("DOUBLE PRECISION", "DOUBLE", pa.float64()),
        ("STRING", "STRING", pa.string()),
        ("VARCHAR(2147483647)", "STRING", pa.string()),
        ("CHAR", "CHAR(1)", pa.string()),
        ("BYTES", "BYTES", pa.binary()),
        ("DECIMAL", "DECIMAL(10, 0)", pa.decimal128(10, 0)),
        ("NUMERIC(38)", "DECIMAL(38, 0)", pa.decimal128(38, 0)),
        ("TIME", "TIME(0)", pa.time32("ms")),
        ("TIMESTAMP", "TIMESTAMP(6)", pa.timestamp("us")),
        ("TIMESTAMP(9)", "TIMESTAMP(9)", pa.timestamp("ns")),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(3)", pa.timestamp("us", "UTC")),
        ("INT ARRAY", "ARRAY<INT>", pa.list_(pa.int32())),
        ("ARRAY<INT NOT NULL>", "ARRAY<INT NOT NULL>", pa.list_(pa.field("item", pa.int32(), nullable=False))),
        ("MAP<STRING, BIGINT>", "MAP<STRING, BIGINT>", pa.map_(pa.string(), pa.int64())),
        ("MULTISET<STRING>", "MULTISET<STRING>", pa.map_(pa.string(), pa.int32())),
        (
            "ROW<a INT NOT NULL, `b c` ARRAY<ROW<d DATE>>>",
            "ROW<`a` INT NOT NULL, `b c` ARRAY<ROW<`d` DATE>>>",
            pa.struct(
                [
                    pa.field("a", pa.int32(), nullable=False),
                    pa.field("b c", pa.list_(pa.struct([pa.field("d", pa.date32())]))),
                ]
            ),
        ),
    ],
)
def test_a_type_is_written_as_flink_does_and_has_an_arrow_type(declared: str, written: str, arrow: pa.DataType) -> None:
    made = of(declared)
    assert str(made) == written
    assert made.arrow == arrow
    assert of(written) == made


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ("FOO", "there is no type FOO"),
        ("JSON", "there is no type JSON"),
        ("TIMESTAMP(3) WITH TIME ZONE", "there is no type"),
        ("CHAR(0)", "CHAR with a size that is not 1 to 2147483647"),
        ("DECIMAL(39, 2)", "DECIMAL with a size that is not 1 to 38"),
        ("DECIMAL(5, 6)", "whose scale is above its precision"),
        ("TIMESTAMP(10)", "TIMESTAMP with a size that is not 0 to 9"),
        ("VARCHAR(1, 2)", "VARCHAR with 2 sizes"),
        ("ARRAY<FOO>", "there is no type FOO"),
    ],
)
def test_what_is_no_type_is_refused(declared: str, says: str) -> None:
    with pytest.raises(DefinitionError, match=says.replace("(", "[(]").replace(")", "[)]")) as refused:
        of(declared)
    assert refused.value.next


def test_names_for_the_longest() -> None:
    assert (str(STRING), str(BYTES), str(STRING.not_null())) == ("STRING", "BYTES", "STRING")
