"""Windows of SQL on Spark: rows of sessions, wall clocks that are moved, windows by the clock, and aggregates of a user's own in them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from poundlock.sql.errors import SqlError
from support.sql_scripts import changes_of
from support.sql_steps import FILES, write_files

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

BERLIN = ZoneInfo("Europe/Berlin")
BACK = datetime(2026, 10, 25, 1, tzinfo=UTC)
"""When the clocks of Berlin are put back to 2:00, where it is 3:00."""
CLOCKED = """
SET 'table.local-time-zone' = 'Europe/Berlin';
CREATE TABLE g (id INT, p AS PROCTIME()) WITH ('connector' = 'datagen', 'rows-per-second' = '200', 'number-of-rows' = '1500',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '1500');
"""


def test_rows_of_sessions_on_the_day_on_which_clocks_are_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    times = [("a", -90), ("b", -20), ("a", -10), ("a", 40), ("b", 200)]
    rows = [[{"k": k, "ts": f"{BACK + timedelta(minutes=m):%Y-%m-%d %H:%M:%SZ}", "n": m}] for k, m in times]
    write_files(tmp_path / "t", rows)
    changes = changes_of(
        f"""SET 'table.local-time-zone' = 'Europe/Berlin';
        CREATE FUNCTION listed AS 'support.sql_user_functions.Listed' LANGUAGE PYTHON;
        CREATE TABLE t (k STRING, n INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts - INTERVAL '2' HOUR)
        WITH ({FILES}, 'path' = '{tmp_path}/t');
        CREATE VIEW s AS SELECT k, n, window_start, window_end
        FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '30' MINUTE));
        SELECT k, n, CAST(window_start AS STRING), CAST(window_end AS STRING) FROM s UNION ALL
        SELECT listed(DISTINCT n), CAST(COUNT(*) AS INT), CAST(window_start AS STRING), '' FROM
        TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY window_start, window_end""",
        folder=tmp_path,
    )
    day = "2026-10-25 0"
    # 2:50 of the first pass and 2:40 of the second are one session.
    assert Counter(changes) == Counter(
        ("+I", row)
        for row in [
            ("a", -90, f"{day}1:30:00.000", f"{day}2:00:00.000"),
            ("a", -10, f"{day}2:40:00.000", f"{day}3:20:00.000"),
            ("a", 40, f"{day}2:40:00.000", f"{day}3:20:00.000"),
            ("b", -20, f"{day}2:40:00.000", f"{day}3:10:00.000"),
            ("b", 200, f"{day}5:20:00.000", f"{day}5:50:00.000"),
            ("-90-20-1040200", 5, f"{day}0:00:00.000", ""),
        ]
    )


def test_windows_that_grow_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    began = datetime.now(BERLIN).replace(tzinfo=None) - timedelta(seconds=2)
    changes = changes_of(
        f"""{CLOCKED} SELECT window_start, window_end, COUNT(*) FROM
        TABLE(CUMULATE(TABLE g, DESCRIPTOR(p), INTERVAL '0.5' SECOND, INTERVAL '1' SECOND)) GROUP BY window_start, window_end""",
        folder=tmp_path,
    )
    spans = [(*map(datetime.fromisoformat, row[:2]), row[2]) for _, row in changes]
    assert len(spans) >= 2
    assert {kind for kind, _ in changes} == {"+I"}
    assert {end - start for start, end, _ in spans} == {timedelta(seconds=0.5), timedelta(seconds=1)}
    assert min(start for start, _, _ in spans) > began, "on the clocks of the zone"
    assert max(end for _, end, _ in spans) <= datetime.now(BERLIN).replace(tzinfo=None)
    assert 0 < sum(n for start, end, n in spans if end - start == timedelta(seconds=1)) <= 1_500


@pytest.mark.parametrize(
    ("query", "what"),
    [
        (
            """SELECT a.id FROM {w} AS a JOIN {w} AS b
            ON a.id = b.id AND a.window_start = b.window_start AND a.window_end = b.window_end""",
            "a join of windows by the clock, which Flink does not have either",
        ),
        (
            """SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY id) AS n
            FROM {w}) WHERE n = 1""",
            "the first rows of windows by the clock, which Flink does not have either",
        ),
        (
            """SELECT COUNT(*) FROM (SELECT * FROM {w} WHERE window_start > TIMESTAMP '2026-01-05 10:00:00')
            GROUP BY window_start, window_end""",
            "GROUP BY a window by the clock whose rows a condition",
        ),
    ],
)
def test_what_needs_an_event_time_is_refused_of_windows_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    windows = "TABLE(TUMBLE(TABLE g, DESCRIPTOR(p), INTERVAL '1' SECOND))"
    with pytest.raises(SqlError, match=what):
        changes_of(CLOCKED + query.format(w=windows), folder=tmp_path)
