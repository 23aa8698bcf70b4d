"""CURRENT_WATERMARK is that of the rows where it is computed: behind joins, aggregates and windows too, as in Flink."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock.sql.errors import SqlError
from support.sql_steps import FILES, answered, write_files

ROWS = [("a", 1), ("b", 6), ("a", 12), ("a", 23)]
"""Each is a checkpoint, behind which the watermark is its time."""


def run(root: Path, query: str, watermark: bool = True) -> Sequence[Any]:
    shutil.rmtree(root)
    write_files(root / "t", [[{"k": k, "n": n, "ts": f"2026-01-05 10:00:{n:02}"}] for k, n in ROWS])
    of = ", WATERMARK FOR ts AS ts" if watermark else ""
    tables = "".join(
        f"CREATE TABLE {name} (k STRING, n INT, ts TIMESTAMP(3){of}) WITH ({FILES}, 'path' = '{root}/t');"
        for name in ("t", "u")
    )
    return sorted(answered(root, tables + query, parallelism=1).elements(), key=repr)


def at(second: int) -> str:
    return f"2026-01-05T10:00:{second:02}.000"


def test_behind_aggregates(root: Path) -> None:
    got = run(root, "SELECT m, CURRENT_WATERMARK(m) FROM (SELECT MAX(ts) AS m FROM t)")
    assert [row for kind, row in got if kind in ("+I", "+U")] == [
        (at(1), None), (at(6), at(1)), (at(12), at(6)), (at(23), at(12))
    ]  # fmt: skip
    windows = """SELECT window_time, CURRENT_WATERMARK(window_time) FROM
        TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, window_time"""
    assert [row for _, row in run(root, windows)] == [
        ("2026-01-05T10:00:09.999", at(6)),
        ("2026-01-05T10:00:19.999", at(12)),
        ("2026-01-05T10:00:29.999", at(12)),
    ], "the last row and the end of the input are one checkpoint"


def test_behind_joins(root: Path) -> None:
    got = run(root, "SELECT t.n, CURRENT_WATERMARK(t.ts) FROM t JOIN u ON t.n = u.n")
    assert [row for _, row in got] == [(1, None), (12, at(6)), (23, at(12)), (6, at(1))]
    near = """SELECT t.n, CURRENT_WATERMARK(t.ts) FROM t JOIN u
        ON t.n = u.n AND t.ts BETWEEN u.ts - INTERVAL '5' SECOND AND u.ts"""
    # The watermark stays back by as long as a row may wait, and a ms.
    assert [row for _, row in run(root, near)] == [
        (1, None), (12, "2026-01-05T10:00:00.999"), (23, "2026-01-05T10:00:06.999"), (6, "2026-01-05T09:59:55.999"),
    ]  # fmt: skip


def test_of_any_time_and_of_rows_without_a_watermark(root: Path) -> None:
    got = run(root, "SELECT n FROM t WHERE ts > CURRENT_WATERMARK(ts + INTERVAL '1' SECOND) + INTERVAL '6' SECOND")
    assert [row for _, row in got] == [(23,)]
    assert {row for _, row in run(root, "SELECT CURRENT_WATERMARK(ts) FROM t", watermark=False)} == {(None,)}


def test_where_nobody_knows_it_it_is_refused(root: Path) -> None:
    with pytest.raises(SqlError, match="CURRENT_WATERMARK in the condition of a join"):
        run(root, "SELECT t.n FROM t LEFT JOIN u ON t.n = u.n AND u.ts > CURRENT_WATERMARK(t.ts)")
