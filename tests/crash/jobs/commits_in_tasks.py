"""The crash tests' job whose files are verified, committed, aborted and swept by tasks, on a store played on the local disk.

Each call that such a task makes to the store is counted, and at the one that a kill names it does not return: CRASH_KILLS has a list of
[piece, run, call, victim], where piece is the name of what the tasks run, run and call are counted from 0 and 1 in a life and in a run, and
victim is "driver" or "worker". A folder CRASH_MARKS gets a file for each run, which is as long as it made calls, and one for each kill.
"""

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from os import environ
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[3]), str(Path(__file__).parents[2])]

from benchmarks import far_store
from poundlock import DatagenSource, Job, RollingPolicy
from poundlock.connectors.files.sink import committer
from poundlock.spark.small_jobs import SparkTasks

BUCKETS = 6
RUN = "CRASH_RUN"


class MortalCalls(far_store.Calls):
    """Calls that are counted in files, by every process, where a task makes them; some are the last thing that a process does."""

    def __init__(self, marks: Path, kills: Sequence[Sequence[Any]], driver: int) -> None:
        self._marks, self._driver = marks, driver  # without what the other calls have, which does not travel
        self._kills = {(f"{piece}-{run}", call): victim for piece, run, call, victim in kills}

    def wait(self, seconds: float) -> None:
        run = environ.get(RUN, "")
        victim = self._kills.get((run, self._count(run))) if run else None
        if victim is not None:
            (self._marks / f"killed-{victim}-{run}").touch()
            os.kill(self._driver if victim == "driver" else os.getpid(), signal.SIGKILL)
        time.sleep(seconds)

    def _count(self, run: str) -> int:
        handle = os.open(self._marks / f"calls-{run}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(handle, b".")
            return os.lseek(handle, 0, os.SEEK_CUR)  # behind what this process has appended
        finally:
            os.close(handle)


def named(run: str, call: Callable[[list[Any]], list[Any]], piece: list[Any]) -> list[Any]:
    """Do a piece of work in a task, whose calls are counted."""
    environ[RUN] = run
    try:
        return call(piece)
    finally:
        del environ[RUN]


def run_named(
    tasks: SparkTasks, call: Callable[[list[Any]], list[Any]], pieces: Sequence[list[Any]]
) -> list[list[Any]]:
    piece = call.func.__name__  # type: ignore[attr-defined]
    run = f"{piece}-{RUNS[piece]}"
    RUNS[piece] += 1
    return RUN_PIECES(tasks, partial(named, run, call), pieces)


def row_of(number: int, chance: object) -> dict[str, str]:
    return {"bucket": f"b{number % BUCKETS}", "row": f"{number:06d}"}


def bucket_of(row: dict[str, str]) -> str:
    return row["bucket"]


RUNS: Counter[str] = Counter()
RUN_PIECES = SparkTasks.run
SparkTasks.run = run_named  # type: ignore[assignment, method-assign]
far_store.CALLS = MortalCalls(Path(environ["CRASH_MARKS"]), json.loads(environ["CRASH_KILLS"]), os.getpid())
far_store.FarStore.client_s = 0.1
committer.DRIVER_S = 0.2  # three calls are more than the driver keeps for itself, and a task does five

job = Job(
    "commits-in-tasks",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    on_error="fail",
    parallelism=2,
)
never: dict[str, Any] = {"every": None, "size": None, "inactivity": None}
job.from_source(
    DatagenSource(
        row_of,
        schema="bucket string, row string",
        count=2 * BUCKETS * int(environ["CRASH_COUNT"]),
        rows_per_checkpoint=2 * BUCKETS,
        rows_per_split=BUCKETS,
    ),
    name="rows",
).sink_to(
    far_store.FarFileSink(
        environ["CRASH_OUT"],
        bucket=bucket_of,
        rolling=RollingPolicy(**never) if environ["CRASH_PENDING"] else RollingPolicy(on_checkpoint=True),
        kind_of_store=environ["CRASH_STORE"],
        seconds=0.001,
    ),
    name="out",
)
