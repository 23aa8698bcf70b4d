"""SQL aggregates read without Spark: Spark gives their results the same names and types, and puts nested values in the same order."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poundlock.formats import ddl
from poundlock.formats.convert import python_values
from poundlock.operators.columns.groups import grouped
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.windows.aggregates import SqlAggregates
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


_LISTS = [None, [], [None], [None, 1.0], [-inf], [1.0], [1.0, None], [1.0, -1.0], [nan], [nan, 0.0], [inf, 5.0]]
_STRUCTS = [
    None,
    {"n": None, "texts": ["z"], "in": {"x": 1}},
    {"n": 1, "texts": None, "in": {"x": 1}},
    {"n": 1, "texts": [], "in": {"x": 2}},
    {"n": 1, "texts": ["a", None], "in": None},
    {"n": 1, "texts": ["a", "b"], "in": {"x": None}},
    {"n": 1, "texts": ["a", "b"], "in": {"x": 3}},
    {"n": 2, "texts": ["a"], "in": None},
]
_NESTED = {"l": ("array<double>", _LISTS), "s": ("struct<n:int,texts:array<string>,`in`:struct<x:int>>", _STRUCTS)}


@pytest.mark.parametrize("column", _NESTED)
def test_the_order_of_nested_values_is_sparks(jvm: Any, column: str) -> None:
    """Of each two values, which is the least, which is the greatest, how many there are, and what is behind them."""
    from pyspark.sql import functions as F

    text, values = _NESTED[column]
    kind = ddl.parse_type(text)
    pairs = [
        (f"{i} {j}", place, values[at]) for i in range(len(values)) for j in range(i) for place, at in enumerate((i, j))
    ]
    texts = [
        f"min({column})",
        f"max({column})",
        f"count(DISTINCT {column})",
        f"min_by(at, {column})",
        f"max_by(at, {column})",
    ]
    frame = jvm.createDataFrame(pairs, f"pair string, at int, {column} {text}")
    rows = (
        frame.groupBy("pair").agg(*(F.expr(each).alias(f"r{n}") for n, each in enumerate(texts))).toArrow().to_pylist()
    )
    sparks = {row.pop("pair"): list(row.values()) for row in rows}
    parsed = parse_aggregates(texts, "w")
    assert list(parsed.arguments) == [column, "at"]
    kinds = [kind, kind, pa.int64(), pa.int32(), pa.int32()]
    of, single = ColumnAggregates(tuple(parsed.aggregates), (kind, pa.int32())), SqlAggregates(parsed.aggregates)
    own = [pa.array([value for _, _, value in pairs], kind), pa.array([at for _, at, _ in pairs], pa.int32())]
    groups = grouped(np.repeat(np.arange(len(pairs) // 2, dtype=np.uint64), 2), None)
    results = [python_values(result) for result in of.results(of.partial(own, groups), kinds)]
    for number, (name, *ours) in enumerate(zip([pair for pair, _, _ in pairs[::2]], *results, strict=True)):
        assert repr(ours) == repr(sparks[name])
        singles = single.of([(value, at) for _, at, value in pairs[2 * number : 2 * number + 2]])
        assert repr(list(singles)) == repr(sparks[name])
