"""Keyed state of a million keys on a cluster: driver, worker and executor die again and again, and a model agrees on every key.

The model is computed apart, from the input alone. Then the state goes on at another parallelism, from a savepoint.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.json
import pytest

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.storage import LocalStorage
from poundlock.testing.job_process import JobProcess, completed
from support.cluster import StandaloneCluster
from support.lives import Lives

pytestmark = [pytest.mark.crash, pytest.mark.torture]

JOB = Path(__file__).parent / "jobs/million_keys.py"
KEYS = int(os.environ.get("POUNDLOCK_KEYS", "1000000"))
KILLS = int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "20"))
TOUCHED = 2_000  # rows of a small file
PATIENCE_S = 600.0


class Model:
    """The input, and what has to come of it: per key the number of its rows and the sum of their values."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        folder.mkdir()
        self._made = np.random.default_rng(seed)
        self.rows = np.zeros(KEYS, np.int64)
        self.totals = np.zeros(KEYS, np.int64)
        self.files = 0

    def write(self, keys: np.ndarray) -> None:
        """Write a file with a row for each of the keys."""
        values = self._made.integers(1, 1_000, len(keys))
        np.add.at(self.rows, keys, 1)
        np.add.at(self.totals, keys, values)
        hidden = self._folder / f".{self.files:05d}.jsonl"
        hidden.write_text(
            "".join(f'{{"k":{k},"v":{v}}}\n' for k, v in zip(keys.tolist(), values.tolist(), strict=True))
        )
        hidden.rename(self._folder / f"{self.files:05d}.jsonl")
        self.files += 1

    def every_key(self) -> None:
        for part in np.array_split(self._made.permutation(KEYS), 4):
            self.write(part)

    def some_keys(self) -> None:
        self.write(self._made.integers(0, KEYS, TOUCHED))

    def assert_agrees(self, out: Path) -> None:
        """Assert that each row of a key came once, numbered without a gap, and that the last says their sum."""
        files = [p for p in out.rglob("part-*") if not p.name.startswith((".", "_"))]
        found = pa.concat_tables([pyarrow.json.read_json(path) for path in files])
        k, n, total = (found[name].to_numpy() for name in ("k", "n", "total"))
        order = np.lexsort((n, k))
        k, n, total = k[order], n[order], total[order]
        first = np.concatenate(([0], np.cumsum(self.rows)[:-1]))
        assert len(k) == self.rows.sum(), f"{len(k)} rows came out of {self.rows.sum()}"
        assert np.array_equal(k, np.repeat(np.arange(KEYS), self.rows)), "another key than the model's"
        assert np.array_equal(n, np.arange(len(k)) - np.repeat(first, self.rows) + 1), "a gap or a repetition"
        seen = self.rows > 0
        assert np.array_equal(total[np.cumsum(self.rows)[seen] - 1], self.totals[seen])


def newest(job: JobProcess) -> int:
    return max((completed(line.value) for line in job.lines()), default=-1)


def rows_read(folder: Path) -> int:
    """Return how many rows the decisions of a checkpoint folder name."""
    decisions = (each for each in Ledger(LocalStorage(str(folder))) if each.occasion == "checkpoint")
    return sum(span.rows or 0 for decision in decisions for span in decision.sources.values())


def goes_on(lives: Lives, job: JobProcess, model: Model) -> JobProcess:
    """Give the job more rows until it completed two checkpoints more, and a new life where it has none; return the living one."""
    end, start, told, due = time.monotonic() + PATIENCE_S, newest(job), -2, 0.0
    while (seen := newest(job)) < start + 2:
        if job.exit_code is not None:
            assert job.exit_code == -signal.SIGKILL, job.log_tail()
            job, start = lives.start(CRASH_WATCH="1"), -1
        assert time.monotonic() < end, job.log_tail()
        if seen != told or time.monotonic() > due:  # as much as it takes, and no more: all of it is read in the end
            model.some_keys()
            told, due = seen, time.monotonic() + 10
        time.sleep(0.5)
    return job


def strike(victim: str, job: JobProcess, cluster: StandaloneCluster, made: random.Random) -> str:
    """Kill an executor, a Python worker of one, or the driver where there is no such process now; return what was hit."""
    executors = list(cluster.executors())
    if victim == "executor" and executors:
        made.choice(executors).kill()
        return victim
    if victim == "worker":
        with contextlib.suppress(psutil.Error):
            found = [child for executor in executors for child in executor.children(recursive=True)]
            if workers := [child for child in found if not child.children()]:
                made.choice(workers).kill()
                return victim
    job.kill()
    return "driver"


@pytest.mark.timeout(7200)
def test_a_million_keys_through_deaths_of_driver_worker_and_executor(tmp_path: Path) -> None:
    seed = int(os.environ.get("POUNDLOCK_TORTURE_SEED") or random.randrange(1 << 30))
    print(f"seed {seed}")
    made = random.Random(seed)
    model = Model(tmp_path / "in", seed)
    out = tmp_path / "out"
    environment = {"CRASH_IN": str(tmp_path / "in"), "CRASH_OUT": str(out)}
    with StandaloneCluster(2) as cluster:
        small = ["--master", cluster.master, "--conf", "spark.executor.memory=512m", "-D", "executor_timeout=15 s"]
        before = {**environment, "CRASH_CHECKPOINTS": str(tmp_path / "checkpoints")}
        struck: Counter[str] = Counter()
        model.every_key()
        with Lives(
            JOB, environment=before, folder=tmp_path, arguments=["-p", "2", *small], patience_s=PATIENCE_S
        ) as lives:
            job = goes_on(lives, lives.start(CRASH_WATCH="1"), model)
            for number in range(KILLS):
                time.sleep(made.uniform(0, 1.5))
                model.some_keys()
                hit = strike(("driver", "worker", "executor")[number % 3], job, cluster, made)
                struck[hit] += 1
                print(f"kill {number + 1}/{KILLS}: {hit}", flush=True)
                job = goes_on(lives, job, model)
            assert struck.total() == KILLS
            assert min(struck[victim] for victim in ("driver", "worker", "executor")) >= KILLS // 6, struck
            savepoint = stopped_with_a_savepoint(tmp_path)
            assert lives.end(job) == 0
            assert lives.left_behind() == []
        after = {**environment, "CRASH_CHECKPOINTS": str(tmp_path / "checkpoints-2")}
        model.every_key()
        with Lives(
            JOB, environment=after, folder=tmp_path, arguments=["-p", "3", *small], patience_s=PATIENCE_S
        ) as lives:
            job = goes_on(lives, lives.start("-s", savepoint, CRASH_WATCH="1"), model)
            folders = [tmp_path / "checkpoints", tmp_path / "checkpoints-2"]
            job = lives.until(lambda: sum(map(rows_read, folders)) == model.rows.sum(), job)
            assert lives.stop(job) == 0
    print(f"{model.rows.sum()} rows of {KEYS} keys in {model.files} files, {dict(struck)}")
    model.assert_agrees(out)


def stopped_with_a_savepoint(folder: Path) -> str:
    command = ["stop", "-p", str(folder / "savepoints"), "-D", f"state_dir={folder / 'state'}", "crash-million-keys"]
    done = subprocess.run(
        [sys.executable, "-m", "poundlock", *command], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = set(re.findall(rf"{re.escape(str(folder / 'savepoints'))}/\S*savepoint-[0-9a-f-]+", done.stdout))
    return path
