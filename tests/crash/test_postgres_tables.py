"""A job from two tables of PostgreSQL to files, killed at every step and at random, in the middle of the chunks and in the log.

What the files have leads to the tables, whatever was written meanwhile. The server is killed too, in the middle of a job.
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

import psycopg
import pytest

from poundlock.failpoints import Failpoint
from poundlock.testing.postgres import EmbeddedPostgres
from support.lives import DRIVERS, STATELESS, Lives, failpoint_setting
from support.torture import tortured

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/postgres_tables_to_files.py"
TABLES = ("public.events_a", "public.events_b")

Made = dict[tuple[str, int], str]


@pytest.fixture
def pg(postgres_server: EmbeddedPostgres) -> EmbeddedPostgres:
    server = postgres_server
    server.start()
    server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datid > 0",
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active",
        "DROP PUBLICATION IF EXISTS crash",
        f"DROP TABLE IF EXISTS {', '.join(TABLES)}",
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in TABLES),
        *(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in TABLES),
        f"CREATE PUBLICATION crash FOR TABLE {', '.join(TABLES)}",
    )
    return server


def fill(pg: EmbeddedPostgres, count: int) -> None:
    for name in TABLES:
        pg.execute(f"INSERT INTO {name} SELECT i, md5(i::text) FROM generate_series(1, {count}) i")


def lives_of(pg: EmbeddedPostgres, root: Path, chunk: int) -> Lives:
    environment = {
        "CRASH_DSN": pg.dsn,
        "CRASH_CHUNK": str(chunk),
        "CRASH_OUT": str(root / "out"),
        "CRASH_CHECKPOINTS": str(root / "checkpoints"),
    }
    return Lives(JOB, environment=environment, folder=root)


class Writers:
    """Somebody who changes rows of both tables in transactions of their own; some are rolled back, some move keys."""

    def __init__(self, pg: EmbeddedPostgres, seed: int, keys: int) -> None:
        self._pg, self._chance, self._keys = pg, random.Random(seed), keys
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
            except psycopg.Error:  # the server is being killed
                time.sleep(0.2)
            time.sleep(0.02)

    def transaction(self) -> None:
        """Write one transaction."""
        chance = self._chance
        with self._pg.connect(autocommit=False, connect_timeout=5) as connection:
            for _ in range(chance.randrange(1, 6)):
                name, id, other = chance.choice(TABLES), chance.randrange(self._keys), chance.randrange(self._keys)
                connection.execute(
                    chance.choice(
                        [
                            f"INSERT INTO {name} VALUES ({id}, 'new') ON CONFLICT DO NOTHING",
                            f"UPDATE {name} SET v = left(v, 90) || 'x' WHERE id BETWEEN {id} AND {id + 3}",
                            f"UPDATE {name} SET id = {other} WHERE id = {id} AND NOT EXISTS (SELECT FROM {name} WHERE id = {other})",
                            f"DELETE FROM {name} WHERE id = {id}",
                        ]
                    )
                )
            connection.rollback() if chance.random() < 0.2 else connection.commit()


def written(root: Path) -> list[dict[str, Any]]:
    """Return the rows of finished files."""
    files = (p for p in (root / "out").rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def replayed(rows: list[dict[str, Any]]) -> Made:
    """Return the tables that changes lead to; each change must fit what the ones before it made."""
    made: Made = {}
    # A chunk is of the place behind which the log goes on: of one place, its rows come first.
    for row in sorted(rows, key=lambda row: (row["lsn"], row["op"] != "read", row["number"] or 0)):
        before, after, table = row["before"], row["after"], row["table"]
        if row["op"] in ("update", "delete"):
            assert made.pop((table, before["id"])) == before["v"], row
        if after is not None:
            assert (table, after["id"]) not in made, row
            made[table, after["id"]] = after["v"]
    return made


def expected(pg: EmbeddedPostgres) -> Made:
    return {(name, id): v for name in TABLES for id, v in pg.execute(f"SELECT id, v FROM {name}")}


def reached(root: Path, pg: EmbeddedPostgres) -> Callable[[], bool]:
    wanted = expected(pg)

    def check() -> bool:
        try:
            return replayed(written(root)) == wanted
        except (AssertionError, KeyError):
            return False  # a file before another's is not finished yet

    return check


def assert_each_once(rows: list[dict[str, Any]]) -> None:
    changes = Counter((row["lsn"], row["number"]) for row in rows if row["op"] != "read")
    assert max(changes.values(), default=0) <= 1
    assert {row["op"] for row in rows} == {"read", "insert", "update", "delete"}
    assert {row["table"] for row in rows} == set(TABLES)


@pytest.mark.parametrize(
    "points",
    [
        pytest.param((Failpoint.SINK_WRITING, Failpoint.DECISION_RECORDED), id="some"),
        pytest.param(STATELESS, id="every", marks=pytest.mark.torture),
    ],
)
def test_killed_at_failpoints_in_the_middle_of_the_chunks(
    pg: EmbeddedPostgres, tmp_path: Path, points: tuple[Failpoint, ...]
) -> None:
    count = 100 * len(points) * 4
    fill(pg, count)
    with lives_of(pg, tmp_path, 100) as lives:
        hit = tmp_path / "hit"
        setting = failpoint_setting("kill", hit, times=2, points=points)
        with Writers(pg, 7, count + 200):
            job = lives.start(POUNDLOCK_FAILPOINTS=setting)
            while {path.name for path in hit.iterdir()} != {point.value for point in points}:
                if job.exit_code is not None:
                    assert job.exit_code == -9, job.log_tail(3000)
                    job = lives.start(POUNDLOCK_FAILPOINTS=setting)
                time.sleep(0.1)
        lives.until(reached(tmp_path, pg), job)
        assert lives.stop(lives.job) == 0
        assert lives.left_behind() == []
    assert DRIVERS.intersection(points)
    assert_each_once(written(tmp_path))
    assert replayed(written(tmp_path)) == expected(pg)


@pytest.mark.torture
def test_changes_while_job_and_server_are_killed(pg: EmbeddedPostgres, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    made = random.Random(seed)
    fill(pg, 1_500)
    with lives_of(pg, tmp_path, 60) as lives:
        with Writers(pg, seed + 1, 1_700):
            for round in range(4):
                job = lives.start()
                lives.checkpoints(job, made.randrange(1, 4))
                time.sleep(made.random())
                if round % 2:
                    pg.restart()
                    lives.checkpoints(job, made.randrange(1, 3))
                job.kill()
                job.wait(30)
        job = lives.start()
        lives.until(reached(tmp_path, pg), job)
        assert lives.stop(job) == 0
        assert lives.left_behind() == []
    assert_each_once(written(tmp_path))


@pytest.mark.torture
def test_killed_at_random(pg: EmbeddedPostgres, tmp_path: Path) -> None:
    kills, count = int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "25")), 5_000
    fill(pg, count)
    writers, places = Writers(pg, 11, count + 500), list[bool]()

    def produce() -> None:
        for _ in range(20):
            writers.transaction()
        places.append(sum(row["op"] == "read" for row in written(tmp_path)) < count)

    with lives_of(pg, tmp_path, 50) as lives:
        job = tortured(lives.start, produce, kills)
        lives.until(reached(tmp_path, pg), job)
        assert lives.stop(lives.job) == 0
        assert lives.left_behind() == []
    print(f"half of the tables was not read yet for {sum(places)} of {len(places)} moments")
    assert_each_once(written(tmp_path))
