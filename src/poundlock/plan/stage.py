"""The sink stage: what one task does with the rows of a branch, up to and including PREPARE.

It yields what it prepared and what it counted as JSON texts, and makes nothing visible. A checkpoint that is decided
already is read to its end and nothing is written.
"""

from __future__ import annotations

import base64
import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poundlock.checkpoint.participant import Counts, Participant, Writer, WriterContext
from poundlock.errors import TerminalError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Chunk, Lines, Records
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Chain, Decode, Emit, Step
from poundlock.plan.plan import DEAD_LETTER

__all__ = ["PROPERTY", "SPLITS_READ", "SinkStep", "Stage", "StageRun", "TaskIdentity", "run_together"]

PROPERTY = "poundlock.checkpoint"  # Spark local property that carries the directive to the tasks
SPLITS_READ = "splits"  # what a task says of the splits it was given
_FLUSH_ROWS = 4096

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Who is writing: the task's index and a name unique to this attempt."""

    subtask: int
    attempt: str

    @classmethod
    def of(cls, subtask: int) -> TaskIdentity:
        """Return the identity of a new attempt."""
        return cls(subtask, uuid.uuid4().hex[:12])


@dataclass(frozen=True, slots=True)
class SinkStep:
    """Marks a terminal step of a stage's chain; the stage puts the running sink in its place."""

    sink: str

    def process(self, chunk: Chunk, emit: Emit) -> None:
        raise NotImplementedError("a SinkStep is replaced before the chain runs")


@dataclass(slots=True)
class _RunningSink:
    """A sink within one task: opens its writer with the first rows."""

    participant: Participant
    context: WriterContext
    idle: bool = False  # its part of this checkpoint is visible already
    schema: Any = None
    writer: Writer | None = None
    written: int = 0
    rejected: int = 0

    def process(self, chunk: Chunk, emit: Emit) -> None:
        if self.idle:
            self.written += len(chunk)
            return
        if self.writer is None:
            self.writer = self.participant.open_writer(self.context)
        if isinstance(chunk, Records) and self.schema is not None and getattr(self.participant, "bulk", False):
            from poundlock.formats import convert

            chunk = convert.to_batch(chunk, self.schema)
        self.written += self.writer.write(chunk)


@dataclass(frozen=True)
class Stage:
    """A branch's task side. Picklable: it travels to the tasks with the plan.

    Args:
        job_id: 32 hex digits.
        source: name of the head, for dead letters whose place is not known.
        steps: the chain; terminal steps hold a SinkStep.
        sinks: participants by name, dead letters included where the job has them.
        on_error: "dead_letter", "fail" or "skip".
        schemas: per sink step, the Arrow schema of the rows that reach it, where known.
    """

    job_id: str
    source: str
    steps: Sequence[Step]
    sinks: Mapping[str, Participant]
    on_error: str
    schemas: Mapping[str, Any] = field(default_factory=dict)

    def run(
        self,
        read: Callable[[Callable[[Reject], None]], Iterator[Chunk]],
        directive: Mapping[str, Any],
        task: TaskIdentity,
    ) -> Iterator[str]:
        """Read chunks, write them, prepare, and yield one JSON text per prepared payload and one with the counts.

        Args:
            read: given where to send undecodable records, returns the chunks of this task.
            directive: what the driver says of this checkpoint, see `Coordinator.begin`.
            task: who is writing.
        """
        yield from run_together(
            [self], lambda rejects: ((len(chunk), (chunk,)) for chunk in read(rejects[0])), directive, [task]
        )


def run_together(
    stages: Sequence[Stage],
    read: Callable[[Sequence[Callable[[Reject], None]]], Iterator[tuple[int, Sequence[Chunk]]]],
    directive: Mapping[str, Any],
    tasks: Sequence[TaskIdentity],
    size: Callable[[Chunk], int | None] | None = None,
) -> Iterator[str]:
    """Run several stages in one pass over a task's rows; see `Stage.run`.

    Args:
        stages: the stages.
        read: given where each stage takes undecodable records, returns for each piece of input its number of rows and one
            chunk per stage; rows that a stage's chunk lacks were filtered on the way to it.
        directive: what the driver says of this checkpoint.
        tasks: one identity per stage, so that two of them can write to one sink.
        size: returns how large a chunk is at the source, None if it is not known; no argument = it never is.
    """
    if directive["decided"]:
        return
    runs = [StageRun(stage, directive, task, i == 0) for i, (stage, task) in enumerate(zip(stages, tasks, strict=True))]
    try:
        for rows, chunks in read([run.reject_at_head for run in runs]):
            for run, chunk in zip(runs, chunks, strict=True):
                run.push(chunk, rows, None if size is None else size(chunk))
        texts = [text for run in runs for text in run.finish()]
    except BaseException:
        for run in runs:
            run.abandon()
        raise
    hit(Failpoint.SINK_PREPARED)
    yield from texts


class StageRun:
    """One attempt of one task at one stage."""

    def __init__(self, stage: Stage, directive: Mapping[str, Any], task: TaskIdentity, first: bool = True) -> None:
        self.stage, self.directive, self.task = stage, directive, task
        self.first = first  # of the stages that share a pass; what all of them reject is kept once
        self.read_rejects = 0
        self.read_bytes: int | None = None
        self.head_filtered = 0
        self.dead: list[bytes] = []
        self.dead_count = 0
        self.dead_sink = self._sink(DEAD_LETTER, _refuse) if DEAD_LETTER in stage.sinks else None
        self.running: dict[str, _RunningSink] = {}
        steps = []
        for step in stage.steps:
            operator: Any = step.operator
            if isinstance(operator, SinkStep):
                operator = self._terminal(step.id, operator.sink)
            elif isinstance(operator, Decode):
                operator = Decode(operator.decoder, operator.want, self._reject_in(step.id))
            steps.append(Step(step.id, operator, step.inputs))
        self.chain = Chain(steps, lambda record: self._dispose(record, None))

    def _terminal(self, step: str, name: str) -> _RunningSink:
        def reject(record: Reject) -> None:
            sink.rejected += 1
            self._dispose(record, name)

        sink = self._sink(name, reject)
        sink.schema = self.stage.schemas.get(step)
        self.running[step] = sink
        return sink

    def _sink(self, name: str, reject: Callable[[Reject], None]) -> _RunningSink:
        return _RunningSink(
            self.stage.sinks[name],
            WriterContext(
                job_id=self.stage.job_id,
                sink=name,
                epoch=self.directive["epoch"],
                checkpoint=self.directive["checkpoint"],
                subtask=self.task.subtask,
                attempt=self.task.attempt,
                directive=self.directive["sinks"].get(name, {}),
                reject=reject,
                started_ms=self.directive["started_ms"],
            ),
            idle=name not in self.directive["sinks"],
        )

    def push(self, chunk: Chunk, rows: int, size: int | None = None) -> None:
        """Send a chunk through the chain; it is what is left of so many rows, and so large at the source, in bytes."""
        if size is not None:
            self.read_bytes = (self.read_bytes or 0) + size
        self.head_filtered += rows - len(chunk)
        if len(chunk):
            self.chain.push(chunk)

    def reject_at_head(self, record: Reject) -> None:
        """Take a record that could not be decoded before the stage; it counts as read."""
        self.read_rejects += 1
        if self.first or self.stage.on_error == "fail":
            self._dispose(record, None)

    def _reject_in(self, step: str) -> Callable[[Reject], None]:
        def reject(record: Reject) -> None:
            self.chain.tallies[step].rejected += 1
            self._dispose(record, None)

        return reject

    def _dispose(self, record: Reject, sink: str | None) -> None:
        """Dead-letter, fail, or skip, as the job says."""
        if self.stage.on_error == "fail":
            place = ", ".join(f"{k} {v}" for k, v in record.where.items()) or self.stage.source
            raise TerminalError(
                f"bad record at {place}: {record.reason}",
                next='mend the record or the schema, or set on_error="dead_letter" on the job',
                checkpoint=self.directive["checkpoint"],
                participant=sink or self.stage.source,
            )
        if self.dead_sink is not None:
            self.dead.append(_dead_letter(record, self.stage.source, sink, self.directive["checkpoint"]))
            self.dead_count += 1
            if len(self.dead) >= _FLUSH_ROWS:
                self._flush_dead()

    def _flush_dead(self) -> None:
        if self.dead and self.dead_sink is not None:
            data = b"".join(self.dead)
            ends = np.cumsum([len(line) for line in self.dead], dtype=np.int64) - 1
            self.dead.clear()
            self.dead_sink.process(Lines(memoryview(data), ends), lambda tag, chunk: None)

    def finish(self) -> list[str]:
        """Close the users' functions and prepare every sink; return the texts to yield."""
        self.chain.close()
        self._flush_dead()
        texts = []
        everyone = [*self.running.values(), *([self.dead_sink] if self.dead_sink else [])]
        for sink in everyone:
            for payload in sink.writer.prepare() if sink.writer is not None else ():
                texts.append(_text(t="prepared", sink=sink.context.sink, subtask=self.task.subtask, payload=payload))
        counts: dict[str, Counts] = {}
        for step, sink in self.running.items():
            counts.setdefault(sink.context.sink, Counts()).add(self._counts(step, sink))
        if self.dead_count:
            counts[DEAD_LETTER] = Counts(read=self.dead_count, written=self.dead_count)
        read = self.chain.tallies[self.chain.head].rows_in + self.read_rejects + self.head_filtered
        told = {} if self.read_bytes is None else {"bytes": self.read_bytes}
        sinks = {n: c.to_json() for n, c in counts.items()}
        texts.append(_text(t="counts", head=self.stage.source, read=read, sinks=sinks, **told))
        return texts

    def _counts(self, step: str, sink: _RunningSink) -> Counts:
        read, produced, filtered, rejected = self.chain.account(step)
        arrived = self.chain.tallies[step].rows_in
        if arrived != sink.written + sink.rejected:
            raise TerminalError(
                f"sink {sink.context.sink} took {arrived} rows and accounts for {sink.written + sink.rejected}",
                next="this is a fault in the sink; nothing was committed",
                checkpoint=self.directive["checkpoint"],
                participant=sink.context.sink,
            )
        bad = rejected + sink.rejected + self.read_rejects
        kept = self.dead_sink is not None
        return Counts(
            read=read + self.read_rejects + self.head_filtered,
            produced=produced,
            written=sink.written,
            filtered=filtered + self.head_filtered,
            dead_lettered=bad if kept else 0,
            skipped=0 if kept else bad,
        )

    def abandon(self) -> None:
        """Close the users' functions and drop everything this attempt wrote."""
        try:
            self.chain.close()
        except Exception as error:  # the one that made the attempt fail is on its way already
            log.warning("a function's close() failed as well: %s", error)
        for sink in [*self.running.values(), *([self.dead_sink] if self.dead_sink else [])]:
            if sink.writer is not None:
                sink.writer.abandon()


def _refuse(record: Reject) -> None:
    raise TerminalError(
        f"a dead letter cannot be written: {record.reason}", next="this is a fault; nothing was committed"
    )


def _text(**fields: Any) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _dead_letter(record: Reject, source: str, sink: str | None, checkpoint: int) -> bytes:
    """Return the line of a dead-letter file: place, reason and value, base64 where it is not UTF-8."""
    line: dict[str, Any] = {"source": source, **record.where}
    if sink is not None:
        line["sink"] = sink
    line["checkpoint"] = checkpoint
    line["reason"] = record.reason
    try:
        line["value"] = record.value.decode("utf-8")
    except UnicodeDecodeError:
        line["value_base64"] = base64.b64encode(record.value).decode("ascii")
    text = json.dumps(line, separators=(",", ":"), default=str, ensure_ascii=False)
    # A file's name need not be UTF-8: what stands for its bytes becomes a JSON escape, from which the name can be made again.
    return text.encode("utf-8", "backslashreplace") + b"\n"
