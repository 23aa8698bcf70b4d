"""The checkpoints of a job that writes ten files a task, to a store whose client takes CPU: verified, committed, aborted and swept by the
driver, and by tasks of Spark on this machine, in turn. Arguments: FOLDER ANSWER TASKS…

For each number of tasks that write, ANSWER gets what either way cost: a JSON list. What is written is played as in `many_commits`, by a
process of its own; who verifies, commits, aborts and sweeps are the very coordinator and the very tasks of a job.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from benchmarks.far_store import FarFileSink
from benchmarks.jobs.many_commits import BUCKETS, SINK, SMALL, Life, bucket_of, check
from poundlock import Job
from poundlock.checkpoint.committer import verify_piece
from poundlock.checkpoint.in_tasks import Tasks
from poundlock.checkpoint.participant import Prepared
from poundlock.config import load_settings
from poundlock.connectors.files.sink.rolling import RollingPolicy
from poundlock.spark.launch.spark_launch import begin_spark
from poundlock.spark.small_jobs import SparkTasks

__all__ = ["Way"]

T = TypeVar("T")
R = TypeVar("R")

_CORES = 2
_PIECES = ("verify_piece", "commit_piece", "abort_piece", "remove_piece")


@dataclass(frozen=True, kw_only=True)
class Way:
    """What a checkpoint of so many files cost.

    Args:
        by: "driver" or "tasks".
        verify_s, commit_s: of a checkpoint that finishes all of its files.
        abort_s: of all that such a checkpoint prepared.
        sweep_s: at a start that finds as much.
        cpu_s: that the driver's process spent on all of these, its JVM apart.
        peak_kb: how much more memory that process had at most than before the reports of those who wrote came.
        pieces: tasks that did it, of all four.
    """

    files: int
    by: str
    verify_s: float
    commit_s: float
    abort_s: float
    sweep_s: float
    cpu_s: float
    peak_kb: float
    pieces: int


class CountedTasks:
    """Tasks of Spark, of which it is known how many did their work."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.pieces: dict[str, int] = {}

    def run(self, call: Callable[[list[T]], list[R]], pieces: Sequence[list[T]]) -> list[list[R]]:
        """Return what a call returns for each piece."""
        done = self._tasks.run(call, pieces)
        self.pieces[call.func.__name__] = len(pieces)  # type: ignore[attr-defined]
        return done


def measured(call: Callable[[], object]) -> tuple[float, float]:
    """Return how long a call took, and the CPU of this process, seconds."""
    begin, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - begin, time.process_time() - cpu


def warm(spark: CountedTasks, life: Life) -> None:
    """Have the workers of the tasks there, as they are in a job that has just written."""
    participant = life.coordinator.participants[SINK]
    spark.run(partial(verify_piece, participant), [list[Prepared]() for _ in range(4 * _CORES)])


def take(life: Life, by: str, tasks: int, spark: CountedTasks) -> Way:
    """Take one checkpoint, abort what another prepared, and start where a third left all that it prepared."""
    life.tasks = life.coordinator.tasks = spark if by == "tasks" else None
    spark.pieces.clear()
    took, _ = life.take(tasks)
    prepared = life.write(life.coordinator.begin(life.checkpoints), tasks)
    abort_s, abort_cpu_s = measured(lambda: life.coordinator.abort(prepared))
    check(life)
    life.write(life.coordinator.begin(life.checkpoints), tasks)
    sweep_s, sweep_cpu_s = measured(life.start)
    check(life)
    if tuple(spark.pieces) != (_PIECES if by == "tasks" else ()):
        raise SystemExit(f"by the {by}: what tasks did is {', '.join(spark.pieces) or 'nothing'}")
    return Way(
        files=tasks * BUCKETS, by=by, verify_s=took["verify"], commit_s=took["commit"], abort_s=abort_s, sweep_s=sweep_s,
        cpu_s=took["verify cpu"] + took["commit cpu"] + abort_cpu_s + sweep_cpu_s, peak_kb=life.peak_kb,
        pieces=sum(spark.pieces.values()),
    )  # fmt: skip


def main(folder: Path, answer: Path, sizes: Sequence[int]) -> None:
    """See above."""
    logging.basicConfig(level=logging.WARNING)
    settings = load_settings([f"state_dir={folder / 'state'}", f"master=local[{_CORES}]"])
    job = Job("commits-by-tasks", parallelism=_CORES)
    session = begin_spark(job, settings, log="jvm.log", quick_start=True, exchanges=False, say=print).session()
    spark, ways = CountedTasks(SparkTasks(session, job.name)), list[Way]()
    try:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            for tasks in sizes:
                home, rolling = folder / str(tasks), RollingPolicy(on_checkpoint=True)
                sink = FarFileSink(str(home / "out"), bucket=bucket_of, rolling=rolling, kind_of_store="busy")
                life = Life(home / "checkpoints", sink, pool)
                life.start()
                life.take(SMALL)
                warm(spark, life)
                for by in ("driver", "tasks"):
                    ways.append(take(life, by, tasks, spark))
                    print(json.dumps(asdict(ways[-1])), flush=True)
    finally:
        session.stop()
    answer.write_text(json.dumps([asdict(way) for way in ways]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [int(word) for word in sys.argv[3:]])
