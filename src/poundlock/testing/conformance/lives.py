"""What runs in child processes: one life of a driver, one attempt of a task, and single calls of a participant.

Everything goes in as plain values and comes out as plain values; the sink comes as the bytes that Spark would take to a task.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from poundlock.checkpoint.capabilities import Closable, Inspectable, Preflight, bound, participant_of
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    Counts,
    Occasion,
    Orphan,
    Participant,
    Prepared,
    WriterContext,
)
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Batch, Chunk, KafkaOrigin, Lines, Records
from poundlock.formats.reject import Reject
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock

Form = Literal["batch", "records", "lines"]
_HELD_S = 60.0


@dataclass(frozen=True)
class SinkJob:
    """A job of one sink.

    Args:
        sink: as Spark ships it.
        job_id: 32 hex digits.
    """

    sink: bytes
    folder: str
    name: str
    job_id: str
    sink_name: str = "out"

    def participant(self) -> Participant:
        """Return the sink as this job owns it, made again."""
        return bound(participant_of(pickle.loads(self.sink)), job_id=self.job_id, sink=self.sink_name)


@dataclass(frozen=True)
class Task:
    """One attempt of one task.

    Args:
        rows: what comes to it: the schema and the rows, in the order of its pieces.
        first: number of the first row in the task's partition.
        die: kill the process after the last row, or once all is prepared.
        hold: a path: after the last row a file "<hold>.held" says so, and the task goes on when <hold> is there.
    """

    checkpoint: int
    subtask: int
    schema: pa.Schema
    rows: Sequence[Sequence[Mapping[str, Any]]]
    first: int = 0
    form: Form = "batch"
    die: Literal["", "writing", "prepared"] = ""
    hold: str = ""
    abandon: bool = False


@dataclass(frozen=True)
class TaskOutput:
    """What a task reported: its prepared payloads, and its rows."""

    subtask: int
    payloads: Sequence[JSON]
    read: int
    written: int
    rejects: Sequence[Reject]


def chunk_of(schema: pa.Schema, rows: Sequence[Mapping[str, Any]], form: Form, subtask: int, first: int) -> Chunk:
    """Return rows as a chunk that says where each came from."""
    numbers = np.arange(first, first + len(rows), dtype=np.int64)
    origin = KafkaOrigin("conformance", np.full(len(rows), subtask, np.int32), numbers)
    if form == "records":
        return Records([dict(row) for row in rows], origin)
    if form == "lines":
        data = b"".join(row["value"] + b"\n" for row in rows)
        ends = np.cumsum([len(row["value"]) + 1 for row in rows], dtype=np.int64) - 1
        return Lines(memoryview(data), ends, origin)
    return Batch(pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema), origin)


def write(job: SinkJob, directive: SinkDirectives, task: Task) -> TaskOutput:
    """Be one attempt of a task: write, prepare, report."""
    return _write(job.participant(), job, directive, task)


def _write(participant: Participant, job: SinkJob, directive: SinkDirectives, task: Task) -> TaskOutput:
    if directive.decided or job.sink_name not in directive.sinks:
        return TaskOutput(task.subtask, [], sum(map(len, task.rows)), sum(map(len, task.rows)), [])
    rejects: list[Reject] = []
    context = WriterContext(
        job_id=job.job_id,
        sink=job.sink_name,
        epoch=directive.epoch,
        checkpoint=task.checkpoint,
        subtask=task.subtask,
        attempt=uuid.uuid4().hex[:12],
        directive=directive.sinks[job.sink_name],
        reject=rejects.append,
        started_ms=directive.started_ms,
    )
    read, written = 0, 0
    payloads: list[JSON] = []
    writer = participant.open_writer(context) if task.rows else None
    if writer is not None:
        for rows in task.rows:
            hit(Failpoint.TASKS_READING)
            written += writer.write(chunk_of(task.schema, rows, task.form, task.subtask, task.first + read))
            read += len(rows)
            hit(Failpoint.SINK_WRITING)
        if task.hold:
            Path(task.hold + ".held").touch()
            _wait_for(Path(task.hold))
        if task.die == "writing":
            os.kill(os.getpid(), signal.SIGKILL)
        if task.abandon:
            writer.abandon()
        else:
            payloads = [dict(payload) for payload in writer.prepare()]
        if task.die == "prepared":
            os.kill(os.getpid(), signal.SIGKILL)
    return TaskOutput(task.subtask, payloads, read, written, rejects)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + _HELD_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not come")
        time.sleep(0.01)


class SinkDriver:
    """One life of a job's driver. Use it in a `with` block."""

    def __init__(self, job: SinkJob) -> None:
        self.job = job
        storage, clock = LocalStorage(job.folder), SystemClock()
        self.participant = job.participant()
        if isinstance(self.participant, Preflight):
            self.participant.preflight()
        described = (
            {job.sink_name: self.participant.describe_json()} if isinstance(self.participant, Inspectable) else {}
        )
        identity = open_identity(storage, name=job.name, clock=clock, job_id=job.job_id)
        self._epoch = Epoch.claim(storage, clock=clock, sinks=described)
        self.coordinator = Coordinator(
            identity=identity,
            epoch=self._epoch,
            ledger=Ledger(storage),
            participants={job.sink_name: self.participant},
            clock=clock,
        )
        try:
            self.recovery = self.coordinator.recover()
        except BaseException:
            self._epoch.release()
            raise

    def __enter__(self) -> SinkDriver:
        return self

    def __exit__(self, *error: object) -> None:
        self._epoch.release()
        if isinstance(self.participant, Closable):
            self.participant.close()

    @property
    def state(self) -> JSON:
        """What the sink wanted to be remembered."""
        sink = self.coordinator.newest.sinks.get(self.job.sink_name)
        return dict(sink.state) if sink is not None else {}

    def directive(self, checkpoint: int) -> SinkDirectives:
        """Return what the tasks of a checkpoint are given."""
        return self.coordinator.begin(checkpoint)

    def take(self, checkpoint: int, tasks: Sequence[Task]) -> None:
        """Take a checkpoint whose tasks run in this process."""

        def run(directive: SinkDirectives) -> TaskResults:
            outputs = [_write(self.participant, self.job, directive, task) for task in tasks if task.rows]
            if not directive.decided:
                hit(Failpoint.SINK_PREPARED)
            return self.results(outputs)

        self.coordinator.checkpoint(checkpoint, {"in": SourceRange(checkpoint, checkpoint + 1)}, run)

    def decide(self, checkpoint: int, outputs: Sequence[TaskOutput]) -> Sequence[JSON]:
        """Decide and commit what tasks of other processes prepared; return the committables."""
        outcome = self.coordinator.checkpoint(
            checkpoint, {"in": SourceRange(checkpoint, checkpoint + 1)}, lambda directive: self.results(outputs)
        )
        return list(outcome.decision.sinks[self.job.sink_name].committables)

    def results(self, outputs: Sequence[TaskOutput]) -> TaskResults:
        """Return what tasks reported, added up."""
        counts = Counts()
        for one in outputs:
            counts.add(Counts(read=one.read, written=one.written, dead_lettered=len(one.rejects)))
        name = self.job.sink_name
        prepared = [Prepared(name, one.subtask, payload) for one in outputs for payload in one.payloads]
        return TaskResults(prepared=prepared, counts={name: counts}, rows_read={"in": counts.read})

    def end(self) -> Sequence[JSON]:
        """Finish all that is pending, as a clean stop does; return the committables."""
        outcome = self.coordinator.roll(Occasion.END)
        return [] if outcome is None else list(outcome.decision.sinks[self.job.sink_name].committables)


def life(job: SinkJob, checkpoints: Mapping[int, Sequence[Task]], end: bool) -> Mapping[str, Any]:
    """Live one life: recover, take those checkpoints that are not decided, and the newest decided one once more, and end."""
    with SinkDriver(job) as driver:
        newest = driver.recovery.checkpoint
        for checkpoint, tasks in sorted(checkpoints.items()):
            if checkpoint >= newest:
                driver.take(checkpoint, tasks)
        if end:
            driver.end()
        return {"found": newest, "orphans": [orphan.path for orphan in driver.recovery.orphans[job.sink_name]]}


def commit(job: SinkJob, committables: Sequence[JSON]) -> Sequence[str]:
    """Commit from this process; return why those were aborted that were."""
    participant = job.participant()
    results = [participant.commit(committable) for committable in committables]
    return [result.reason for result in results if isinstance(result, Aborted)]


def commit_steps(job: SinkJob, committables: Sequence[JSON], die_at: int = 0) -> int:
    """Commit, and return how many calls of functions that took; be killed at one of them, counted from 1, where asked."""
    participant = job.participant()
    steps = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal steps
        if event in ("call", "c_call"):
            steps += 1
            if steps == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    try:
        for committable in committables:
            participant.commit(committable)
    finally:
        sys.setprofile(None)
    return steps


def abort(job: SinkJob, prepared: Sequence[Prepared], times: int = 1) -> None:
    """Abort from this process."""
    participant = job.participant()
    for one in [*prepared] * times:
        participant.abort(one)


class NewerDriver(Exception):
    """Stands for a driver that has taken over."""


def sweep(job: SinkJob, state: JSON, remove: bool, fenced: bool = False) -> tuple[Sequence[Orphan], bool]:
    """Sweep from this process; return the orphans, and whether a newer driver was asked for and stopped it."""

    def check() -> None:
        if fenced:
            raise NewerDriver

    try:
        return list(job.participant().sweep(state, remove=remove, check=check)), False
    except NewerDriver:
        return [], True
