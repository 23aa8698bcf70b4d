"""CAST between all types: there and back, the texts of values, what is cut, wrapped, padded or NULL."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.sql.coercion import can_cast, common_type
from poundlock.sql.errors import SqlError
from poundlock.sql.functions.function import EvaluationError
from support.sql_expressions import kind, tree, value, values

REALS = st.floats(allow_nan=False, allow_infinity=False)
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59))
THERE_AND_BACK: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("BIGINT", st.integers(-(1 << 63), (1 << 63) - 1)),
    ("INT", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("DOUBLE", REALS),
    ("FLOAT", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    ("BOOLEAN", st.booleans()),
    ("DECIMAL(38, 10)", st.decimals(-(10**20), 10**20, places=10)),
    ("DATE", st.dates()),
    ("TIMESTAMP(6)", MOMENTS),
    ("TIMESTAMP(3)", MOMENTS.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))),
    ("TIME(3)", st.times().map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000, fold=0))),
]


@pytest.mark.parametrize(("declared", "drawn"), THERE_AND_BACK, ids=[each for each, _ in THERE_AND_BACK])
@given(data=st.data())
def test_a_text_is_the_value_again(declared: str, drawn: st.SearchStrategy[Any], data: st.DataObject) -> None:
    column = data.draw(st.lists(drawn | st.none(), min_size=1, max_size=4))
    columns: dict[str, tuple[str, list[Any]]] = {"x": (declared, column)}
    assert values(f"CAST(CAST(x AS STRING) AS {declared})", columns) == column
    if declared not in ("BOOLEAN", "TIMESTAMP(6)", "TIMESTAMP(3)"):
        assert values(f"CAST('  ' || CAST(x AS STRING) || ' ' AS {declared})", columns) == column


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("CAST(1.0E7 AS STRING)", "1.0E7"), ("CAST(1234567.0E0 AS STRING)", "1234567.0"), ("CAST(1E-4 AS STRING)", "1.0E-4"),
        ("CAST(0.001E0 AS STRING)", "0.001"), ("CAST(-1.5E300 AS STRING)", "-1.5E300"), ("CAST(CAST(0.1 AS FLOAT) AS STRING)", "0.1"),
        ("CAST(CAST('NaN' AS DOUBLE) AS STRING)", "NaN"), ("CAST(CAST('-Infinity' AS DOUBLE) AS STRING)", "-Infinity"),
        ("CAST(0.00000001 AS STRING)", "0.00000001"), ("CAST(-0.50 AS STRING)", "-0.50"), ("CAST(TRUE AS STRING)", "TRUE"),
        ("CAST(TIMESTAMP '2024-01-01 10:00:00' AS STRING)", "2024-01-01 10:00:00"),
        ("CAST(CAST(TIMESTAMP '2024-01-01 10:00:00.5' AS TIMESTAMP(6)) AS STRING)", "2024-01-01 10:00:00.500000"),
        ("CAST(TIME '10:00:00.25' AS STRING)", "10:00:00.25"), ("CAST(DATE '0001-02-03' AS STRING)", "0001-02-03"),
        ("CAST(INTERVAL '14' MONTH AS STRING)", "+1-02"), ("CAST(INTERVAL -'90' SECOND AS STRING)", "-0 00:01:30.000"),
        ("CAST(ARRAY[1, CAST(NULL AS INT)] AS STRING)", "[1, NULL]"), ("CAST(ROW(1, 'x') AS STRING)", "(1, x)"),
        ("CAST(MAP['k', 1] AS STRING)", "{k=1}"), ("CAST(12345 AS VARCHAR(3))", "123"), ("CAST(1 AS CHAR(3))", "1  "),
        ("CAST('abc' AS BINARY(5))", b"abc\0\0"), ("CAST('abc' AS VARBINARY(2))", b"ab"), ("CAST(X'C3A4' AS STRING)", "ä"),
        ("CAST(300 AS TINYINT)", 44), ("CAST(-1 AS SMALLINT)", -1), ("CAST(9.99E9 AS INT)", 2147483647), ("CAST(-9E99 AS BIGINT)", -(1 << 63)),
        ("CAST(CAST('NaN' AS DOUBLE) AS INT)", 0), ("CAST(-2.9 AS BIGINT)", -2), ("CAST(1 AS DECIMAL(3, 2))", Decimal("1.00")),
        ("CAST(0.125E0 AS DECIMAL(3, 2))", Decimal("0.13")), ("CAST(TRUE AS DECIMAL(3, 1))", Decimal("1.0")), ("CAST(1 AS DOUBLE)", 1.0),
        ("CAST(100 AS DECIMAL(2, 0))", None), ("CAST(99.95 AS DECIMAL(3, 1))", None), ("CAST(0 AS BOOLEAN)", False),
        ("TRY_CAST('1.5x' AS DOUBLE)", None), ("TRY_CAST('1.5f' AS DOUBLE)", 1.5), ("TRY_CAST('inf' AS DOUBLE)", None),
        ("TRY_CAST('yes' AS BOOLEAN)", True), ("TRY_CAST('N' AS BOOLEAN)", False), ("TRY_CAST('1e3' AS DECIMAL(6, 1))", Decimal("1000.0")),
        ("TRY_CAST('2024-02' AS DATE)", date(2024, 2, 1)), ("TRY_CAST('2024-02-30' AS DATE)", None), ("TRY_CAST('-' AS INT)", None),
        ("TRY_CAST('300' AS TINYINT)", None), ("TRY_CAST('-9223372036854775808' AS BIGINT)", -(1 << 63)), ("TRY_CAST('' AS DATE)", None),
        ("CAST('7:8:9.1239' AS TIME(3))", time(7, 8, 9, 124000)), ("CAST('10' AS TIME)", time(10)), ("TRY_CAST('a' AS TIME)", None),
        ("CAST('2024-1-2 3:4:5.6789' AS TIMESTAMP(3))", datetime(2024, 1, 2, 3, 4, 5, 678000)),
        ("CAST(TIMESTAMP '2024-01-02 03:04:05.678' AS TIMESTAMP(0))", datetime(2024, 1, 2, 3, 4, 5)),
        ("CAST(TIMESTAMP '1969-12-31 23:59:59.5' AS TIME(3))", time(23, 59, 59, 500000)), ("CAST(TIME '03:04:05' AS TIMESTAMP(3))", datetime(1970, 1, 1, 3, 4, 5)),
        ("CAST(ARRAY['1', '2'] AS ARRAY<INT>)", [1, 2]), ("CAST(ROW('1', 2) AS ROW<a INT, b STRING>)", {"a": 1, "b": "2"}),
        ("CAST(CAST('a' AS CHAR(3)) AS VARCHAR(5))", "a  "), ("CAST(CAST('a' AS CHAR(3)) AS CHAR(5))", "a    "),
    ],
)  # fmt: skip
def test_values_of_casts(expression: str, result: Any) -> None:
    assert value(expression) == result


@pytest.mark.parametrize(
    ("expression", "next_"),
    [
        ("CAST('x' AS INT)", "TRY_CAST"),
        ("CAST('' AS DATE)", "TRY_CAST"),
        ("CAST('123' AS DECIMAL(2, 0))", "TRY_CAST"),
        ("'a' > 1", "TRY_CAST"),
    ],
)
def test_a_text_that_is_none_fails(expression: str, next_: str) -> None:
    with pytest.raises(EvaluationError) as failed:
        value(expression)
    assert failed.value.kind == "cast_failed"
    assert next_ in failed.value.next


@pytest.mark.parametrize(
    "zone", [UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("Asia/Kolkata")]
)
def test_instants_are_local_times_of_the_zone(zone: Any) -> None:
    locals_ = [
        datetime(2024, 3, 31, 2, 30),
        datetime(2024, 10, 27, 2, 30),
        datetime(2024, 11, 3, 1, 30),
        datetime(1950, 1, 1),
        None,
    ]
    made = values("CAST(x AS TIMESTAMP_LTZ(3))", {"x": ("TIMESTAMP(3)", locals_)}, zone=zone)
    expected = [None if at is None else at.replace(tzinfo=zone, fold=0).astimezone(UTC) for at in locals_]
    assert made == expected
    texts = values("CAST(x AS STRING)", {"x": ("TIMESTAMP_LTZ(3)", made)}, zone=zone)
    assert texts == [None if at is None else f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S}.000" for at in expected]
    assert (
        values("CAST(CAST(x AS STRING) AS TIMESTAMP_LTZ(3))", {"x": ("TIMESTAMP_LTZ(3)", expected[:1])}, zone=zone)
        == expected[:1]
    )
    assert values("CAST(x AS DATE)", {"x": ("TIMESTAMP_LTZ(3)", expected)}, zone=zone) == [
        None if at is None else at.astimezone(zone).date() for at in expected
    ]


TYPES = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(38, 18)", "CHAR(3)", "VARCHAR(3)",
    "STRING", "BINARY(2)", "BYTES", "DATE", "TIME(0)", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)",
    "ARRAY<INT>", "ARRAY<STRING>", "MAP<STRING, INT>", "ROW<a INT>", "ROW<b STRING>",
]  # fmt: skip
ONES: dict[str, Any] = {
    "BOOLEAN": True, "FLOAT": 1.0, "DOUBLE": 1.0, "DECIMAL": Decimal(1), "CHAR": "1  ", "VARCHAR": "1", "BINARY": b"1\0", "VARBINARY": b"1",
    "DATE": date(2024, 1, 1), "TIME": time(1), "TIMESTAMP": datetime(2024, 1, 1), "TIMESTAMP_LTZ": datetime(2024, 1, 1, tzinfo=UTC),
    "ARRAY": [], "MAP": [("k", 1)],
}  # fmt: skip


@pytest.mark.parametrize("source", TYPES)
def test_every_pair_of_types_is_cast_or_refused(source: str) -> None:
    of = kind(source)
    one = {of.names[0]: None} if of.root == "ROW" else ONES.get(of.root, 1)
    columns: dict[str, tuple[str, list[Any]]] = {"x": (source, [one, None])}
    for target in TYPES:
        if can_cast(of, kind(target)):
            assert tree(f"TRY_CAST(x AS {target})", {"x": source}).type == kind(target)
            assert values(f"TRY_CAST(x AS {target})", columns)[1] is None
            continue
        with pytest.raises(SqlError, match="cannot be CAST") as refused:
            tree(f"CAST(x AS {target})", {"x": source})
        assert refused.value.kind == "type_mismatch"


@given(st.lists(st.sampled_from(TYPES), min_size=2, max_size=3))
def test_a_common_type_does_not_depend_on_the_order(declared: list[str]) -> None:
    kinds = [kind(each) for each in declared]
    made = common_type(kinds)
    for order in itertools.permutations(kinds):
        other = common_type(order)
        assert other is None or made is None or str(other).replace("`b`", "`a`") == str(made).replace("`b`", "`a`")
    if made is not None:
        assert all(can_cast(each, made) for each in kinds)
