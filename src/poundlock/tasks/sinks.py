"""The sinks of a stage within one attempt of a task: writers that open with the first row, dead letters, PREPARE.

Nothing here makes anything visible.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from poundlock.checkpoint.capabilities import LimitedWriter, opens_early, takes_columns
from poundlock.checkpoint.participant import DEAD_LETTER, Participant, Prepared, Writer, WriterContext
from poundlock.errors import TerminalError
from poundlock.formats.chunk import Batch, Chunk, Lines, Records
from poundlock.formats.reject import Reject
from poundlock.metrics.load import count_reason
from poundlock.operators.chain import Chain, Emit, StepCounts
from poundlock.tasks.columns import EVENT_TIME
from poundlock.tasks.report import Directive

if TYPE_CHECKING:
    from poundlock.tasks.stage import StageBody

_FLUSH_BYTES = 1 << 20  # of dead letters that wait to be written: one may be as long as a message


@dataclass(slots=True)
class RunningSink:
    """A sink within one task; its writer opens with the first rows, or early where it wants to.

    Args:
        idle: whether its part of this checkpoint is visible already, so that rows are counted and not written.
        schema: the Arrow schema of the rows that reach it, where known.
    """

    participant: Participant
    context: WriterContext
    idle: bool = False
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
        if isinstance(chunk, Batch) and EVENT_TIME in chunk.batch.schema.names:
            chunk = Batch(chunk.batch.drop_columns([EVENT_TIME]), chunk.origin)
        if isinstance(chunk, Records) and self.schema is not None and takes_columns(self.participant):
            from poundlock.formats import convert

            chunk = convert.to_batch(chunk, self.schema)
        self.written += self.writer.write(chunk)


@dataclass
class SinkGroup:
    """All sinks of one attempt of a task at a stage."""

    body: StageBody
    directive: Directive
    subtask: int
    attempt: str
    running: dict[str, RunningSink] = field(default_factory=dict, init=False)
    """By the id of the step that writes."""
    current_source: str = field(default="", init=False)
    """The source whose rows are on their way; dead letters without a place name it."""
    reasons: dict[str, int] = field(default_factory=dict, init=False)
    """Records that could not be used, by the kind of reason."""
    _letters: list[bytes] = field(default_factory=list, init=False)
    _letter_bytes: int = field(default=0, init=False)
    _dead: RunningSink | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if DEAD_LETTER in self.body.sinks:
            self._dead = self._sink(DEAD_LETTER, _refuse_dead_letter)

    def open(self, step: str, name: str, schema: Any) -> RunningSink:
        """Return the sink that a step writes to."""

        def reject(record: Reject) -> None:
            sink.rejected += 1
            self.dispose(record, name)

        sink = self._sink(name, reject)
        sink.schema = schema
        if opens_early(sink.participant) and not sink.idle:
            sink.writer = sink.participant.open_writer(sink.context)
        self.running[step] = sink
        return sink

    def _sink(self, name: str, reject: Callable[[Reject], None]) -> RunningSink:
        directive = self.directive
        context = WriterContext(
            job_id=self.body.job_id,
            sink=name,
            epoch=directive.epoch,
            checkpoint=directive.checkpoint,
            subtask=self.subtask,
            attempt=self.attempt,
            directive=directive.sinks.get(name, {}),
            reject=reject,
            started_ms=directive.started_ms,
        )
        return RunningSink(self.body.sinks[name], context, idle=name not in directive.sinks)

    def dispose(self, record: Reject, sink: str | None) -> None:
        """Dead-letter a record, fail, or skip it, as the job's `on_error` demands.

        Args:
            record: what could not be decoded, placed or written.
            sink: the sink that refused it; None where it came to none.

        Raises:
            TerminalError: the job fails on bad records.
        """
        if self.body.on_error == "fail":
            place = ", ".join(f"{k} {v}" for k, v in record.where.items()) or self.current_source
            raise TerminalError(
                f"bad record at {place}: {record.reason}",
                next='mend the record or the schema, or set on_error="dead_letter" on the job',
                checkpoint=self.directive.checkpoint,
                participant=sink or self.current_source,
            )
        count_reason(self.reasons, record.reason)
        if self._dead is not None:
            letter = _dead_letter(record, self.current_source, sink, self.directive.checkpoint)
            self._letters.append(letter)
            self._letter_bytes += len(letter)
            if self._letter_bytes >= _FLUSH_BYTES:
                self._flush()

    def _flush(self) -> None:
        if self._letters and self._dead is not None:
            data = b"".join(self._letters)
            ends = np.cumsum([len(line) for line in self._letters], dtype=np.int64) - 1
            self._letters.clear()
            self._letter_bytes = 0
            self._dead.process(Lines(memoryview(data), ends), lambda tag, chunk: None)

    @property
    def full(self) -> bool:
        """Whether no sink has any use for further rows."""
        running = self.running.values()
        return bool(running) and all(isinstance(sink.writer, LimitedWriter) and sink.writer.full for sink in running)

    def prepare(self, chain: Chain) -> list[Prepared]:
        """Make everything durable and return what was prepared. Called once, last. `chain`: whose steps the time it takes belongs to."""
        self._flush()
        prepared = []
        for step, sink in [*self.running.items(), *([(DEAD_LETTER, self._dead)] if self._dead is not None else [])]:
            if sink.writer is not None:
                payloads = sink.writer.prepare() if sink is self._dead else chain.timed(step, sink.writer.prepare)
                prepared += [Prepared(sink.context.sink, self.subtask, payload) for payload in payloads]
        return prepared

    def counts(self) -> Iterator[tuple[str, StepCounts]]:
        """Yield the rows of each step that writes, dead letters under their own name; called behind `prepare`."""
        for step, sink in self.running.items():
            rows = sink.written + sink.rejected
            yield step, StepCounts(rows, {"": sink.written}, 0, sink.rejected)
        if self._dead is not None and self._dead.written:
            yield DEAD_LETTER, StepCounts(self._dead.written, {"": self._dead.written})

    def abandon(self) -> None:
        """Drop everything this attempt wrote."""
        for sink in self._all():
            if sink.writer is not None:
                sink.writer.abandon()

    def _all(self) -> Sequence[RunningSink]:
        return [*self.running.values(), *([self._dead] if self._dead is not None else [])]


def _refuse_dead_letter(record: Reject) -> None:
    raise TerminalError(
        f"a dead letter cannot be written: {record.reason}", next="this is a fault; nothing was committed"
    )


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
