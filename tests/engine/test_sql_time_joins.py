"""Joins of SQL by event time and the first rows of tables, run by two tasks over several checkpoints: what comes out is final."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock.config import load_settings
from poundlock.sql.running.runner import ScriptRunner
from support.sql_scripts import Answers

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

LEFT = [("x", 0, 1), ("y", 2, 2), ("x", 11, 3), (None, 12, 4), ("z", 26, 5), ("w", 31, 0), ("x", 40, 6)]
RIGHT = [("x", 4, 0), ("y", 3, 1), ("x", 13, 9), ("z", 19, 9), ("x", 59, 9)]
TABLES = """
CREATE TABLE l (k STRING, ts TIMESTAMP(3), n INT, WATERMARK FOR ts AS ts)
  WITH ('connector' = 'filesystem', 'path' = '{root}/l', 'format' = 'json', 'source.max-files-per-checkpoint' = '1');
CREATE TABLE r (key STRING, pts TIMESTAMP(3), m INT, WATERMARK FOR pts AS pts)
  WITH ('connector' = 'filesystem', 'path' = '{root}/r', 'format' = 'json', 'source.max-files-per-checkpoint' = '1');
"""
OF_WINDOWS = """
(SELECT k, n, window_start, window_end FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(ts), INTERVAL '10' SECOND))) AS a
{kind} JOIN (SELECT key, m, window_start, window_end FROM TABLE(TUMBLE(TABLE r, DESCRIPTOR(pts), INTERVAL '10' SECOND))) AS b
ON a.k = b.key AND a.window_start = b.window_start AND a.window_end = b.window_end
"""


def write(folder: Path, names: Sequence[str], rows: Sequence[Any]) -> None:
    folder.mkdir()
    for number, (key, second, value) in enumerate(rows):
        record = dict(zip(names, (key, f"2026-01-05 10:00:{second:02}.000", value), strict=True))
        path = folder / f"{number}.json"
        path.write_text(json.dumps(record) + "\n")
        os.utime(path, (1e9 + number, 1e9 + number))


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "l", ["k", "ts", "n"], LEFT)
    write(tmp_path / "r", ["key", "pts", "m"], RIGHT)

    def run(query: str) -> list[tuple[str, tuple[Any, ...]]]:
        answers = Answers()
        settings = load_settings([f"state_dir={tmp_path}/.state", "master=local[2]"])
        runner = ScriptRunner("script", answers.take, answers.known, settings=settings, parallelism=2)
        runner.run(TABLES.format(root=tmp_path) + query)
        return [(kind, tuple(row)) for kind, row in answers.changes]

    return run


def near(left: Any, right: Any) -> bool:
    return left[0] == right[0] and left[1] - 5 <= right[1] <= left[1] + 5 and left[2] < right[2]


def test_an_interval_join_gives_rows_without_a_match_too(answer: Any) -> None:
    condition = "l.k = r.key AND r.pts BETWEEN l.ts - INTERVAL '5' SECOND AND l.ts + INTERVAL '5' SECOND AND l.n < r.m"
    changes = answer(f"SELECT k, n, key, m FROM l FULL JOIN r ON {condition}")
    wanted: list[Any] = [(a[0], a[2], b[0], b[2]) for a in LEFT for b in RIGHT if near(a, b)]
    wanted += [(a[0], a[2], None, None) for a in LEFT if not any(near(a, b) for b in RIGHT)]
    wanted += [(None, None, b[0], b[2]) for b in RIGHT if not any(near(a, b) for a in LEFT)]
    assert Counter(changes) == Counter(("+I", row) for row in wanted)


def test_behind_an_interval_join_nothing_is_late_for_a_window(answer: Any) -> None:
    joined = "SELECT l.ts, r.m FROM l LEFT JOIN r ON l.k = r.key AND r.pts BETWEEN l.ts AND l.ts + INTERVAL '5' SECOND"
    changes = answer(f"""
        CREATE VIEW j AS {joined};
        SELECT COUNT(*), COUNT(m) FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end""")
    assert Counter(changes) == Counter(("+I", row) for row in [(2, 2), (2, 1), (1, 0), (1, 0), (1, 0)])


@pytest.mark.parametrize("kind", ["FULL", "RIGHT"])
def test_a_window_join_gives_rows_without_a_match_too(answer: Any, kind: str) -> None:
    def match(a: Any, b: Any) -> bool:
        return bool(a[0] == b[0] and a[1] // 10 == b[1] // 10)

    changes = answer(f"SELECT k, n, key, m FROM {OF_WINDOWS.format(kind=kind)}")
    wanted: list[Any] = [(a[0], a[2], b[0], b[2]) for a in LEFT for b in RIGHT if match(a, b)]
    wanted += [(None, None, b[0], b[2]) for b in RIGHT if not any(match(a, b) for a in LEFT)]
    if kind == "FULL":
        wanted += [(a[0], a[2], None, None) for a in LEFT if not any(match(a, b) for b in RIGHT)]
    assert Counter(changes) == Counter(("+I", row) for row in wanted)


def test_the_first_rows_that_come_and_places_of_rows_that_change(answer: Any) -> None:
    assert Counter(answer("SELECT k, n FROM l LIMIT 2 OFFSET 1")) == Counter([("+I", ("y", 2)), ("+I", ("x", 3))])
    sums = "SELECT k, SUM(n) AS s FROM l WHERE k IS NOT NULL GROUP BY k"
    changes = answer(f"SELECT k, s FROM ({sums}) ORDER BY s DESC LIMIT 1 OFFSET 1")
    table = Counter(row for kind, row in changes if kind[0] == "+")
    table.subtract(row for kind, row in changes if kind[0] == "-")
    assert +table == Counter([("z", 5)])
