"""A job from PostgreSQL to files, killed at every step and at random: every row is in the files exactly once.

The server is killed too, in the middle of a job.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from poundlock.failpoints import Failpoint
from support.lives import DRIVERS, STATELESS, Lives, failpoint_setting

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/postgres_to_files.py"


@pytest.fixture
def pg(postgres_server: Any) -> Any:
    server = postgres_server
    server.start()
    server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datid > 0",
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active",
        "DROP PUBLICATION IF EXISTS crash",
        "DROP TABLE IF EXISTS public.events",
        "CREATE TABLE public.events (id bigserial PRIMARY KEY, v text DEFAULT md5(random()::text))",
        "ALTER TABLE public.events REPLICA IDENTITY FULL",
        "CREATE PUBLICATION crash FOR TABLE public.events",
    )
    return server


def lives_of(pg: Any, root: Path, mode: str, **more: str) -> Lives:
    environment = {
        "CRASH_DSN": pg.dsn,
        "CRASH_MODE": mode,
        "CRASH_OUT": str(root / "out"),
        "CRASH_CHECKPOINTS": str(root / "checkpoints"),
        **more,
    }
    return Lives(JOB, environment=environment, folder=root)


def written(root: Path) -> list[dict[str, Any]]:
    """Return the rows of finished files."""
    files = (p for p in (root / "out").rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def assert_equal(root: Path, pg: Any) -> None:
    """Assert that the files have the rows of the table, each once."""
    found = Counter((row["id"], row["v"]) for row in written(root))
    expected = Counter(pg.execute("SELECT id, v FROM public.events"))
    assert found == expected, f"{sum((found - expected).values())} too many, {sum((expected - found).values())} missing"


def replayed(rows: list[dict[str, Any]]) -> dict[int, str]:
    """Return the table that changes lead to; each change must fit what the ones before it made."""
    table: dict[int, str] = {}
    for row in sorted(rows, key=lambda row: (row["lsn"], row["op"] != "read", row["number"] or 0)):
        before, after = row["before"], row["after"]
        if row["op"] in ("update", "delete"):
            assert table.pop(before["id"]) == before["v"], row
        if after is not None:
            assert after["id"] not in table, row
            table[after["id"]] = after["v"]
    return table


@pytest.mark.parametrize(
    "points",
    [
        pytest.param((Failpoint.SINK_WRITING, Failpoint.PREPARE_VERIFIED, Failpoint.SINK_COMMITTED), id="some"),
        pytest.param(STATELESS, id="every", marks=pytest.mark.torture),
    ],
)
def test_incremental_killed_at_failpoints(pg: Any, tmp_path: Path, points: tuple[Failpoint, ...]) -> None:
    pg.execute("INSERT INTO public.events SELECT FROM generate_series(1, 30000)")
    with lives_of(pg, tmp_path, "incremental", CRASH_UNTIL="30000") as lives:
        hit = tmp_path / "hit"
        codes = lives.run(POUNDLOCK_FAILPOINTS=failpoint_setting("kill", hit, times=2, points=points))
        assert {path.name for path in hit.iterdir()} == {point.value for point in points}
        assert len(codes) - 1 >= len(DRIVERS.intersection(points))
        assert lives.left_behind() == []
    assert_equal(tmp_path, pg)


def test_a_snapshot_killed_on_its_way_is_of_one_state(pg: Any, tmp_path: Path) -> None:
    pg.execute("INSERT INTO public.events SELECT FROM generate_series(1, 20000)")
    points = [
        Failpoint.SINK_PREPARED,
        Failpoint.PREPARE_VERIFIED,
        Failpoint.DECISION_RECORDED,
        Failpoint.SINK_COMMITTED,
    ]
    hit = tmp_path / "hit"
    with lives_of(pg, tmp_path, "snapshot") as lives:
        codes = lives.run(POUNDLOCK_FAILPOINTS=failpoint_setting("kill", hit, points=points))
        assert len(codes) > len(points) - 1
    assert {path.name for path in hit.iterdir()} == {point.value for point in points}
    assert_equal(tmp_path, pg)


def test_changes_while_job_and_server_are_killed(pg: Any, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    made = random.Random(seed)
    pg.execute("INSERT INTO public.events SELECT FROM generate_series(1, 300)")
    stop = threading.Event()

    def write() -> None:
        chance = random.Random(seed + 1)
        while not stop.is_set():
            try:
                with pg.connect(autocommit=False, connect_timeout=5) as connection:
                    for _ in range(chance.randrange(1, 6)):
                        id = chance.randrange(1, 600)
                        connection.execute(
                            chance.choice(
                                [
                                    "INSERT INTO public.events SELECT FROM generate_series(1, 3)",
                                    f"UPDATE public.events SET v = v || 'x' WHERE id = {id}",
                                    f"UPDATE public.events SET id = -id WHERE id = {id}",
                                    f"DELETE FROM public.events WHERE id = {id}",
                                ]
                            )
                        )
                    connection.rollback() if chance.random() < 0.2 else connection.commit()
            except Exception:  # the server is being killed
                time.sleep(0.2)
            time.sleep(0.02)

    writer = threading.Thread(target=write)
    with lives_of(pg, tmp_path, "cdc") as lives:
        writer.start()
        try:
            for round in range(4):
                job = lives.start()
                lives.checkpoints(job, made.randrange(1, 4))
                time.sleep(made.random())
                if round == 2:
                    pg.restart()
                    lives.checkpoints(job, made.randrange(1, 3))
                job.kill()
                job.wait(30)
        finally:
            stop.set()
            writer.join()
        expected = dict(pg.execute("SELECT id, v FROM public.events"))
        job = lives.start()
        lives.until(lambda: _reached(tmp_path, expected), job)
        assert lives.stop(job) == 0
        assert lives.left_behind() == []
    rows = written(tmp_path)
    assert replayed(rows) == expected
    places = Counter((row["lsn"], row["number"]) for row in rows if row["op"] != "read")
    assert max(places.values()) == 1
    assert {row["op"] for row in rows} == {"read", "insert", "update", "delete"}


def _reached(root: Path, expected: dict[int, str]) -> bool:
    """Return whether the files have every change up to now; files that are there are whole."""
    try:
        return replayed(written(root)) == expected
    except (AssertionError, KeyError):
        return False  # a file before another's is not finished yet
