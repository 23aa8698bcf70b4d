"""Functions of a user's own in scripts that run: values, rows and aggregates, and what becomes of their errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock.config import load_settings
from poundlock.sql.running.runner import ScriptRunner
from poundlock.sql.running.shown import FinalTable
from support.sql_scripts import Answers

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

FUNCTIONS = {
    "double_it": "double", "nested": "nested", "fails": "fails", "words": "words", "numbers": "numbers",
    "wavg": "WeightedAverage", "total": "Total", "how_many": "Rows",
}  # fmt: skip
CREATED = "".join(
    f"CREATE TEMPORARY FUNCTION {name} AS 'support.sql_user_functions.{attribute}' LANGUAGE PYTHON;\n"
    for name, attribute in FUNCTIONS.items()
)
ROWS = [(1, "a bc", 2.0, 1), (2, "d", 4.0, 3), (3, "", 8.0, 12), (4, "e e", 1.0, 14)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").mkdir()
    lines = [{"id": i, "s": s, "x": x, "ts": f"2026-01-05 10:00:{at:02}"} for i, s, x, at in ROWS]
    (tmp_path / "t/data.json").write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")

    def answers(query: str) -> Sequence[Sequence[Any]]:
        table = """CREATE TABLE t (id INT, s STRING, x DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
            WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'json');"""
        taken = Answers()
        settings = load_settings([f"state_dir={tmp_path}/.state", "master=local[2]"])
        ScriptRunner("script", taken.take, taken.known, settings=settings, parallelism=2).run(table + CREATED + query)
        final = FinalTable()
        final.take([(kind, tuple(row)) for kind, row in taken.changes])
        return sorted((list(row) for row in final.rows()), key=repr)

    return answers


def test_values_and_rows(run: Any) -> None:
    query = """SELECT t.id, double_it(t.id), nested(t.id).m['k'], w, n, k FROM t
        LEFT JOIN LATERAL TABLE(words(s)) AS q (w, n) ON TRUE, LATERAL TABLE(numbers(t.id)) AS r (k) WHERE k >= t.id - 1"""
    assert run(query) == [
        [1, 2, 1, "a", 1, 0],
        [1, 2, 1, "bc", 2, 0],
        [2, 4, 2, "d", 1, 1],
        [3, 6, 3, None, None, 2],
        [4, 8, 4, "e", 1, 3],
        [4, 8, 4, "e", 1, 3],
    ]


def test_aggregates_of_groups_also_of_rows_that_change(run: Any) -> None:
    query = "SELECT id > 2, wavg(x, id), total(id) FILTER (WHERE id <> 4), COUNT(*), total(DISTINCT MOD(id, 2)) FROM t GROUP BY id > 2"
    assert run(query) == [[False, 10 / 3, 3, 2, 1], [True, 4.0, 3, 2, 1]]
    changing = "SELECT wavg(v, 1), COUNT(*) FROM (SELECT MOD(id, 2) AS k, SUM(x) AS v FROM t GROUP BY MOD(id, 2))"
    assert run(changing) == [[7.5, 2]]


def test_aggregates_of_windows_beside_those_of_sql(run: Any) -> None:
    query = """SELECT window_start, wavg(x, id), total(id), AVG(id), COUNT(*), MAX(s), total(id) FILTER (WHERE id > 3)
        FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY window_start, window_end"""
    assert run(query) == [
        ["2026-01-05T09:59:55.000", 10 / 3, 3, 1, 2, "d", None],
        ["2026-01-05T10:00:00.000", 10 / 3, 3, 1, 2, "d", None],
        ["2026-01-05T10:00:05.000", 4.0, 7, 3, 2, "e e", 4],
        ["2026-01-05T10:00:10.000", 4.0, 7, 3, 2, "e e", 4],
    ]


def test_an_error_of_a_function_names_it_and_its_line(run: Any) -> None:
    with pytest.raises(Exception, match=r"sql_user_functions\.py:\d+ in fails: ValueError: two is too many"):
        run("SELECT fails(id) FROM t")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (
            "SELECT total(v) FROM (SELECT MOD(id, 2) AS k, COUNT(*) AS v FROM t GROUP BY MOD(id, 2))",
            "of rows that change",
        ),
        (
            "SELECT how_many(id) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY window_start, window_end",
            "how_many has no merge",
        ),
    ],
)
def test_what_an_aggregate_cannot_do_is_refused_before_anything_runs(run: Any, query: str, says: str) -> None:
    with pytest.raises(Exception, match=says):
        run(query)
