"""A job of Spark whose rows replace each other by key in another system, through kills: the newest row of each key has to stay.

Some rows are poison, which the system takes from nobody: each is in the dead letters once, and takes no other row along.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from poundlock.failpoints import Failpoint
from support.lives import DRIVERS, STATELESS, Lives, failpoint_setting
from support.torture import tortured

JOB = Path(__file__).parents[1] / "crash/jobs/by_key.py"
KEYS = 1000
FOREIGN = -1
"""What somebody else writes, with the job's keys among others: the job's next checkpoint replaces it there."""
_POISON_EACH = 97


class ByKeyLives:
    """One job and its target.

    Args:
        root: a folder of its own.
        environment: what says which sink, and where.
        read: gives the rows that are there now: key to number.
        checkpoints: how often each key is written.
        rate: rows a second; 0: as fast as they are read.
        poison: what is wrong with every 97th row: "null" or "long".
    """

    def __init__(
        self,
        root: Path,
        environment: Mapping[str, str],
        read: Callable[[], Mapping[int, int]],
        *,
        checkpoints: int,
        rate: float = 0,
        poison: str = "null",
    ) -> None:
        self._root, self._read, self._rows = root, read, checkpoints * KEYS
        given = {
            "CRASH_ROWS": str(self._rows),
            "CRASH_KEYS": str(KEYS),
            "CRASH_RATE": str(rate),
            "CRASH_CHECKPOINTS": str(root / "checkpoints"),
            "CRASH_DEAD": str(root / "dead"),
            "CRASH_POISON": poison,
            "CRASH_POISON_EACH": str(_POISON_EACH),
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

    def through_random_kills(self, kills: int, disturb: Callable[[], None] = lambda: None) -> None:
        """Kill driver, JVM and workers at moments of the seed, which is printed, then let it end.

        Args:
            disturb: is called about three times a second until the last kill, by a thread of its own.
        """
        with self._lives as lives:
            number = int(os.environ.get("POUNDLOCK_TORTURE_KILLS", kills))
            job = tortured(lives.start, disturb, number, patience_s=lives.patience_s)
            assert lives.end(job) == 0
            assert lives.left_behind() == []
        self.assert_newest()

    def assert_newest(self) -> None:
        """Assert that each key has its newest row, those whose newest one is a deletion have none, and poison is in the dead letters once."""
        good = [n for n in range(self._rows) if n % _POISON_EACH]
        newest = {n % KEYS: n for n in good}
        wanted = {key: n for key, n in newest.items() if (n // KEYS + n) % 3}
        found = {key: n for key, n in self._read().items() if key < KEYS}
        wrong = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
        assert not wrong, [(key, wanted.get(key), found.get(key)) for key in wrong[:5]]
        dead = [path for path in (self._root / "dead").rglob("*") if path.is_file() and not path.name.startswith(".")]
        numbers = Counter(
            json.loads(json.loads(line)["value"])["n"] for path in dead for line in path.read_text().splitlines()
        )
        assert numbers == Counter(range(0, self._rows, _POISON_EACH))
