"""CREATE TABLE statements as definitions, and what is refused of them before anything else is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

from poundlock.sql.errors import Place, SqlError
from poundlock.sql.script import ParsedStatement, statements_of
from poundlock.sql.tables import (
    ComputedColumn,
    ConnectorColumn,
    LikeClause,
    PhysicalColumn,
    TableDefinition,
    table_of,
)
from poundlock.sql.types import STRING, SqlType

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "conformance/data/sql.json").read_text())["cases"]
# What the definition alone tells; the other errors of the cases need connectors, formats or expressions.
REFUSED_HERE = {"error.duplicate_column", "error.primary_key_enforced", "error.partition_unknown"}


def created(script: str) -> list[TableDefinition]:
    return [
        table_of(each.expression, script)
        for each in statements_of(script)
        if isinstance(each, ParsedStatement)
        and isinstance(each.expression, exp.Create)
        and each.expression.kind == "TABLE"
    ]


@pytest.mark.parametrize(
    "case",
    [each for each in CASES if each["id"] not in ("error.syntax", "error.argument_count", "error.reserved_word")],
    ids=lambda case: str(case["id"]),
)
def test_every_recorded_table_is_understood_or_refused(case: dict[str, Any]) -> None:
    script = ";\n".join([*(table["ddl"] for table in case.get("tables", ())), case["script"]])
    if case["id"] in REFUSED_HERE:
        with pytest.raises(SqlError):
            created(script)
        return
    tables = created(script)
    assert len(tables) >= len(case.get("tables", ()))
    for given, made in zip(case.get("tables", ()), tables, strict=False):
        assert made.name == (given["name"],)
        assert made.options["path"] == f"${{path:{given['name']}}}"


def test_all_parts_of_a_table() -> None:
    (made,) = created(
        """CREATE TEMPORARY TABLE IF NOT EXISTS c.d.t (
            id INT COMMENT 'who', `b c` STRING NOT NULL, ms BIGINT METADATA FROM 'timestamp' VIRTUAL, `offset` BIGINT METADATA,
            ts AS TO_TIMESTAMP_LTZ(ms, 3), PRIMARY KEY (id) NOT ENFORCED, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
        ) COMMENT 'all of it' PARTITIONED BY (id, `b c`) WITH ('connector' = 'print', 'a.b' = 'c')"""
    )
    assert made.name == ("c", "d", "t")
    who, text, ms, offset, ts = made.columns
    assert who == PhysicalColumn("id", SqlType("INT", is_nullable=False), "who")  # a key is never NULL
    assert text == PhysicalColumn("b c", STRING.not_null())
    assert ms == ConnectorColumn("ms", SqlType("BIGINT"), "timestamp", is_virtual=True)
    assert offset == ConnectorColumn("offset", SqlType("BIGINT"), "offset", is_virtual=False)
    assert isinstance(ts, ComputedColumn)
    assert made.watermark is not None
    assert made.watermark.column == ("ts",)
    assert made.watermark.expression.sql() == "ts - INTERVAL '5' SECOND"
    assert (made.primary_key, made.partitioned_by) == (("id",), ("id", "b c"))
    assert (made.comment, made.options) == ("all of it", {"connector": "print", "a.b": "c"})
    assert (made.is_temporary, made.if_not_exists, made.like, made.query) == (True, True, None, None)


def test_tables_like_others_and_out_of_queries() -> None:
    like, out = created(
        "CREATE TABLE a (half AS qty / 2) WITH ('k' = 'v') LIKE x.y (EXCLUDING ALL INCLUDING GENERATED);"
        "CREATE TABLE b WITH ('connector' = 'print') AS SELECT 1 AS n"
    )
    assert like.like == LikeClause(("x", "y"), (("EXCLUDING", "ALL"), ("INCLUDING", "GENERATED")))
    assert out.query is not None
    assert out.query.sql() == "SELECT 1 AS n"


@pytest.mark.parametrize(
    ("script", "place", "says", "next"),
    [
        ("CREATE TABLE t (id INT, id STRING)", (1, 25), "the column id is there twice", "another name"),
        ("CREATE TABLE t (\n  id INT,\n  x FOO)", (3, 3), "x: there is no type FOO", "STRING"),
        ("CREATE TABLE t (id INT PRIMARY KEY)", (1, 17), "a primary key is not enforced", "NOT ENFORCED"),
        ("CREATE TABLE t (id INT, PRIMARY KEY (idd) NOT ENFORCED)", (1, 38), "there is no column idd", "did you mean id?"),
        (
            "CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, n INT, PRIMARY KEY (n) NOT ENFORCED)",
            (1, 70), "a table has one primary key", "in one PRIMARY KEY",
        ),
        ("CREATE TABLE t (n INT) PARTITIONED BY (day_)", (1, 40), "there is no column day_", "use one of n"),
        ("CREATE TABLE t (n INT UNIQUE)", (1, 17), "is no part of a column", "leave it out"),
        ("CREATE TABLE t (n INT, m IN INT)", (1, 24), "is no part of a column", "leave it out"),
        ("CREATE TABLE t (n)", (1, 17), "has neither a type nor an expression", "name TYPE"),
        ("CREATE TABLE t (n INT) ENGINE=InnoDB", None, "is no clause of CREATE TABLE", "PARTITIONED BY"),
        (
            "CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS a, WATERMARK FOR a AS a)",
            (1, 69), "a table has one watermark", "leave one",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_where_it_stands(
    script: str, place: tuple[int, int] | None, says: str, next: str
) -> None:
    with pytest.raises(SqlError, match=says) as refused:
        created(script)
    assert next in refused.value.next
    assert place is None or refused.value.place == Place(*place)
