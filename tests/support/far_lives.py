"""Lives of a driver with many files on a store that is far away, each killed at one of its calls; without Spark.

A life takes what checkpoints are left to take, one that fails behind its tasks, and ends the job. A store's calls are on their way beside each
other, so that a kill at one of them finds others begun, done, and not begun.
"""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import far_store
from benchmarks.far_store import Calls, FarFileSink, FarStore
from benchmarks.jobs.many_commits import BUCKETS, bucket_of, row_of, write
from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Counts, Occasion
from poundlock.connectors.files.sink import committer
from poundlock.connectors.files.sink.rolling import RollingPolicy
from poundlock.errors import TerminalError
from poundlock.failpoints import ENVIRONMENT
from poundlock.values import SystemClock
from support.forked_lives import live

__all__ = ["CHECKPOINTS", "FILES", "FarJob"]

CHECKPOINTS = 2
TASKS = 3
FILES = TASKS * BUCKETS  # of a checkpoint
THREADS = 7  # fewer than files, so that some are not begun when others are done
_CALL_S = 0.001


class MortalCalls(Calls):
    """Calls of which one is the last thing that the process does; it may have been done by then, by another thread's turn."""

    def __init__(self, last: int | None) -> None:
        super().__init__()
        self.last = last

    def wait(self, seconds: float) -> None:
        if self.made + 1 == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        super().wait(seconds)


@dataclass(frozen=True)
class FarJob:
    """A job that writes many files.

    Args:
        folder: of this job alone.
        store: "moves" or "uploads", see `benchmarks.far_store`.
        pending: whether files wait for the end, with a segment of each checkpoint, instead of being finished by each.
    """

    folder: Path
    store: str
    pending: bool

    def live(self, last_call: int | None = None, failpoints: str = "") -> int:
        """Live in a process of its own, which is killed at so many calls, or at failpoints; return its exit code."""
        return live(_live, self, last_call, {ENVIRONMENT: failpoints})

    def calls(self) -> int:
        """Return how many calls a life made that was not killed."""
        return int((self.folder / "calls").read_text())

    def leftovers(self) -> list[str]:
        """Return the hidden files and the open uploads that are there."""
        hidden = [p.name for p in self.out.rglob("*") if p.is_file() and p.name.startswith(".")]
        uploads = Path(f"{self.out}.uploads")
        return hidden + (os.listdir(uploads) if uploads.exists() else [])

    def rows(self) -> list[str]:
        """Return the rows of all finished files, in order."""
        paths = [p for p in self.out.rglob("*") if p.is_file() and not p.name.startswith(".")]
        return sorted(json.loads(line)["row"] for path in paths for line in path.read_bytes().splitlines())

    @property
    def expected(self) -> list[str]:
        """The rows of all checkpoints."""
        places = [(n, t, b) for n in range(CHECKPOINTS) for t in range(TASKS) for b in range(BUCKETS)]
        return sorted(str(row_of(*place)["row"]) for place in places)

    @property
    def out(self) -> Path:
        """The sink's folder."""
        return self.folder / "out"

    @property
    def sink(self) -> FarFileSink:
        """The sink."""
        times: dict[str, Any] = {"every": None, "size": None, "inactivity": None}
        rolling = RollingPolicy(**times) if self.pending else RollingPolicy(on_checkpoint=True)
        return FarFileSink(str(self.out), bucket=bucket_of, rolling=rolling, kind_of_store=self.store, seconds=_CALL_S)


def _live(job: FarJob, last_call: int | None, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    calls = MortalCalls(last_call)
    with mock.patch.object(far_store, "CALLS", calls), mock.patch.object(committer, "THREADS", THREADS):
        _take_all(job)
    (job.folder / "calls").write_text(str(calls.made))


def _take_all(job: FarJob) -> None:
    storage, clock = FarStore(str(job.folder / "checkpoints"), _CALL_S), SystemClock()
    identity = open_identity(storage, name="far", clock=clock)
    sink = bound(job.sink, job_id=identity.job_id, sink="out")
    epoch = Epoch.claim(storage, clock=clock)
    coordinator = Coordinator(
        identity=identity, epoch=epoch, ledger=Ledger(storage), participants={"out": sink}, clock=clock
    )
    coordinator.recover()

    def tasks(directive: SinkDirectives, lost: int = 0) -> TaskResults:
        prepared = write(job.sink, identity.job_id, directive, uuid.uuid4().hex, TASKS)
        rows = len(prepared)
        return TaskResults(
            prepared=prepared, counts={"out": Counts(read=rows + lost, written=rows)}, rows_read={"rows": rows}
        )

    for n in range(coordinator.newest.checkpoint + 1, CHECKPOINTS):
        span = {"rows": SourceRange(n, n + 1)}
        try:
            coordinator.checkpoint(n, span, lambda directive: tasks(directive, lost=1))
        except TerminalError as error:
            if "do not add up" not in error.what:
                raise
        coordinator.checkpoint(n, span, tasks)
    coordinator.roll(Occasion.END)
    epoch.release()
