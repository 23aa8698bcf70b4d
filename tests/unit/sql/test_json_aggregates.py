"""JSON_ARRAYAGG and JSON_OBJECTAGG over rows that come and go, and the functions that came with them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock.errors import PoundlockError
from poundlock.sql.errors import SqlError
from poundlock.sql.functions.encodings import FUNCTIONS as ENCODINGS
from poundlock.sql.functions.patterns import FUNCTIONS as PATTERNS
from poundlock.sql.running.shown import FinalTable
from poundlock.sql.statements.results import RunsQuery
from poundlock.sql.statements.session import SqlSession
from support.in_process import PATCHES
from support.sql_functions import Functions
from support.sql_steps import FILES, answered, write_files

TABLE = "CREATE TABLE t (k STRING, n INT, v STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ({files}, 'path' = '{root}/t');"
OF_GROUPS = "SELECT k, JSON_ARRAYAGG(v), JSON_ARRAYAGG(v NULL ON NULL), JSON_OBJECTAGG(KEY CAST(n AS STRING) VALUE v), JSON_OBJECTAGG(CAST(n AS STRING) VALUE v ABSENT ON NULL) FILTER (WHERE n > 1)"
Row = tuple[str, int, Any]
ROWS: list[list[Row]] = [
    [("a", 2, 'x"'), ("a", 10, None), ("b", 1, None)], [("a", 1, "ä"), ("c", 3, "z")], [("b", 3, "y")], [("c", 4, None)],
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for patch in PATCHES:
        monkeypatch.setattr(*patch)
    return tmp_path


def run(root: Path, query: str, files: list[list[Row]]) -> list[tuple[Any, ...]]:
    given = [[{"k": k, "n": n, "v": v, "ts": "2026-01-05 10:00:00"} for k, n, v in each] for each in files]
    write_files(root / "t", given)
    changes = answered(root, TABLE.format(files=FILES, root=root) + query)
    table = FinalTable()
    table.take([each for each, count in changes.items() if each[0] in ("+I", "+U") for _ in range(count)])
    table.take([each for each, count in changes.items() if each[0] in ("-U", "-D") for _ in range(count)])
    return table.rows()


def wanted(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    made = []
    for key in {k for k, _, _ in rows}:
        own = [(n, v) for k, n, v in rows if k == key]
        pairs = sorted((str(n), v) for n, v in own)
        made.append(
            (
                key,
                tuple(v for _, v in own if v is not None),
                tuple(v for _, v in own),
                tuple(pairs),
                tuple((n, v) for n, v in pairs if v is not None and int(n) > 1),
            )
        )
    return Counter(made)


def read(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Return rows with what their JSON says, the keys of objects in their order."""
    return Counter(
        (key, *(tuple(json.loads(text, object_pairs_hook=_pairs)) for text in texts)) for key, *texts in rows
    )


def _pairs(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return pairs


@pytest.mark.parametrize(
    "query",
    [
        f"{OF_GROUPS} FROM t GROUP BY k",
        f"{OF_GROUPS} FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY k, window_start, window_end",
    ],
)
def test_groups_and_windows(root: Path, query: str) -> None:
    assert read(run(root, query, ROWS)) == wanted([row for each in ROWS for row in each])


def test_rows_that_change_are_taken_back(root: Path) -> None:
    files: list[list[Row]] = [[("a", 1, "x"), ("b", 1, "y")], [("a", 2, "z")], [("b", 5, None), ("c", 1, "w")]]
    counted = "(SELECT k, SUM(n) AS n, MAX(v) AS v FROM t GROUP BY k)"
    query = f"SELECT 1, JSON_OBJECTAGG(KEY k VALUE n), JSON_ARRAYAGG(n) FROM {counted} WHERE n < 6"
    ((_, pairs, items),) = read(run(root, query, files))
    assert pairs == (("a", 3), ("c", 1))
    assert sorted(items) == [1, 3]


def test_values_that_are_json_are_put_in_as_they_are(root: Path) -> None:
    query = "SELECT JSON_ARRAYAGG(JSON_OBJECT('n' VALUE n)), JSON_OBJECTAGG(KEY v VALUE JSON_ARRAY(n)) FROM t"
    assert run(root, query, [[("a", 1, "x")]]) == [('[{"n":1}]', '{"x":[1]}')]


def test_a_key_twice_and_none_fail_the_job(root: Path) -> None:
    with pytest.raises(PoundlockError, match="with the key 'a' twice in a group"):
        run(root, "SELECT JSON_OBJECTAGG(KEY k VALUE n) FROM t", [[("a", 1, "x"), ("a", 2, "x")]])


def test_a_key_that_is_null_fails_the_job(root: Path) -> None:
    with pytest.raises(PoundlockError, match="with a key that is NULL"):
        run(root, "SELECT JSON_OBJECTAGG(KEY v VALUE n) FROM t", [[("a", 1, None)]])


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT JSON_OBJECTAGG(KEY n VALUE n) FROM t", "JSON_OBJECTAGG with a key of INT"),
        ("SELECT JSON_ARRAYAGG(n) OVER (PARTITION BY k ORDER BY ts) FROM t", "is an aggregate of groups alone"),
        ("SELECT JSON_ARRAYAGG(ts, n) FROM t", "Unexpected token"),
        ("SELECT CURRENT_DATABASE(1)", "there is no function CURRENT_DATABASE"),
    ],
)
def test_what_is_refused(query: str, says: str) -> None:
    with pytest.raises(SqlError) as refused:
        list(SqlSession().results(TABLE.format(files=FILES, root="x") + query))
    assert says in refused.value.what


def test_the_current_database() -> None:
    *_, query = SqlSession().results("CREATE DATABASE d; USE d; SELECT CURRENT_DATABASE() AS d")
    assert isinstance(query, RunsQuery)
    assert "value='d'" in repr(query.relation)


def test_numbers_in_base_2() -> None:
    column = pa.array([0, 1, 12, 255, -1, None, 2**62, -(2**63)])
    texts = [None if n is None else f"{n % 2**64:b}" for n in column.to_pylist()]
    assert Functions(ENCODINGS).call("BIN", column) == texts
    assert Functions(ENCODINGS).call("BIN", pa.array([-2, 5], pa.int8())) == ["1" * 63 + "0", "101"]


@pytest.mark.parametrize(
    ("name", "true", "false"),
    [
        ("IS_ALPHA", ["a", "äß", "漢"], ["", "a1", "a b", None, "\U00010400"]),
        ("IS_DIGIT", ["0", "٣１"], ["", "1.5", "-1", "a", None]),
        ("IS_DECIMAL", ["0", "-1", "+1.5", ".5", "5.", " 1e-3 ", "1f", "NaN", "-Infinity", "0x1p3", "9" * 40, "١٢"], ["", " ", "1,5", "e3", "1 2", "0x1", "abc", "--1", None]),
    ],
)  # fmt: skip
def test_what_texts_are(name: str, true: list[str | None], false: list[str | None]) -> None:
    functions = Functions(PATTERNS)
    assert functions.call(name, pa.array(true)) == [True] * len(true)
    assert functions.call(name, pa.array(false)) == [False] * len(false)
    assert functions.call(name, pa.array([1, None], pa.int32())) == [name != "IS_ALPHA", False]
    assert functions.call(name, pa.array([1.5])) == [name == "IS_DECIMAL"]
