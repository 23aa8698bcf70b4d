"""Jobs that read MariaDB by JDBC to files, killed at every step and at random: each row of the table comes once."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poundlock.failpoints import Failpoint
from poundlock.testing.databases.mariadb import EmbeddedMariaDb
from support.lives import DRIVERS, STATELESS, Lives, failpoint_setting
from support.torture import tortured

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/jdbc_to_files.py"


@pytest.fixture
def db(mariadb_server: EmbeddedMariaDb) -> EmbeddedMariaDb:
    server = mariadb_server
    server.start()
    server.execute(
        "DROP DATABASE IF EXISTS test",
        "CREATE DATABASE test",
        "CREATE TABLE test.events (id int AUTO_INCREMENT PRIMARY KEY, v varchar(200))",
    )
    return server


def lives_of(db: EmbeddedMariaDb, root: Path, mode: str) -> Lives:
    environment = {
        "CRASH_URL": db.jdbc_url,
        "CRASH_MODE": mode,
        "CRASH_OUT": str(root / "out"),
        "CRASH_CHECKPOINTS": str(root / "checkpoints"),
    }
    return Lives(JOB, environment=environment, folder=root, patience_s=900)


def written(root: Path) -> Counter[tuple[int, str]]:
    """Return the rows of finished files, and how often each is there."""
    files = (p for p in (root / "out").rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    rows: list[dict[str, Any]] = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return Counter((row["id"], row["v"]) for row in rows)


def expected(db: EmbeddedMariaDb) -> Counter[tuple[int, str]]:
    return Counter(db.execute("SELECT id, v FROM events"))


def reached(root: Path, db: EmbeddedMariaDb) -> Callable[[], bool]:
    wanted = expected(db)
    return lambda: written(root).keys() >= wanted.keys()


@pytest.mark.parametrize(
    "points",
    [
        pytest.param((Failpoint.SINK_WRITING, Failpoint.SINK_COMMITTED), id="some"),
        pytest.param(STATELESS, id="every", marks=pytest.mark.torture),
    ],
)
def test_a_bounded_read_is_killed_at_failpoints_and_goes_on_in_the_middle(
    db: EmbeddedMariaDb, tmp_path: Path, points: tuple[Failpoint, ...]
) -> None:
    db.execute("INSERT INTO events (v) SELECT MD5(seq) FROM seq_1_to_3000")
    with lives_of(db, tmp_path, "bounded") as lives:
        hit = tmp_path / "hit"
        setting = failpoint_setting("kill", hit, times=2, points=points)
        codes = lives.run(POUNDLOCK_FAILPOINTS=setting)
        assert {path.name for path in hit.iterdir()} == {point.value for point in points}
        assert lives.left_behind() == []
    assert len(codes) > len(DRIVERS.intersection(points))
    assert written(tmp_path) == expected(db)


@pytest.mark.torture
def test_a_growing_table_is_read_by_jobs_that_are_killed_at_random(db: EmbeddedMariaDb, tmp_path: Path) -> None:
    kills = int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "25"))
    db.execute("INSERT INTO events (v) SELECT MD5(seq) FROM seq_1_to_5000")

    def produce() -> None:
        db.execute(f"INSERT INTO events (v) SELECT MD5(seq + {time.time_ns() % 1000}) FROM seq_1_to_150")

    with lives_of(db, tmp_path, "incremental") as lives:
        job = tortured(lives.start, produce, kills)
        lives.until(reached(tmp_path, db), job)
        assert lives.stop(lives.job) == 0
        assert lives.left_behind() == []
    assert written(tmp_path) == expected(db)
