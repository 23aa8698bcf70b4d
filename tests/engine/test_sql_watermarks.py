"""Watermarks of any expression, CURRENT_WATERMARK, and deviations of the rows around each."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock.config import load_settings
from poundlock.sql.running.runner import ScriptRunner
from support.sql_scripts import Answers

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

ROWS = [(1, 0, 4.0, None), (2, 6, 8.0, 30), (3, 2, 1.0, 3), (4, 12, 7.0, 3)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").mkdir()
    for number, (i, at, x, delay) in enumerate(ROWS):
        path = tmp_path / f"t/{number}.json"
        row = {"id": i, "ts": f"2026-01-05 10:00:{at:02}", "x": x, "delay": delay}
        path.write_text(json.dumps(row) + "\n", encoding="utf-8")
        os.utime(path, (1e9 + number, 1e9 + number))

    def answers(watermark: str, query: str) -> Sequence[Sequence[Any]]:
        table = f"""CREATE TABLE t (id INT, ts TIMESTAMP(3), x DOUBLE, delay INT, WATERMARK FOR ts AS {watermark})
            WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'json', 'source.max-files-per-checkpoint' = '1');"""
        taken = Answers()
        settings = load_settings([f"state_dir={tmp_path}/.state", "master=local[2]"])
        ScriptRunner("script", taken.take, taken.known, settings=settings, parallelism=1).run(table + query)
        return sorted(list(row) for _, row in taken.changes)

    return answers


def test_the_watermark_is_the_greatest_value_of_any_expression(run: Any) -> None:
    watermark = "CASE WHEN delay < 10 THEN ts - INTERVAL '1' SECOND ELSE ts - INTERVAL '1' HOUR END"
    assert run(watermark, "SELECT id, CURRENT_WATERMARK(ts) FROM t WHERE id > 0") == [
        [1, None],
        [2, "2026-01-05T09:00:00.000"],
        [3, "2026-01-05T09:00:06.000"],
        [4, "2026-01-05T10:00:01.000"],
    ]
    nothing_of_nulls = "TIMESTAMPADD(SECOND, -delay, ts)"
    assert [row[1] for row in run(nothing_of_nulls, "SELECT id, CURRENT_WATERMARK(ts) FROM t")][1:3] == [
        None,
        "2026-01-05T09:59:36.000",
    ]


def test_rows_around_each_have_deviations(run: Any) -> None:
    query = "SELECT id, STDDEV_POP(x) OVER w, VAR_SAMP(x) OVER w FROM t WINDOW w AS (ORDER BY ts ROWS 1 PRECEDING)"
    rows = {row[0]: row[1:] for row in run("ts - INTERVAL '20' SECOND", query)}
    assert rows[1] == [0.0, None]
    assert rows[3] == [pytest.approx(statistics.pstdev([4, 1])), pytest.approx(statistics.variance([4, 1]))]
    assert rows[4] == [pytest.approx(statistics.pstdev([8, 7])), pytest.approx(statistics.variance([8, 7]))]


def test_the_watermark_of_rows_behind_an_aggregate(run: Any) -> None:
    rows = run("ts", "SELECT id, CURRENT_WATERMARK(m) FROM (SELECT id, MAX(ts) AS m FROM t GROUP BY id)")
    assert rows == [
        [1, None],
        [2, "2026-01-05T10:00:00.000"],
        [3, "2026-01-05T10:00:06.000"],
        [4, "2026-01-05T10:00:06.000"],
    ]
