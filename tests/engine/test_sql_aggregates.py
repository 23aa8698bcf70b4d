"""SQL aggregates read without Spark: Spark gives their results the same names and types."""

from __future__ import annotations

from typing import Any

import pytest

from poundlock.formats import ddl
from poundlock.plan.sql_text import parse_aggregates, result_type

pytestmark = pytest.mark.engine

_COLUMNS = {
    "ti": "tinyint", "si": "smallint", "i": "int", "l": "bigint", "f": "float", "d": "double", "s": "string", "b": "boolean",
    "bin": "binary", "day": "date", "t": "timestamp", "tn": "timestamp_ntz", "d1": "decimal(1,0)", "d2": "decimal(12,3)",
    "d3": "decimal(30,20)", "d4": "decimal(38,0)", "d5": "decimal(38,38)", "arr": "array<int>", "st": "struct<x:int,y:string>",
    "`a b`": "int", "m": "map<string,int>",
}  # fmt: skip
_NUMBERS = ("ti", "si", "i", "l", "f", "d", "d1", "d2", "d3", "d4", "d5", "`a b`")


def _texts() -> list[str]:
    texts = ["count(*)", "count(1)", "COUNT('x')", "count(true)", "count(2.5)", "count(st.x)", "Sum(I)", "MEAN(d)"]
    for column in _COLUMNS:
        texts += [
            f"{call}({column})"
            for call in ("count", "first", "last", "collect_list", "array_agg", "first_value", "last_value")
        ]
        texts += [f"first({column}, true)", f"last({column}) IGNORE NULLS", f"first({column} IGNORE NULLS)"]
        if column != "m":
            texts += [f"{call}({column})" for call in ("min", "max")] + [f"count(DISTINCT {column})"]
    return texts + [f"{call}({column})" for column in _NUMBERS for call in ("sum", "avg", "mean")]


def test_names_and_types_are_sparks(jvm: Any) -> None:
    from pyspark.sql import functions as F

    columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    frame = jvm.createDataFrame([], columns)
    schema = ddl.parse(columns)
    by_name = {name.lower(): schema.field(name).type for name in schema.names} | {"st.x": ddl.parse_type("int")}
    wrong = []
    for text in _texts():
        parsed = parse_aggregates([text], "w")
        argument = parsed.arguments[0].strip("`").lower() if parsed.arguments else None
        ours = (
            parsed.names[0],
            result_type(parsed.aggregates[0], None if argument is None else by_name[argument], "w"),
        )
        (field,) = frame.agg(F.expr(text)).schema.fields
        sparks = (field.name, ddl.parse_type(field.dataType.simpleString()))
        if ours != sparks:
            wrong.append((text, ours, sparks))
    assert wrong == []
