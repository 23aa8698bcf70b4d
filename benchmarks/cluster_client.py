"""Runs a job with keyed state on four executors, gives it rows, and kills an executor now and then.

Arguments: ROOT KEYS CHECKPOINTS KILLS. First comes a row for each key, then a file of some thousand rows half a second, until so
many checkpoints were taken; between two kills as many again. ROOT/found gets what is in `Found`, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.json
from tests.support.cluster import StandaloneCluster

from benchmarks.bench import ROOT as REPOSITORY
from benchmarks.data import WrongOutput
from poundlock.testing.job_process import JobProcess, completed, end_tagged, new_tag

__all__ = ["Found", "prove"]

_EXECUTORS, _SEED = 4, 11
_TOUCHED, _EVERY_S, _PATIENCE_S = 2_000, 0.5, 900.0
_SMALL = ("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.extraJavaOptions=-XX:+UseSerialGC")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a run of the client notes.

    Args:
        rows: how many rows each key was given, by key as text.
        locality: of each checkpoint of a quiet time, the part of the key groups that stayed where they were.
        took_s: for each kill, seconds to the completion of the next checkpoint.
        caught_up_s: for each kill, seconds until every row that was there by then was read.
    """

    rows: Mapping[str, int]
    locality: list[float]
    took_s: list[float]
    caught_up_s: list[float]


def prove(out: Path, rows: Mapping[str, int]) -> None:
    """Read every finished file: each key's rows are numbered from 1 without a gap, and the last is the number of its rows.

    Raises:
        WrongOutput: a row is missing or twice.
    """
    files = [path for path in out.rglob("part-*") if not path.name.startswith((".", "_"))]
    found = pa.concat_tables([pyarrow.json.read_json(path) for path in files])
    k, n = (found[name].to_numpy() for name in ("k", "n"))
    given = np.array(sorted((int(key), count) for key, count in rows.items()), np.int64)
    wanted = np.repeat(given[:, 0], given[:, 1])
    first = np.repeat(np.concatenate(([0], np.cumsum(given[:, 1])[:-1])), given[:, 1])
    order = np.lexsort((n, k))
    if len(k) != len(wanted) or (k[order] != wanted).any() or (n[order] != np.arange(len(k)) - first + 1).any():
        raise WrongOutput(f"of {len(wanted)} rows {len(k)} came out, or their numbers have gaps")


class Input:
    """Rows of keys, in files that appear whole."""

    def __init__(self, folder: Path, keys: int) -> None:
        self._folder, self._keys = folder, keys
        folder.mkdir(parents=True)
        self._made = np.random.default_rng(_SEED)
        self.rows = np.zeros(keys, np.int64)
        self._files = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def every_key(self) -> None:
        """Write a row for each key, in several files."""
        for part in np.array_split(self._made.permutation(self._keys), _EXECUTORS):
            self._write(part)

    def begin(self) -> None:
        """Write a file of some rows twice a second from now on."""
        self._thread.start()

    def end(self) -> None:
        """Write no more."""
        self._ended.set()
        self._thread.join()

    @property
    def total(self) -> int:
        """How many rows there are."""
        with self._lock:
            return int(self.rows.sum())

    def _go_on(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self._write(self._made.integers(0, self._keys, min(_TOUCHED, self._keys)))

    def _write(self, keys: np.ndarray) -> None:
        hidden = self._folder / f".{self._files:06d}.jsonl"
        hidden.write_text("".join(f'{{"k":{key},"v":1}}\n' for key in keys.tolist()))
        with self._lock:
            np.add.at(self.rows, keys, 1)
            hidden.rename(self._folder / f"{self._files:06d}.jsonl")
        self._files += 1


class Watched:
    """The job's process, and what it has said so far."""

    def __init__(self, job: JobProcess) -> None:
        self.job = job

    def until(self, reached: str, value: int) -> float:
        """Wait until the job has read so many rows ("rows"), or completed so high a checkpoint ("checkpoint"); return when that was told."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            for line in self.job.lines():
                seen = completed(line.value) if reached == "checkpoint" else int(line.value.get("rows_read") or 0)
                if seen >= value:
                    return line.at
            if self.job.exit_code is not None:
                raise SystemExit(f"the job ended by itself: {self.job.log_tail()}")
            time.sleep(0.1)
        raise SystemExit(f"the job did not reach {reached} {value}: {self.job.log_tail()}")

    @property
    def newest(self) -> int:
        """The newest completed checkpoint."""
        return max((completed(line.value) for line in self.job.lines()), default=-1)

    def locality(self, first: int) -> list[float]:
        """Return the locality of each checkpoint behind one."""
        by_checkpoint = {
            completed(line.value): float(line.value["state_locality"])
            for line in self.job.lines()
            if completed(line.value) > first and line.value.get("state_locality") is not None
        }
        return list(by_checkpoint.values())


def main(root: Path, keys: int, checkpoints: int, kills: int) -> None:
    """See above."""
    moments, given, tag = random.Random(_SEED), Input(root / "in", keys), new_tag()
    took: list[float] = []
    caught_up: list[float] = []
    with StandaloneCluster(_EXECUTORS, home=root / "cluster") as cluster:
        job = Watched(
            JobProcess(
                REPOSITORY / "benchmarks/jobs/cluster_state.py",
                arguments=["--master", cluster.master, "-p", str(_EXECUTORS), *_SMALL],
                environment={"CLUSTER_ROOT": str(root)}, tag=tag, log=root / "job.log",
            )
        )  # fmt: skip
        try:
            given.every_key()
            job.until("rows", keys)
            given.begin()
            begun = job.newest
            job.until("checkpoint", begun + checkpoints)
            locality = job.locality(begun)
            for _ in range(kills):
                time.sleep(moments.random() * 2)  # anywhere in a checkpoint
                before, killed = job.newest, time.monotonic()
                moments.choice(cluster.executors()).kill()
                there = given.total
                took.append(job.until("checkpoint", before + 2) - killed)
                caught_up.append(job.until("rows", there) - killed)
                job.until("checkpoint", job.newest + checkpoints // 4)
            given.end()
            job.until("rows", given.total)
            job.job.terminate()
            if code := job.job.wait(_PATIENCE_S):
                raise SystemExit(f"the job ended with {code}: {job.job.log_tail()}")
        finally:
            end_tagged(tag, patience_s=0)
    rows = {str(key): int(count) for key, count in enumerate(given.rows)}
    found = Found(rows=rows, locality=locality, took_s=took, caught_up_s=caught_up)
    (root / "found").write_text(json.dumps(asdict(found)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
