"""Row-wise SQL that tasks run: what it gives, what it leaves to Spark."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poundlock.formats import ddl
from poundlock.formats.chunk import Batch, FileOrigin, Records
from poundlock.operators.chain import Chain, Edge, Pass, Step
from poundlock.operators.sql_expressions import SqlColumns, SqlFilter
from poundlock.plan.simple_sql import NeedsSpark, sql_operator
from poundlock.stream.nodes import SourceNode, SqlNode

SCHEMA = ddl.parse("n int, Big bigint, v double, s string, ok boolean, day date, tags array<string>, st struct<x: int>")
ROWS = [
    {"n": 1, "Big": 10, "v": 0.5, "s": "a", "ok": True},
    {"n": None, "Big": None, "v": None, "s": None, "ok": None},
    {"n": 3, "Big": 3, "v": float("nan"), "s": "b", "ok": False},
]


def _node(kind: Any, *arguments: str) -> SqlNode:
    return SqlNode("q", [SourceNode("s", [], object())], kind, list(arguments))


def _run(kind: Any, *arguments: str, rows: Any = None) -> list[dict[str, Any]]:
    made = sql_operator(_node(kind, *arguments), SCHEMA)
    assert not isinstance(made, NeedsSpark), made
    operator, after = made
    found: list[Batch] = []
    batch = pa.RecordBatch.from_pylist(ROWS, SCHEMA) if rows is None else rows
    operator.process(
        Batch(batch) if isinstance(batch, pa.RecordBatch) else batch, lambda tag, chunk: found.append(chunk)
    )
    assert all(each.batch.schema.equals(after) for each in found)
    return [row for each in found for row in each.batch.to_pylist()]


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("n = 1", [1]), ("N >= 1", [1, 3]), ("n <> 1", [3]), ("NOT n = 1", [3]), ("n IS NULL", [None]), ("n IS NOT NULL AND ok", [1]),
        ("v > 100", [3]), ("v > 1.5", [3]), ("v = v", [1, 3]), ("v < 1", [1]), ("n = Big", [3]), ("s IN ('a', 'z')", [1]), ("s NOT IN ('a')", [3]),
        ("n BETWEEN 1 AND 2", [1]), ("ok OR n = 3", [1, 3]), ("ok = false", [3]), ("(n = 1) = ok", [1, 3]), ("v * 2 - 1 = 0", [1]),
        ("true", [1, None, 3]), ("s > ''", [1, 3]), ("`s` = 'b'", [3]), ("NOT (ok AND n = 1)", [3]), ("n > -1", [1, 3]), ("-v < 0", [1]), ("(v + 1) * 2 - v > 0", [1, 3]),
    ],
)  # fmt: skip
def test_a_condition(condition: str, kept: list[int | None]) -> None:
    assert [row["n"] for row in _run("where", condition)] == kept


def test_columns() -> None:
    first = [ROWS[0] | {"day": None, "tags": None, "st": None}]
    one = pa.RecordBatch.from_pylist(ROWS[:1], SCHEMA)
    assert _run("select", "*", rows=one) == first
    assert _run("select", "N", "big AS b", "s t", "7 AS seven", "'x' AS x", "v + 1 AS w", "n > 0 AS p", rows=one) == [
        {"N": 1, "b": 10, "t": "a", "seven": 7, "x": "x", "w": 1.5, "p": True}
    ]
    assert _run("with_column", "S", "n", rows=one)[0] == {
        "n": 1, "Big": 10, "v": 0.5, "S": 1, "ok": True, "day": None, "tags": None, "st": None,
    }  # fmt: skip
    assert list(_run("drop", "TAGS", "st", "nothing", rows=one)[0]) == ["n", "Big", "v", "s", "ok", "day"]
    assert _run("select", "s", rows=Records([{"s": "r"}, {}])) == [{"s": "r"}, {"s": None}]


@pytest.mark.parametrize(
    "text",
    [
        "n + 1 = 2", "n / 2 = 1", "n = '1'", "n = 1.5", "n = v", "upper(s) = 'A'", "s = \"a\"", "s = 'it''s'", "s = 'a\\n'", "s LIKE 'a%'",
        "n <=> 1", "n > 1 IS NULL", "n IS NULL IS NULL", "v + v + v > 1", "v * (2 * v) > 1", "n = 1 = ok", "missing = 1", "st.x = 1", "ok > false", "n IN (1, NULL)", "n IN (Big)", "tags = tags",
        "n", "v = 9007199254740993", "v", "s = 'a' -- b", "cast(n AS bigint) = 1", "n = 99999999999999999999", "day > '2024-01-01'", "v = 1e3",
        "ok IS TRUE", "CASE WHEN ok THEN ok END", "v % 2 = 1", "n = 1L", "", "s = 'a' 'b'", "1.5 = 1.5", "-n = 1", "ok AND", "s = r'a'",
    ],
)  # fmt: skip
def test_what_is_left_to_spark(text: str) -> None:
    assert isinstance(sql_operator(_node("where", text), SCHEMA), NeedsSpark)


@pytest.mark.parametrize(
    "text", ["n + 1 AS m", "v * 2", "1.5 AS x", "NULL AS x", "st.x", "st.*", "current_date", "n AS a, s AS b", "S as n"]
)
def test_columns_that_are_left_to_spark(text: str) -> None:
    assert isinstance(sql_operator(_node("select", "n", text), SCHEMA), NeedsSpark)


def test_names_that_differ_by_case_only_are_left_to_spark() -> None:
    schema = ddl.parse("a int, A int")
    assert isinstance(sql_operator(_node("select", "a"), schema), NeedsSpark)
    assert isinstance(sql_operator(_node("with_column", "a", "1"), schema), NeedsSpark)


def test_columns_that_only_spark_knows() -> None:
    found = sql_operator(_node("select", "a"), None)
    assert found == NeedsSpark("its columns are known to Spark only")


def test_rows_that_stay_keep_their_places_and_the_others_count_as_filtered() -> None:
    made = sql_operator(_node("where", "n = 3"), SCHEMA)
    assert not isinstance(made, NeedsSpark)
    got: list[Batch] = []

    class Last:
        def process(self, chunk: Any, emit: Any) -> None:
            got.append(chunk)

    chain = Chain([Step("s", Pass(), []), Step("q", made[0], [Edge("s")]), Step("o", Last(), [Edge("q")])])
    chain.push(Batch(pa.RecordBatch.from_pylist(ROWS, SCHEMA), FileOrigin("f", np.array([0, 7, 9], np.int64))))
    assert [each.origin.at(0) for each in got] == [{"file": "f", "offset": 9}]
    assert (chain.tallies["q"].rows_in, chain.tallies["q"].filtered) == (3, 2)


def test_tasks_load_neither_pandas_nor_the_reader_of_sql() -> None:
    code = """
import pickle, sys
from poundlock.formats import ddl
from poundlock.plan.simple_sql import sql_operator
from poundlock.stream.nodes import SqlNode
schema = ddl.parse("n int, v double, s string")
steps = [("where", ["n IN (1, 2) AND v > 1.5 AND s <> 'x'"]), ("select", ["n", "v * 2 AS w", "7 AS seven", "s = 'y' AS p"])]
made = [sql_operator(SqlNode("q", [], kind, given), schema)[0] for kind, given in steps]
sys.stdout.buffer.write(pickle.dumps((made, schema)))
"""
    task = """
import pickle, sys
import pyarrow as pa
operators, schema = pickle.load(sys.stdin.buffer)
from poundlock.formats.chunk import Batch
import numpy as np
n = pa.Array.from_buffers(pa.int32(), 3, [None, pa.py_buffer(np.array([1, 2, 3], np.int32).tobytes())])
v = pa.Array.from_buffers(pa.float64(), 3, [None, pa.py_buffer(np.array([1.0, 2.0, 3.0]).tobytes())])
s = pa.StringArray.from_buffers(3, pa.py_buffer(np.array([0, 1, 2, 3], np.int32).tobytes()), pa.py_buffer(b"yyy"))
chunks = [Batch(pa.RecordBatch.from_arrays([n, v, s], schema=schema))]
for operator in operators:
    found = []
    for chunk in chunks:
        operator.process(chunk, lambda tag, made: found.append(made))
    chunks = found
assert [int(chunk.batch.num_rows) for chunk in chunks] == [1]
print(sorted({"pandas", "sqlglot", "pyspark"} & set(sys.modules)))
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert subprocess.run([sys.executable, "-c", task], input=made, capture_output=True, check=True).stdout == b"[]\n"


def test_the_kinds_of_operators() -> None:
    where, select = sql_operator(_node("where", "ok"), SCHEMA), sql_operator(_node("drop", "n"), SCHEMA)
    assert isinstance(where, tuple)
    assert isinstance(select, tuple)
    assert (type(where[0]), type(select[0])) == (SqlFilter, SqlColumns)
