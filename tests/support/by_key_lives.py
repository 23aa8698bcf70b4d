"""A job of Spark whose rows replace each other by key in another system, through kills: the newest row of each key has to stay."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from poundlock.failpoints import Failpoint
from support.lives import DRIVERS, STATELESS, Lives, failpoint_setting
from support.torture import tortured

JOB = Path(__file__).parents[1] / "crash/jobs/by_key.py"
KEYS = 1000


class ByKeyLives:
    """One job and its target.

    Args:
        root: a folder of its own.
        environment: what says which sink, and where.
        read: gives the rows that are there now: key to number.
        checkpoints: how often each key is written.
        rate: rows a second; 0: as fast as they are read.
    """

    def __init__(
        self,
        root: Path,
        environment: Mapping[str, str],
        read: Callable[[], Mapping[int, int]],
        *,
        checkpoints: int,
        rate: float = 0,
    ) -> None:
        self._root, self._read, self._rows = root, read, checkpoints * KEYS
        given = {
            "CRASH_ROWS": str(self._rows),
            "CRASH_KEYS": str(KEYS),
            "CRASH_RATE": str(rate),
            "CRASH_CHECKPOINTS": str(root / "checkpoints"),
        }
        self._lives = Lives(JOB, environment={**given, **environment}, folder=root, patience_s=900)

    def to_the_end(self) -> None:
        """Run it undisturbed."""
        with self._lives as lives:
            assert lives.run() == [0]
        self.assert_newest()

    def through_failpoints(self, points: tuple[Failpoint, ...] = STATELESS) -> None:
        """Kill it once at each point."""
        hit = self._root / "hit"
        with self._lives as lives:
            codes = lives.run(POUNDLOCK_FAILPOINTS=failpoint_setting("kill", hit, times=2, points=points))
            assert {path.name for path in hit.iterdir()} == {point.value for point in points}
            assert len(codes) - 1 >= len(DRIVERS.intersection(points))
            assert lives.left_behind() == []
        self.assert_newest()

    def through_random_kills(self, kills: int) -> None:
        """Kill driver, JVM and workers at moments of the seed, which is printed, then let it end."""
        with self._lives as lives:
            job = tortured(lives.start, lambda: None, int(os.environ.get("POUNDLOCK_TORTURE_KILLS", kills)))
            assert lives.end(job) == 0
            assert lives.left_behind() == []
        self.assert_newest()

    def assert_newest(self) -> None:
        """Assert that each key has its newest row, and those whose newest one is a deletion have none."""
        newest = {n % KEYS: n for n in range(self._rows)}
        wanted = {key: n for key, n in newest.items() if (n // KEYS + n) % 3}
        found = dict(self._read())
        wrong = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
        assert not wrong, [(key, wanted.get(key), found.get(key)) for key in wrong[:5]]
