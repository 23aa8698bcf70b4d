"""A PostgresSink or JdbcSink under the coordinator without Spark: a checkpoint folder, lives of a driver, and writers in this process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from poundlock import PostgresSink
from poundlock.checkpoint.committer import Retry
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import Identity, open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import Outcome, SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Counts, Participant, Prepared, WriterContext
from poundlock.formats.chunk import Batch
from poundlock.formats.reject import Reject
from poundlock.storage import LocalStorage
from poundlock.testing.postgres import EmbeddedPostgres
from poundlock.values import SystemClock


class Rig:
    """One job's checkpoint folder and sink; each `driver()` is a life of its own."""

    def __init__(self, root: Path, sink: Any) -> None:
        self.sink = sink
        self.storage = LocalStorage(str(root))
        self.identity: Identity = open_identity(self.storage, name="rig", clock=SystemClock())
        self.bound = sink.bind(job_id=self.identity.job_id, sink="out")
        self.epoch: Epoch | None = None
        self.rejects: list[Reject] = []

    def driver(self, sink: Participant | None = None) -> Coordinator:
        if self.epoch is not None:
            self.epoch.__exit__(None, None, None)
        self.epoch = Epoch.claim(self.storage, clock=SystemClock(), sinks=self._described())
        driver = Coordinator(
            identity=self.identity,
            epoch=self.epoch,
            ledger=Ledger(self.storage),
            participants={"out": sink or self.bound},
            clock=SystemClock(),
            retry=Retry(attempts=8, first_s=0.05, most_s=0.5),
        )
        driver.recover()
        return driver

    def _described(self) -> dict[str, Any]:
        return {"out": self.bound.describe_json()} if isinstance(self.bound, PostgresSink) else {}

    def context(self, checkpoint: int, subtask: int = 0, epoch: int = 1) -> WriterContext:
        return WriterContext(
            job_id=self.identity.job_id, sink="out", epoch=epoch, checkpoint=checkpoint, subtask=subtask,
            attempt=uuid.uuid4().hex[:12], directive={}, reject=self.rejects.append, started_ms=0,
        )  # fmt: skip

    def write(self, checkpoint: int, tasks: Sequence[Mapping[str, Any]], epoch: int = 1) -> list[Prepared]:
        """Write each task's columns."""
        prepared = []
        for subtask, columns in enumerate(tasks):
            writer = self.bound.open_writer(self.context(checkpoint, subtask, epoch))
            writer.write(batch(**columns))
            prepared += [Prepared("out", subtask, payload) for payload in writer.prepare()]
        return prepared

    def checkpoint(
        self,
        driver: Coordinator,
        n: int,
        tasks: Sequence[Mapping[str, Any]],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Take a checkpoint in which each task writes the columns given; `meanwhile` runs when all are prepared."""
        rows = sum(len(next(iter(columns.values()))) for columns in tasks)

        def run(directive: SinkDirectives) -> TaskResults:
            if directive.decided:
                return TaskResults(prepared=[])
            before = len(self.rejects)
            prepared = self.write(n, tasks)
            meanwhile()
            bad = len(self.rejects) - before
            counts = {"out": Counts(read=rows, written=rows - bad, dead_lettered=bad)}
            return TaskResults(prepared=prepared, counts=counts)

        return driver.checkpoint(n, {"in": SourceRange(n, n + 1)}, run)


def batch(**columns: Any) -> Batch:
    """Return columns as a chunk."""
    return Batch(pa.record_batch({k: v if isinstance(v, pa.Array) else pa.array(v) for k, v in columns.items()}))


def open_transactions(server: EmbeddedPostgres) -> list[str]:
    """Return the prepared transactions of the server."""
    return [gid for (gid,) in server.execute("SELECT gid FROM pg_prepared_xacts ORDER BY gid")]
