"""A job from a Delta table into two others, killed at every step and at random: each row is added once, and the newest of each key is there.

Another writer adds rows to the same table all the while.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poundlock.cli.main import main
from poundlock.failpoints import Failpoint
from support.delta_tables import append, rows_of
from support.lives import DRIVERS, STATELESS, Lives, failpoint_setting, folders_of
from support.torture import kept_ahead, tortured

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/delta.py"
KEYS = 40


class Tables:
    """The table that is read, and those that are written."""

    def __init__(self, root: Path) -> None:
        self.root, self.rows, self.foreign = root, 0, 0

    def produce(self, commits: int = 1, rows: int = 200) -> None:
        """Commit some rows more to the table that is read."""
        for _ in range(commits):
            append(str(self.root / "in"), self._of(range(self.rows, self.rows + rows)))
            self.rows += rows

    def write_beside(self) -> None:
        """Commit a row to the table that the job adds to, as another program does."""
        if (self.root / "out/added/_delta_log").exists():
            append(str(self.root / "out/added"), self._of([-1 - self.foreign]))
            self.foreign += 1

    def _of(self, ids: range | list[int]) -> pa.Table:
        days, keys = [f"d{n % 3}" for n in ids], pa.array([n % KEYS for n in ids], pa.int64())
        return pa.table({"id": pa.array(ids, pa.int64()), "day": days, "k": keys, "v": [f"v{n}" for n in ids]})

    def waiting(self) -> int:
        """Return how many rows the job has not merged yet."""
        if not (self.root / "out/merged/_delta_log").exists():
            return self.rows
        return self.rows - 1 - max((row["id"] for row in rows_of(str(self.root / "out/merged"))), default=-1)

    def newest(self) -> dict[int, int]:
        """Return the newest row of each key where the table is read as it is: a version's files come in the order of their names."""
        files = sorted((self.root / "in").glob("*.parquet"))
        ids = [n for file in files for n in pq.read_table(file)["id"].to_pylist()]
        return {n % KEYS: n for n in ids}

    def assert_exact(self, *, as_it_grew: bool = False) -> None:
        """Assert that nothing is missing and nothing is there twice; of a table that was read as it grew the last commit has the newest rows."""
        found = Counter(row["id"] for row in rows_of(str(self.root / "out/added")))
        wanted = Counter([*range(self.rows), *range(-self.foreign, 0)])
        assert found == wanted, f"{(found - wanted).total()} too many, {(wanted - found).total()} missing"
        merged = {row["k"]: row["id"] for row in rows_of(str(self.root / "out/merged"))}
        assert merged == ({n % KEYS: n for n in range(self.rows)} if as_it_grew else self.newest())
        assert not list((self.root / "out/merged/_poundlock").rglob("*.parquet")), "what was merged is removed"
        assert main(["audit", str(self.root / "checkpoints")]) == 0


def lives_of(root: Path, **more: str) -> Lives:
    return Lives(JOB, environment={**folders_of(root, root / "in"), **more}, folder=root)


@pytest.mark.torture
def test_killed_at_every_failpoint_beside_another_writer(tmp_path: Path) -> None:
    tables, done = Tables(tmp_path), threading.Event()
    tables.produce(14)

    def write() -> None:
        while not done.wait(1):
            tables.write_beside()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        with lives_of(tmp_path) as lives:
            hit = tmp_path / "hit"
            codes = lives.run(POUNDLOCK_FAILPOINTS=failpoint_setting("kill", hit, times=2, points=STATELESS))
            assert {path.name for path in hit.iterdir()} == {point.value for point in STATELESS}
            assert len(codes) - 1 >= len(DRIVERS.intersection(STATELESS))
            assert lives.left_behind() == []
    finally:
        done.set()
        writer.join(60)
    assert tables.foreign
    tables.assert_exact()


@pytest.mark.torture
def test_killed_around_the_commit(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.produce(4)
    points = (Failpoint.DECISION_RECORDED, Failpoint.SINK_COMMITTED)
    with lives_of(tmp_path) as lives:
        codes = lives.run(POUNDLOCK_FAILPOINTS=failpoint_setting("kill", tmp_path / "hit", points=points))
        assert len(codes) == 1 + len(points)
    tables.assert_exact()


@pytest.mark.torture
def test_killed_at_random(tmp_path: Path) -> None:
    tables, number = Tables(tmp_path), count()
    tables.produce(2)

    def produce() -> None:
        if next(number) % 3 == 0:
            tables.write_beside()
        kept_ahead(tables.produce, tables.waiting, 2_000)()

    with lives_of(tmp_path, CRASH_WATCH="1") as lives:
        job = tortured(lives.start, produce, int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "25")))
        job = lives.until(lambda: tables.waiting() == 0, job)
        assert lives.stop(job) == 0
        assert lives.left_behind() == []
    tables.assert_exact(as_it_grew=True)
