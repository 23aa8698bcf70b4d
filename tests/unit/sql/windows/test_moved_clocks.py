"""Windows over TIMESTAMP_LTZ in zones with summer time: borders are those of the wall clocks, on the days too on which these are moved."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poundlock.operators.local_times import LocalTimes
from support.examples import examples
from support.sql_steps import FILES, answered, write_files

_EPOCH = datetime(1970, 1, 1)
BACK = datetime(2021, 11, 7, 9, tzinfo=UTC)
"""When the clocks of Los Angeles were put back to 1:00, where it was 2:00."""
FORWARD = datetime(2021, 3, 14, 10, tzinfo=UTC)
"""When they were put forward to 3:00, where it was 2:00."""
LOS_ANGELES = "America/Los_Angeles"


def run(
    root: Path, zone: str, files: Sequence[Sequence[tuple[datetime, int]]], *queries: str, delay: int = 0
) -> list[Counter[Any]]:
    """Run queries over rows that come in files; return what each gave, which is insertions."""
    results = []
    for query in queries:
        shutil.rmtree(root)
        rows = [[{"v": v, "ts": at.strftime("%Y-%m-%d %H:%M:%S.%fZ")} for at, v in each] for each in files]
        write_files(root / "l", rows)
        script = f"""SET 'table.local-time-zone' = '{zone}';
            CREATE TABLE l (v INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts - INTERVAL '{delay}' MINUTE)
            WITH ({FILES}, 'path' = '{root}/l'); {query}"""
        changes = answered(root, script, parallelism=1)
        assert {kind for kind, _ in changes} <= {"+I"}
        results.append(Counter({row: count for (_, row), count in changes.items()}))
    return results


def every(minutes: int, first: datetime, count: int) -> list[tuple[datetime, int]]:
    return [(first + timedelta(minutes=minutes * n), n) for n in range(count)]


def wall(at: datetime, zone: str) -> datetime:
    return at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def aligned(at: datetime, size: timedelta) -> datetime:
    return at - (at - _EPOCH) % size


def windows_of(kind: str, at: datetime, size: timedelta, step: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """Yield the windows of a wall time."""
    start = aligned(at, step if kind == "HOP" else size)
    if kind == "TUMBLE":
        yield start, start + size
    while kind == "HOP" and start > at - size:
        yield start, start + size
        start -= step
    end = start + step
    while kind == "CUMULATE" and end <= start + size:
        if end > at:
            yield start, end
        end += step


def grouped(kind: str, spans: str, more: str = "") -> str:
    return f"""SELECT window_start, window_end, COUNT(*), SUM(v){more} FROM TABLE({kind}(TABLE l, DESCRIPTOR(ts), {spans}))
        GROUP BY window_start, window_end{more}"""


def test_a_day_has_as_many_hours_as_its_clocks_show(root: Path) -> None:
    day = grouped("TUMBLE", "INTERVAL '1' DAY")
    (back,) = run(root, LOS_ANGELES, [every(30, BACK - timedelta(hours=3), 60)], day)
    assert {(row[0], row[2]) for row in back} == {
        ("2021-11-06T00:00:00.000", 2),
        ("2021-11-07T00:00:00.000", 50),
        ("2021-11-08T00:00:00.000", 8),
    }
    (forward,) = run(root, "Europe/Berlin", [every(30, datetime(2026, 3, 28, 23, tzinfo=UTC), 48)], day)
    assert {(row[0], row[2]) for row in forward} == {("2026-03-29T00:00:00.000", 46), ("2026-03-30T00:00:00.000", 2)}


def test_an_hour_that_comes_twice_is_one_window_and_one_that_is_skipped_none(root: Path) -> None:
    hours = grouped("TUMBLE", "INTERVAL '1' HOUR", ", window_time")
    (back,) = run(root, LOS_ANGELES, [every(30, BACK - timedelta(hours=2), 8)], hours)
    day = "2021-11-07T0"
    assert back == Counter(
        [
            (f"{day}0:00:00.000", f"{day}1:00:00.000", 2, 1, f"{day}7:59:59.999Z"),
            (f"{day}1:00:00.000", f"{day}2:00:00.000", 4, 14, f"{day}8:59:59.999Z"),
            (f"{day}2:00:00.000", f"{day}3:00:00.000", 2, 13, "2021-11-07T10:59:59.999Z"),
        ]
    )
    (forward,) = run(root, LOS_ANGELES, [every(30, FORWARD - timedelta(hours=1), 4)], hours)
    day = "2021-03-14T0"
    assert forward == Counter(
        [
            (f"{day}1:00:00.000", f"{day}2:00:00.000", 2, 1, f"{day}9:59:59.999Z"),
            (f"{day}3:00:00.000", f"{day}4:00:00.000", 2, 5, "2021-03-14T10:59:59.999Z"),
        ]
    )


def test_a_window_of_an_hour_that_comes_twice_waits_for_the_second(root: Path) -> None:
    # Each row is a checkpoint: the first 1:10, the second 1:10, the first 1:20 again, which is not late, and 2:00.
    times = [BACK - timedelta(minutes=50), BACK + timedelta(minutes=10), BACK - timedelta(minutes=40)]
    late = [*times, BACK + timedelta(minutes=60), BACK + timedelta(minutes=59)]
    files = [[(at, 1 << n)] for n, at in enumerate(late)]
    counts, hours = run(
        root,
        LOS_ANGELES,
        files,
        grouped("TUMBLE", "INTERVAL '1' HOUR"),
        """SELECT v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v DESC) AS n
           FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(ts), INTERVAL '1' HOUR))) WHERE n <= 9""",
    )
    assert counts == Counter(
        [
            ("2021-11-07T01:00:00.000", "2021-11-07T02:00:00.000", 3, 7),
            ("2021-11-07T02:00:00.000", "2021-11-07T03:00:00.000", 1, 8),
        ]
    ), "the last row came when its window was over"
    assert hours == Counter([(1,), (2,), (4,), (8,)]), "rows with their windows are late at the same time"


def test_sessions_follow_the_wall_clocks_as_flinks_do(root: Path) -> None:
    sessions = "TABLE(SESSION(TABLE l, DESCRIPTOR(ts), INTERVAL '40' MINUTE))"
    grouping = f"SELECT window_start, window_end, COUNT(*) FROM {sessions} GROUP BY window_start, window_end"
    rows = f"SELECT v, window_start, window_time FROM {sessions}"
    (forward, each) = run(root, LOS_ANGELES, [every(30, FORWARD - timedelta(minutes=30), 2)], grouping, rows)
    # Half an hour lies between 1:30 and 3:00, which are 90 minutes apart on the clock.
    assert forward == Counter(
        [
            ("2021-03-14T01:30:00.000", "2021-03-14T02:10:00.000", 1),
            ("2021-03-14T03:00:00.000", "2021-03-14T03:40:00.000", 1),
        ]
    )
    assert each == Counter(
        [
            (0, "2021-03-14T01:30:00.000", "2021-03-14T10:09:59.999Z"),
            (1, "2021-03-14T03:00:00.000", "2021-03-14T10:39:59.999Z"),
        ]
    )
    (back,) = run(root, LOS_ANGELES, [every(60, BACK - timedelta(minutes=30), 2)], grouping)
    assert back == Counter([("2021-11-07T01:30:00.000", "2021-11-07T02:10:00.000", 2)])


@settings(examples(12), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_rows_near_a_change_are_in_the_windows_of_their_wall_times(root: Path, data: st.DataObject) -> None:
    zone = data.draw(st.sampled_from([LOS_ANGELES, "Europe/Berlin", "Australia/Lord_Howe"]))
    changes, _ = LocalTimes(ZoneInfo(zone))._table
    change = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(data.draw(st.sampled_from(changes[60:200]))))
    near = st.builds(lambda m: change + timedelta(minutes=m), st.integers(-300, 300))
    numbered = st.lists(st.lists(near, min_size=1, max_size=4), min_size=1, max_size=3)
    files = [[(at, n) for n, at in enumerate(each)] for each in data.draw(numbered)]
    kind = data.draw(st.sampled_from(["TUMBLE", "HOP", "CUMULATE"]))
    step, size = data.draw(st.sampled_from([(15, 60), (30, 60), (30, 180), (60, 1440)]))
    spans = f"INTERVAL '{size}' MINUTE" if kind == "TUMBLE" else f"INTERVAL '{step}' MINUTE, INTERVAL '{size}' MINUTE"
    expected: dict[tuple[str, str], list[int]] = {}
    for at, n in (row for each in files for row in each):
        for start, end in windows_of(kind, wall(at, zone), timedelta(minutes=size), timedelta(minutes=step)):
            expected.setdefault((text(start), text(end)), []).append(n)
    (got,) = run(root, zone, files, grouped(kind, spans), delay=1_440)
    assert got == Counter((*bounds, len(each), sum(each)) for bounds, each in expected.items())


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_zones_whose_clocks_stay(root: Path, zone: str) -> None:
    (days,) = run(root, zone, [every(360, BACK, 4)], grouped("TUMBLE", "INTERVAL '1' DAY"))
    counts = Counter(text(aligned(wall(at, zone), timedelta(days=1))) for at, _ in every(360, BACK, 4))
    assert Counter({row[0]: row[2] for row in days}) == counts
