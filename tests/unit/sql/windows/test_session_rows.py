"""SESSION without an aggregate: rows come with the bounds of their session once that is over, and what stands on them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poundlock.sql.errors import SqlError
from support.examples import examples
from support.sql_steps import FILES, answered, write_files

Row = tuple[str | None, int, int]
"""A key, a second and a number."""
START = datetime(2026, 1, 5, 10)
ROWS: list[list[Row]] = [[("a", 1, 1), ("b", 2, 2)], [("a", 4, 3)], [("a", 30, 4)], [("a", 26, 5), ("b", 31, 6)]]
SESSIONS = "TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND))"


def at(second: int, ms: int = 0) -> str:
    return (START + timedelta(seconds=second, milliseconds=ms)).isoformat(timespec="milliseconds")


def run(root: Path, query: str, files: Sequence[Sequence[Row]], delay: int = 5, parallelism: int = 2) -> Counter[Any]:
    """Run a query over rows that come in files; return what came out, without the kinds of change, which are insertions."""
    shutil.rmtree(root)
    rows: list[list[Mapping[str, Any]]] = [
        [{"k": k, "v": v, "ts": at(second).replace("T", " ")} for k, second, v in each] for each in files
    ]
    write_files(root / "t", rows)
    table = f"""CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), p AS PROCTIME(),
        WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECOND) WITH ({FILES}, 'path' = '{root}/t');"""
    changes = answered(root, table + query, parallelism)
    assert {kind for kind, _ in changes} <= {"+I"}
    return Counter({row: count for (_, row), count in changes.items()})


def sessions_of(files: Sequence[Sequence[Row]], gap: int = 5) -> list[tuple[Row, int, int]]:
    """Return rows with the first and the last second of their session."""
    found = []
    for key in {k for each in files for k, _, _ in each}:
        group: list[Row] = []
        for row in sorted((r for each in files for r in each if r[0] == key), key=lambda r: r[1]):
            if group and row[1] > group[-1][1] + gap:
                found += [(r, group[0][1], group[-1][1] + gap) for r in group]
                group = []
            group.append(row)
        found += [(r, group[0][1], group[-1][1] + gap) for r in group]
    return found


def test_rows_have_the_bounds_of_their_session(root: Path) -> None:
    query = f"SELECT k, v, ts, window_start, window_end, window_time FROM {SESSIONS}"
    assert run(root, query, ROWS) == Counter(
        (k, v, at(second), at(start), at(end), at(end - 1, 999)) for (k, second, v), start, end in sessions_of(ROWS)
    )


@settings(examples(12), suppress_health_check=[HealthCheck.too_slow])
@given(
    files=st.lists(
        st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 60), st.integers(0, 9)), max_size=4),
        min_size=1,
        max_size=6,
    ).filter(any)
)
def test_any_rows_are_in_the_sessions_that_they_make(root: Path, files: list[list[Row]]) -> None:
    query = f"SELECT k, v, window_start, window_end FROM {SESSIONS}"
    expected = Counter((k, v, at(start), at(end)) for (k, _, v), start, end in sessions_of(files))
    assert run(root, query, [each for each in files if each], delay=60) == expected


def test_a_row_whose_session_is_over_is_late(root: Path) -> None:
    files = [*ROWS, [("b", 40, 7)], [("a", 24, 8), ("a", 33, 9)]]
    got = run(root, f"SELECT k, v, window_start FROM {SESSIONS}", files, delay=0)
    # By second 40 the session of a from 26 to 35 is over, which the row of 24 would have been in, or that of 33.
    assert not [row for row in got if row[1] in (8, 9)]
    assert got["a", 4, at(26)] == 1


def test_projections_and_filters_of_rows_and_bounds(root: Path) -> None:
    late = at(8).replace("T", " ")
    query = f"SELECT v + 1, window_end FROM {SESSIONS} WHERE v > 1 AND window_end > TIMESTAMP '{late}'"
    rows = [(v + 1, at(end)) for (_, _, v), _, end in sessions_of(ROWS) if v > 1 and end > 8]
    assert run(root, query, ROWS) == Counter(rows)
    alone = "SELECT window_start FROM TABLE(SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND))"
    assert run(root, alone, ROWS) == Counter({(at(1),): 3, (at(26),): 3})


def test_the_first_rows_of_sessions(root: Path) -> None:
    query = f"""SELECT k, v, n FROM (SELECT *, ROW_NUMBER() OVER (
        PARTITION BY window_start, window_end, k ORDER BY v DESC) AS n FROM {SESSIONS}) WHERE n <= 1"""
    assert run(root, query, ROWS) == Counter([("a", 3, 1), ("b", 2, 1), ("a", 5, 1), ("b", 6, 1)])
    newest = f"""SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (
        PARTITION BY window_start, window_end, k ORDER BY ts DESC) AS n FROM {SESSIONS}) WHERE n = 1"""
    assert run(root, newest, ROWS) == Counter([("a", 3), ("b", 2), ("a", 4), ("b", 6)])


def test_a_join_of_sessions(root: Path) -> None:
    query = f"""SELECT a.k, a.v, b.v FROM {SESSIONS} AS a JOIN {SESSIONS} AS b
        ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end"""
    of = sessions_of(ROWS)
    pairs = Counter((r[0], r[2], o[2]) for r, start, _ in of for o, other, _ in of if (r[0], start) == (o[0], other))
    assert run(root, query, ROWS) == pairs


def test_aggregates_by_other_keys_than_those_of_the_sessions(root: Path) -> None:
    query = f"SELECT window_start, window_end, COUNT(*), SUM(v) FROM {SESSIONS} GROUP BY window_start, window_end"
    by_bounds: dict[tuple[int, int], list[int]] = {}
    for (_, _, v), start, end in sessions_of(ROWS):
        by_bounds.setdefault((start, end), []).append(v)
    assert run(root, query, ROWS) == Counter((at(s), at(e), len(vs), sum(vs)) for (s, e), vs in by_bounds.items())
    some = f"""SELECT k, COUNT(*) FROM (SELECT * FROM {SESSIONS} WHERE window_start > TIMESTAMP '2026-01-05 10:00:01')
        GROUP BY window_start, window_end, k"""
    assert run(root, some, ROWS) == Counter([("b", 1), ("a", 2), ("b", 1)])


def test_the_time_of_a_session_is_an_event_time(root: Path) -> None:
    query = f"""CREATE VIEW s AS SELECT v, window_time FROM {SESSIONS};
        SELECT window_start, SUM(v) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(window_time), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end"""
    sums: Counter[int] = Counter()
    for (_, _, v), _, end in sessions_of(ROWS):
        sums[(end - 1) // 10 * 10] += v
    assert run(root, query, ROWS) == Counter((at(start), total) for start, total in sums.items())


def test_rows_that_change_are_refused(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()
    script = f"""CREATE TABLE t (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
        WITH ('connector' = 'filesystem', 'format' = 'debezium-json', 'path' = '{root}/t'); SELECT * FROM {SESSIONS}"""
    with pytest.raises(SqlError, match="SESSION windows of rows that change"):
        answered(root, script)
