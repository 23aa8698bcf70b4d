"""A stage as its tasks run it: rows go in at its heads, through the steps once, and out into sinks, exchanges and segments.

A task that fails leaves only output that no decision names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from poundlock.checkpoint.participant import Participant, Prepared
from poundlock.checkpoint.skew import Shares
from poundlock.errors import TerminalError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Chunk
from poundlock.formats.reject import Reject
from poundlock.metrics.process_usage import UsageMeter
from poundlock.operators.calc import Calc
from poundlock.operators.chain import MAIN, Chain, Emit, Operator, Step, StepCounts
from poundlock.operators.stream_times import merged
from poundlock.operators.time_values import UNKNOWN, SplitTimes
from poundlock.state.directive import PreparedState
from poundlock.tasks.event_time import EventTimeAssigner, SplitPlace, SplitTimesRecorder
from poundlock.tasks.exchange.blocks import Block, block_deliveries, deliveries
from poundlock.tasks.report import Directive, SourceRead, TaskReport
from poundlock.tasks.sinks import SinkGroup
from poundlock.tasks.worker import executor_name

_TASKS = 1 << 20  # more than a stage has

Parcel = tuple[int, int, Any]
"""(number of a stage, index of a task of it, what goes there: a Delivery, or SegmentRows)"""


class TaskStep:
    """A step that is made again for each attempt of a task, because it needs to know the attempt."""

    run: StageRun
    """The attempt: it knows where the rows on their way were read, and takes those that are no rows."""

    def open(self, run: StageRun, step: str) -> Operator:
        """Return what does the work of a step, given its id, in one attempt: a copy of this that knows the attempt."""
        mine = copy(self)
        mine.run = run
        mine.begin()
        return mine

    def begin(self) -> None:
        """Make what one attempt needs."""

    def process(self, chunk: Chunk, emit: Emit) -> None:
        """Take rows; called once the attempt is known."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SinkStep(TaskStep):
    """Writes to a sink of the job; `schema` is the Arrow schema of the rows that reach it, where known."""

    sink: str
    schema: Any = None

    def open(self, run: StageRun, step: str) -> Operator:
        return run.sinks.open(step, self.sink, self.schema)


@dataclass(eq=False)
class WatermarkStep(TaskStep):
    """Assigns timestamps, and reports what was seen of each split."""

    assigner: EventTimeAssigner

    def begin(self) -> None:
        self._recorder = SplitTimesRecorder(self.assigner.step, self.assigner.strategy, self.run.directive.time)
        self.run.recorders.append(self._recorder)

    def process(self, chunk: Chunk, emit: Emit) -> None:
        """Assign the event time of a chunk's rows, and send on those that have one."""
        timed = self.assigner.assign(chunk, self.run.directive.time.clock, self._reject)
        self._recorder.rows(timed, self.run.place)
        emit(MAIN, timed.chunk)

    def _reject(self, record: Reject) -> None:
        self.run.chain.tallies[self.assigner.step].rejected += 1
        self.run.sinks.dispose(record, None)


def unknown_place(stage: int, task: int) -> SplitPlace:
    """Return what stands for the split of rows of which it is not known: another for each task of each stage, the same in every attempt."""
    return SplitPlace(UNKNOWN, UNKNOWN, stage * _TASKS + task)


class StageExit(Protocol):
    """Takes the rows of one attempt that leave its stage: for a keyed operator, or for a Spark segment."""

    stage: int

    def full_blocks(self) -> Iterable[Any]:
        """Return the blocks that became full since the last call, before the last row has come."""

    def blocks(self) -> Iterable[Any]:
        """Return the rows that were taken and that are not among `full_blocks`, as blocks; called once, behind the last row."""


class ExchangeExit(StageExit, Protocol):
    """A stage's exit to a keyed operator."""

    def full_blocks(self) -> list[Block]:
        """Return the blocks that became full since the last call."""


@dataclass(frozen=True)
class StageBody:
    """The steps of a stage. Picklable; the same for the life of a job's attempt.

    Args:
        number: of the stage, from 0.
        job_id: 32 hex digits.
        steps: the chain, in any order; heads are steps without inputs.
        sinks: participants by name that the steps write to, dead letters included where the job has them.
        on_error: "dead_letter", "fail" or "skip".
        later: the numbers of the stages behind an exchange that get rows or event times from here.
    """

    number: int
    job_id: str
    steps: Sequence[Step]
    sinks: Mapping[str, Participant]
    on_error: str
    later: Sequence[int] = ()


@dataclass
class StageRun:
    """One attempt of one task at a stage.

    Args:
        subtask: index of the task within the stage; a label only.
        attempt: unique to this attempt; it is part of every name that is created.
    """

    body: StageBody
    directive: Directive
    subtask: int
    attempt: str
    sinks: SinkGroup = field(init=False)
    chain: Chain = field(init=False)
    place: SplitPlace = field(init=False)
    """Where the rows that are on their way were read."""
    recorders: list[SplitTimesRecorder] = field(default_factory=list, init=False)
    """Of the steps that assign timestamps."""
    place_number: int = field(default=-1, init=False)
    """Its number among the splits of the checkpoint; -1 where nobody knows it."""
    exchanges: list[ExchangeExit] = field(default_factory=list, init=False)
    """Through which rows leave for keyed operators."""
    segment_exits: list[StageExit] = field(default_factory=list, init=False)
    """Through which rows leave for Spark segments."""
    received_times: Sequence[SplitTimes] = field(default=(), init=False)
    """What earlier stages saw of event time, to be sent on."""
    reads: dict[str, SourceRead] = field(default_factory=dict, init=False)
    split_rows: dict[str, Counter[str]] = field(default_factory=dict, init=False)
    """Per source, how many rows were read of each split."""
    _undecodable: dict[str, int] = field(default_factory=dict, init=False)
    _meter: UsageMeter = field(default_factory=UsageMeter, init=False)

    def __post_init__(self) -> None:
        self.sinks = SinkGroup(self.body, self.directive, self.subtask, self.attempt)
        self.place = unknown_place(self.body.number, self.subtask)
        steps = []
        for step in self.body.steps:
            operator = step.operator.open(self, step.id) if isinstance(step.operator, TaskStep) else step.operator
            if isinstance(operator, Calc):
                operator = operator.at(self.directive.started_ms, self.directive.time.state.streams)
            steps.append(Step(step.id, operator, step.inputs))
        self.chain = Chain(steps, lambda record: self.sinks.dispose(record, None))

    def reject_at(self, step: str, record: Reject) -> None:
        """Take a record that could not be decoded at a head, or that a keyed step cannot be given; it counts as having come in there."""
        self._undecodable[step] = self._undecodable.get(step, 0) + 1
        self.sinks.dispose(record, None)

    def finish(
        self,
        *,
        state: tuple[str, PreparedState] | None = None,
        watermarks: str = "",
        groups: Mapping[str, Shares] | None = None,
    ) -> TaskReport:
        """Prepare every sink and return the report. Called once, last.

        Args:
            state: name of the stage and the state that the task prepared, where it has any.
            watermarks: those that its operators ran by, see `Advanced.used`.
            groups: per operator, how its rows lay over key groups.
        """
        self.chain.close()
        prepared: list[Prepared] = self.sinks.prepare(self.chain)
        return TaskReport(
            self.body.number,
            self.subtask,
            self.directive.run,
            prepared,
            self._counts(),
            self.reads,
            state,
            self.times,
            watermarks,
            groups or {},
            {name: Shares.of(rows) for name, rows in self.split_rows.items()},
            "" if state is None else executor_name(),
            self._meter.usage(),
            self.sinks.reasons,
            self.chain.metrics.reported(),
        )

    def full_parcels(self) -> Iterator[Parcel]:
        """Yield what can go to later stages before the last row has come, so that it need not be kept until then."""
        for exchange in self.exchanges:
            if blocks := exchange.full_blocks():
                for target, delivery in block_deliveries(blocks, self.directive.parallelism):
                    yield exchange.stage, target, delivery
        for way in self.segment_exits:
            for block in way.full_blocks():
                yield way.stage, 0, block

    def parcels(self) -> Iterator[Parcel]:
        """Yield what is left for each task of each later stage; called once, behind the last row.

        All of them get what was seen of event time, for each calculates the watermarks.
        """
        blocks: dict[int, list[Block]] = {}
        for exchange in self.exchanges:
            blocks.setdefault(exchange.stage, []).extend(exchange.blocks())
        known = [*merged(self.received_times), *self.times] if self.body.later else []
        for stage in self.body.later:
            for target, delivery in deliveries(blocks.get(stage, ()), known, self.directive.parallelism):
                yield stage, target, delivery
        for way in self.segment_exits:
            for block in way.blocks():
                yield way.stage, 0, block

    @cached_property
    def times(self) -> tuple[SplitTimes, ...]:
        """What was seen of event time; asked for behind the last row."""
        return tuple(report for recorder in self.recorders for report in recorder.reports())

    def __enter__(self) -> StageRun:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Drop what this attempt wrote if it failed; what it prepared is durable otherwise."""
        if error is None:
            hit(Failpoint.SINK_PREPARED)
            return
        with suppress(Exception):  # what the task failed with is the error to report
            self.chain.close()
        self.sinks.abandon()

    def _counts(self) -> dict[str, StepCounts]:
        counts = self.chain.tallies
        for name, rows in self._undecodable.items():
            counts.setdefault(name, StepCounts()).add(StepCounts(rows, rejected=rows))
        for step, written in self.sinks.counts():
            if step in counts and counts[step].rows_in != written.rows_in:
                sink = self.sinks.running[step].context
                raise TerminalError(
                    f"sink {sink.sink} took {counts[step].rows_in} rows and accounts for {written.rows_in}",
                    next="this is a fault in the sink; nothing was committed",
                    checkpoint=sink.checkpoint,
                    participant=sink.sink,
                )
            if step in counts:
                written.busy_ns, written.waiting_ns = counts[step].busy_ns, counts[step].waiting_ns
            counts[step] = written
        return counts
