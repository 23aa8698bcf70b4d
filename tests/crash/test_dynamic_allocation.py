"""Dynamic allocation on a real standalone cluster: executors come with the input and go without it, and nothing is lost or done twice."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.cluster import StandaloneCluster
from support.lives import Lives, files_found

pytestmark = [pytest.mark.crash, pytest.mark.engine, pytest.mark.torture]

JOB = Path(__file__).parent / "jobs" / "come_and_go.py"
EXECUTORS, WAVES = 4, 3
KEYS, ROWS = 40, 20
IDLE = "15s"
BEGIN = datetime(2018, 12, 19, tzinfo=UTC)
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": str(EXECUTORS),
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": "1s",
    # Longer than a checkpoint's part between two stages on a busy machine, or none would be there together.
    "spark.dynamicAllocation.executorIdleTimeout": IDLE,
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": IDLE,
    "spark.dynamicAllocation.shuffleTracking.timeout": IDLE,
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
}
PATIENCE_S = 600.0


class Input:
    """Rows in files that appear whole, and what has to come of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._made = folder, random.Random(seed)
        folder.mkdir()
        self.files = 0
        self.rows: Counter[str] = Counter()
        self.sums: dict[tuple[str, datetime], tuple[int, int]] = {}

    def wave(self, files: int = EXECUTORS) -> None:
        """Write some files."""
        for _ in range(files):
            rows = [self._row() for _ in range(ROWS)]
            hidden = self._folder / f".{self.files:05d}.jsonl"
            hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
            hidden.rename(self._folder / f"{self.files:05d}.jsonl")
            self.files += 1

    def _row(self) -> dict[str, Any]:
        key, second = f"k{self._made.randrange(KEYS)}", self._made.randrange(1_800)
        value = self._made.randrange(1_000_000)
        self.rows[key] += 1
        window = key, BEGIN + timedelta(seconds=second // 10 * 10)
        n, total = self.sums.get(window, (0, 0))
        self.sums[window] = n + 1, total + value
        return {"k": key, "at": int((BEGIN.timestamp() + second) * 1000), "v": value}


class Watched:
    """How many executors there are, looked at again and again beside everything else."""

    def __init__(self, cluster: StandaloneCluster) -> None:
        self._cluster = cluster
        self.seen: list[int] = [0]  # each number that was another than the one before
        self._since = 0
        self._over = threading.Event()

    @contextmanager
    def looking(self) -> Iterator[None]:
        thread = threading.Thread(target=self._look, name="executors", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def begin(self) -> None:
        """Note the greatest number from now on."""
        self._since = len(self.seen)

    @property
    def wave(self) -> list[int]:
        """The numbers since then."""
        return self.seen[self._since :]

    def _look(self) -> None:
        while not self._over.wait(0.3):
            if (count := len(self._cluster.executors())) != self.seen[-1]:
                self.seen.append(count)


def waited(reached: Callable[[], bool], lives: Lives, meanwhile: Callable[[], None] | None = None) -> None:
    """Wait until something holds, and do something every two seconds meanwhile."""
    assert lives.job is not None
    begun = time.monotonic()
    due = begun
    while not reached():
        assert lives.job.exit_code is None, lives.job.log_tail()
        assert time.monotonic() < begun + PATIENCE_S, lives.job.log_tail()
        if meanwhile is not None and time.monotonic() > due:
            meanwhile()
            due = time.monotonic() + 2
        time.sleep(0.2)


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.rglob("part-*") for line in path.read_text().splitlines()]


def test_executors_come_and_go_and_nothing_is_lost(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    moments, given, out = random.Random(seed), Input(tmp_path / "in", seed), tmp_path / "out"
    environment = {
        "CRASH_IN": str(tmp_path / "in"), "CRASH_OUT": str(out), "CRASH_CHECKPOINTS": str(tmp_path / "checkpoints"),
    }  # fmt: skip
    conf = [word for name, value in DYNAMIC.items() for word in ("--conf", f"{name}={value}")]
    with StandaloneCluster(EXECUTORS) as cluster:
        executors = Watched(cluster)
        arguments = ["--master", cluster.master, "-p", str(EXECUTORS), *conf]
        with (
            Lives(JOB, environment=environment, folder=tmp_path, arguments=arguments) as lives,
            executors.looking(),
        ):
            given.wave()
            job = lives.start(CRASH_WATCH="1")
            lives.checkpoints(job, 1)
            waited(lambda: executors.seen[-1] == 0, lives)
            for number in range(WAVES):
                executors.begin()
                try:
                    waited(lambda: EXECUTORS in executors.wave, lives, given.wave)
                finally:
                    print(f"wave {number}: executors {executors.wave}")
                if number:  # one dies while others come and go
                    time.sleep(moments.random() * 3)
                    given.wave()
                    if there := cluster.executors():
                        moments.choice(there).kill()
                waited(lambda: executors.seen[-1] == 0, lives)
                print(f"wave {number}: executors {executors.wave}, {given.files} files")
            given.wave()  # it goes on from none
            job = lives.until(lambda: files_found(tmp_path / "checkpoints", "rows") == given.files, job)
            assert lives.stop(job) == 0
            assert lives.run(CRASH_WATCH="0") == [0]  # what the stop left unread, and the windows
            assert lives.left_behind() == []
    numbers: dict[str, list[int]] = {}
    for row in read(out / "numbers"):
        numbers.setdefault(row["k"], []).append(row["n"])
    assert {key: sorted(found) for key, found in numbers.items()} == {
        key: list(range(1, count + 1)) for key, count in given.rows.items()
    }
    sums = read(out / "sums")
    found = [(row["k"], datetime.fromisoformat(row["window_start"]), row["n"], row["v"]) for row in sums]
    assert sorted(found) == sorted((key, start, n, total) for (key, start), (n, total) in given.sums.items())
    assert [path for path in out.rglob(".*") if path.is_file()] == []
