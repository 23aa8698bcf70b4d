"""A job from MariaDB to files, killed at every step and at random, in the middle of the chunks and in the log.

What the files have leads to the table, whatever was written meanwhile. The server is killed too, in the middle of a job.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest

from poundlock.failpoints import Failpoint
from poundlock.testing.databases.mariadb import EmbeddedMariaDb
from support.lives import DRIVERS, STATELESS, Lives, failpoint_setting
from support.torture import tortured

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/mysql_to_files.py"


@pytest.fixture
def db(mariadb_server: EmbeddedMariaDb) -> EmbeddedMariaDb:
    server = mariadb_server
    server.start()
    server.execute(
        "DROP DATABASE IF EXISTS test",
        "CREATE DATABASE test",
        "CREATE TABLE test.events (id int PRIMARY KEY, v varchar(200))",
    )
    return server


def lives_of(db: EmbeddedMariaDb, root: Path, start: str, chunk: int) -> Lives:
    environment = {
        "CRASH_DSN": f"mysql://root@127.0.0.1:{db.port}/test",
        "CRASH_START": start,
        "CRASH_CHUNK": str(chunk),
        "CRASH_OUT": str(root / "out"),
        "CRASH_CHECKPOINTS": str(root / "checkpoints"),
    }
    return Lives(JOB, environment=environment, folder=root)


class Writers:
    """Somebody who changes rows in transactions of their own until it is enough; some are rolled back, some move keys."""

    def __init__(self, db: EmbeddedMariaDb, seed: int, keys: int) -> None:
        self._db, self._chance, self._keys = db, random.Random(seed), keys
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Writers:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.is_set():
            try:
                self.transaction()
            except (pymysql.MySQLError, OSError):  # the server is being killed
                time.sleep(0.2)
            time.sleep(0.02)

    def transaction(self) -> None:
        """Write one transaction."""
        chance = self._chance
        with self._db.connect(autocommit=False, connect_timeout=5) as connection, connection.cursor() as cursor:
            for _ in range(chance.randrange(1, 6)):
                id, other = chance.randrange(self._keys), chance.randrange(self._keys)
                cursor.execute(
                    chance.choice(
                        [
                            f"INSERT IGNORE INTO events VALUES ({id}, 'new')",
                            f"UPDATE events SET v = CONCAT(LEFT(v, 90), 'x') WHERE id BETWEEN {id} AND {id + 3}",
                            f"UPDATE IGNORE events SET id = {other} WHERE id = {id}",
                            f"DELETE FROM events WHERE id = {id}",
                        ]
                    )
                )
            connection.rollback() if chance.random() < 0.2 else connection.commit()


def written(root: Path) -> list[dict[str, Any]]:
    """Return the rows of finished files."""
    files = (p for p in (root / "out").rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["file"], row["pos"], row["op"] != "read", row["number"] or 0)


def replayed(rows: list[dict[str, Any]]) -> dict[int, str]:
    """Return the table that changes lead to; each change must fit what the ones before it made."""
    table: dict[int, str] = {}
    for row in sorted(rows, key=place):
        before, after = row["before"], row["after"]
        if before is not None:
            assert table.pop(before["id"]) == before["v"], row
        if after is not None:
            assert after["id"] not in table, row
            table[after["id"]] = after["v"]
    return table


def expected(db: EmbeddedMariaDb) -> dict[int, str]:
    return dict(db.execute("SELECT id, v FROM events"))


def reached(root: Path, db: EmbeddedMariaDb) -> Callable[[], bool]:
    wanted = expected(db)

    def check() -> bool:
        try:
            return replayed(written(root)) == wanted
        except (AssertionError, KeyError):
            return False  # a file before another's is not finished yet

    return check


def assert_each_once(rows: list[dict[str, Any]]) -> None:
    changes = Counter(place(row) for row in rows if row["op"] != "read")
    assert max(changes.values(), default=0) <= 1
    assert {row["op"] for row in rows} == {"read", "insert", "update", "delete"}


@pytest.mark.parametrize(
    "points",
    [
        pytest.param((Failpoint.SINK_WRITING, Failpoint.PREPARE_VERIFIED, Failpoint.SINK_COMMITTED), id="some"),
        pytest.param(STATELESS, id="every", marks=pytest.mark.torture),
    ],
)
def test_killed_at_failpoints_in_the_middle_of_the_chunks(
    db: EmbeddedMariaDb, tmp_path: Path, points: tuple[Failpoint, ...]
) -> None:
    count = 3_000
    db.execute(f"INSERT INTO events SELECT seq, MD5(seq) FROM seq_1_to_{count}")
    with lives_of(db, tmp_path, "initial", 100) as lives:
        hit = tmp_path / "hit"
        setting = failpoint_setting("kill", hit, times=2, points=points)
        with Writers(db, 7, count + 200):
            job = lives.start(POUNDLOCK_FAILPOINTS=setting)
            while {path.name for path in hit.iterdir()} != {point.value for point in points}:
                if job.exit_code is not None:
                    assert job.exit_code == -9, job.log_tail(3000)
                    job = lives.start(POUNDLOCK_FAILPOINTS=setting)
                time.sleep(0.1)
        lives.until(reached(tmp_path, db), job)
        assert lives.stop(lives.job) == 0
        assert lives.left_behind() == []
    assert len(DRIVERS.intersection(points)) > 1
    assert_each_once(written(tmp_path))
    assert replayed(written(tmp_path)) == expected(db)


def test_changes_while_job_and_server_are_killed(db: EmbeddedMariaDb, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    made = random.Random(seed)
    db.execute("INSERT INTO events SELECT seq, MD5(seq) FROM seq_1_to_2000")
    with lives_of(db, tmp_path, "initial", 60) as lives:
        with Writers(db, seed + 1, 2_200):
            for round in range(3):
                job = lives.start()
                lives.checkpoints(job, made.randrange(1, 4))
                time.sleep(made.random())
                if round == 1:
                    db.restart()
                    lives.checkpoints(job, made.randrange(1, 3))
                job.kill()
                job.wait(30)
        job = lives.start()
        lives.until(reached(tmp_path, db), job)
        assert lives.stop(job) == 0
        assert lives.left_behind() == []
    assert_each_once(written(tmp_path))


@pytest.mark.torture
def test_killed_at_random(db: EmbeddedMariaDb, tmp_path: Path) -> None:
    kills, count = int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "25")), 10_000
    db.execute(f"INSERT INTO events SELECT seq, MD5(seq) FROM seq_1_to_{count}")
    writers, places = Writers(db, 11, count + 500), list[bool]()

    def produce() -> None:
        for _ in range(20):
            writers.transaction()
        places.append(sum(row["op"] == "read" for row in written(tmp_path)) < count // 2)

    with lives_of(db, tmp_path, "initial", 50) as lives:
        job = tortured(lives.start, produce, kills)
        lives.until(reached(tmp_path, db), job)
        assert lives.stop(lives.job) == 0
        assert lives.left_behind() == []
    print(f"half of the table was not read yet for {sum(places)} of {len(places)} moments")
    assert_each_once(written(tmp_path))
