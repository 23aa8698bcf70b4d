"""Expressions of single values have the results that columns have."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.formats.convert import column_values
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.functions.function import EvaluationError
from poundlock.sql.lowering.single_values import Value, single_value
from poundlock.stream.matching import MatchedRows
from support.examples import examples
from support.sql_expressions import kind, tree

CONTEXT = EvaluationContext(UTC)
COLUMNS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "i": ("INT", st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-3, 3)),
    "j": ("INT", st.integers(-3, 3)),
    "l": ("BIGINT", st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3)),
    "t": ("TINYINT", st.integers(-128, 127)),
    "d": ("DOUBLE", st.floats(width=64) | st.sampled_from([0.0, -0.0, 1.5])),
    "f": ("FLOAT", st.floats(width=32)),
    "n": ("DECIMAL(10, 2)", st.decimals(-99, 99, places=2)),
    "s": ("STRING", st.text(max_size=3)),
    "c": ("CHAR(2)", st.text("ab ", min_size=2, max_size=2)),
    "b": ("BOOLEAN", st.booleans()),
    "x": ("BOOLEAN", st.booleans()),
    "ts": ("TIMESTAMP(3)", st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1)).map(lambda t: t.replace(microsecond=0))),
    "z": ("TIMESTAMP_LTZ(3)", st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))),
    "dt": ("DATE", st.dates(date(2000, 1, 1), date(2030, 1, 1))),
}  # fmt: skip
TEXTS = [
    "i < j", "i = l", "t >= i", "i + j", "i - l", "t * t", "l * l", "i + 1 > j * 2", "j / 2", "NULLIF(j, 0) % 2",
    "d < 1.5", "d + i > j", "d * d", "d - j", "f < d", "f = 1", "n > j", "n = 1.50", "n + n", "n * 2 > i",
    "s = 'ab'", "s < c", "c <> 'ab'", "s || c", "UPPER(s) = 'AB'", "s LIKE 'a%'", "b AND x", "b OR x", "NOT b",
    "b = x", "b IS NULL OR x", "s IS NOT NULL AND i > 0", "i IN (1, 2)", "i BETWEEN j AND 3",
    "CASE WHEN b THEN i ELSE l END", "COALESCE(i, j, 0)", "ts < TIMESTAMP '2020-01-01 00:00:00'",
    "ts + INTERVAL '1' DAY > ts", "ts - INTERVAL '1' HOUR", "z > z - INTERVAL '1' SECOND",
    "TIMESTAMPDIFF(SECOND, ts, ts)", "dt = DATE '2010-01-01'", "CAST(i AS BIGINT) * 3", "CAST(j AS DOUBLE)",
    "CAST(l AS INT)", "-i", "ABS(j) > 1", "NULL > i", "1 < 2", "i IS DISTINCT FROM j", "b IS TRUE",
]  # fmt: skip
rows = st.lists(st.tuples(*(st.none() | values for _, values in COLUMNS.values())), min_size=1, max_size=5)


def one(place: int) -> Value:
    def value(matched: MatchedRows) -> Any:
        assert matched.row is not None
        return matched.row[place]

    return value


GETTERS = {name: one(place) for place, name in enumerate(COLUMNS)}


@examples(200)
@given(st.sampled_from(TEXTS), rows)
def test_values_are_those_of_columns(text: str, some: list[tuple[Any, ...]]) -> None:
    types = {name: of for name, (of, _) in COLUMNS.items()}
    expression = tree(text, types)
    columns = [
        pa.array(column, kind(of).arrow) for of, column in zip(types.values(), zip(*some, strict=True), strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=list(types))
    wanted = column_values(evaluate(expression, batch, CONTEXT))
    python = zip(*map(column_values, batch.columns), strict=True)
    value = single_value(expression, GETTERS, CONTEXT)
    got = [value(MatchedRows([], 0, (0,), row)) for row in python]
    assert [*map(repr, got)] == [*map(repr, wanted)]


def test_a_decimal_keeps_its_digits() -> None:
    expression = tree("n > 1.10", {"n": "DECIMAL(10, 2)"})
    value = single_value(expression, {"n": one(0)}, CONTEXT)
    assert [value(MatchedRows([], 0, (0,), (Decimal(text),))) for text in ("1.10", "1.11")] == [False, True]


def test_what_fails_is_computed_where_it_is_asked_for_alone() -> None:
    expression = tree("j = 0 OR 10 / j > 3", {"j": "INT"})
    value = single_value(expression, {"j": one(0)}, CONTEXT)
    assert [value(MatchedRows([], 0, (0,), (j,))) for j in (0, 2, 5, None)] == [True, True, False, None]
    fails = single_value(tree("10 / j > 3", {"j": "INT"}), {"j": one(0)}, CONTEXT)
    with pytest.raises(EvaluationError, match="division by zero"):
        fails(MatchedRows([], 0, (0,), (0,)))
