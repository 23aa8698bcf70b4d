"""Lives of a driver with many transactions in each decision, each killed between two of their commits; without Spark.

The transactions are committed over several connections at once, so that a kill at one of them leaves others begun, done, and not begun.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from poundlock import KafkaSink, PostgresSink
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Counts, Occasion, Prepared, WriterContext
from poundlock.failpoints import ENVIRONMENT
from poundlock.formats.reject import Reject
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock
from support.forked_lives import live
from support.sinks import lines

__all__ = ["CHECKPOINTS", "TASKS", "TransactionJob"]

CHECKPOINTS = 2
TASKS = 12  # more than the connections that commit, so that some are not begun when others are done
_ROWS = 3  # of a task
_SINK = "out"


@dataclass(frozen=True)
class TransactionJob:
    """A job each of whose tasks writes a transaction in every checkpoint.

    Args:
        folder: of this job alone.
        sink: where it writes, which is there already; what is there is of this job alone.
    """

    folder: Path
    sink: KafkaSink | PostgresSink

    def live(self, failpoints: str = "") -> int:
        """Live in a process of its own, which is killed at failpoints; return its exit code."""
        return live(_live, self, failpoints)

    @property
    def expected(self) -> Counter[str]:
        """The rows of all checkpoints."""
        return Counter(row for n in range(CHECKPOINTS) for task in range(TASKS) for row in _rows(n, task))


def _rows(checkpoint: int, task: int) -> list[str]:
    return [f"{checkpoint}/{task}/{row}" for row in range(_ROWS)]


def _live(job: TransactionJob, failpoints: str) -> None:
    os.environ[ENVIRONMENT] = failpoints
    storage, clock = LocalStorage(str(job.folder)), SystemClock()
    identity = open_identity(storage, name="transactions", clock=clock)
    sink = job.sink.bind(job_id=identity.job_id, sink=_SINK)
    with Epoch.claim(storage, clock=clock) as epoch:
        coordinator = Coordinator(
            identity=identity, epoch=epoch, ledger=Ledger(storage), participants={_SINK: sink}, clock=clock
        )
        coordinator.recover()

        def tasks(directive: SinkDirectives) -> TaskResults:
            prepared = [
                Prepared(_SINK, task, payload)
                for task in range(TASKS)
                for payload in _write(sink, identity.job_id, directive, task)
            ]
            rows = TASKS * _ROWS
            return TaskResults(
                prepared=prepared, counts={_SINK: Counts(read=rows, written=rows)}, rows_read={"rows": rows}
            )

        for n in range(coordinator.newest.checkpoint + 1, CHECKPOINTS):
            coordinator.checkpoint(n, {"rows": SourceRange(n, n + 1)}, tasks)
        coordinator.roll(Occasion.END)


def _write(
    sink: KafkaSink | PostgresSink, job_id: str, directive: SinkDirectives, task: int
) -> list[dict[str, object]]:
    """Be a task of a checkpoint; return what it prepared."""
    context = WriterContext(
        job_id=job_id, sink=_SINK, epoch=directive.epoch, checkpoint=directive.checkpoint, subtask=task,
        attempt=uuid.uuid4().hex, directive=directive.sinks[_SINK], reject=_refuse, started_ms=directive.started_ms,
    )  # fmt: skip
    writer = sink.open_writer(context)
    writer.write(lines(*(row.encode() for row in _rows(directive.checkpoint, task))))
    return [dict(payload) for payload in writer.prepare()]


def _refuse(record: Reject) -> None:
    raise AssertionError(record.reason)
