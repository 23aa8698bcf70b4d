"""Exactly-once sinks for a streaming query of the user's own: `df.writeStream.foreachBatch(foreach_batch(sink, checkpoint_dir=…))`.

A batch is a checkpoint, known by the query's id and the batch's number. Spark delivers a batch again after a crash; the ledger says
what it has done already, so nothing is written twice. A batch becomes visible before Spark marks it as done, so none is lost.
"""

from __future__ import annotations

import pickle
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.checkpoint.capabilities import (
    ComputesColumns,
    FollowsTime,
    Inspectable,
    NeedsJvm,
    Preflight,
    bound,
    check_rows,
    check_tasks,
    participant_of,
)
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import Identity, open_identity, read_identity, rename
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import DEAD_LETTER, Counts, Occasion, Participant
from poundlock.errors import DefinitionError
from poundlock.operators.chain import Step
from poundlock.operators.time_values import TimeDirective, TimeState
from poundlock.plan.plan import dead_letter_sink
from poundlock.spark.batch_job import pickled
from poundlock.spark.frames import arrow_schema, map_arrow
from poundlock.storage import Storage, open_checkpoint
from poundlock.tasks.entry import load_shipped, new_attempt
from poundlock.tasks.exchange.segment_blocks import binary_column
from poundlock.tasks.report import Directive, TaskReport, total_counts
from poundlock.tasks.rows_stage import BatchStage, SinkInput
from poundlock.tasks.stage import SinkStep, StageBody
from poundlock.values import Clock, SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_SOURCE = "batches"
_SINK = "sink"
_QUERY_ID = "sql.streaming.queryId"  # the local property that Spark sets in the thread of a query
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def foreach_batch(
    sink: Any = None,
    /,
    *,
    checkpoint_dir: str,
    name: str = "foreach-batch",
    dead_letters: str | None = None,
    **sinks: Any,
) -> BatchWriter:
    """Return a function for `foreachBatch` that writes each batch exactly once.

    Args:
        sink: where the rows go: a FileSink, KafkaSink, PostgresSink, or a sink of yours.
        checkpoint_dir: folder for the ledger, beside the query's own `checkpointLocation` and as durable as that.
        name: of the query, in errors and in `poundlock audit`.
        dead_letters: folder for rows that a sink cannot take; without one, such a row fails the query.
        sinks: several sinks by name; the names are kept in the ledger, so they may not change.

    Raises:
        DefinitionError: there is no sink, or one that does not work here.
    """
    if sink is not None and sinks:
        raise DefinitionError("one sink without a name beside others", next="name them all: foreach_batch(files=…, …)")
    given = sinks if sink is None else {_SINK: sink}
    if not given:
        raise DefinitionError("foreach_batch without a sink", next="write foreach_batch(FileSink(…), checkpoint_dir=…)")
    if not _NAME.fullmatch(name):
        raise DefinitionError(f"{name!r} is not a name", next='use letters, digits, ".", "_" and "-"')
    participants = {key: _participant(key, each) for key, each in given.items()}
    if dead_letters is not None:
        participants[DEAD_LETTER] = dead_letter_sink(dead_letters)
    return BatchWriter(name, open_checkpoint(checkpoint_dir), participants, SystemClock())


def _participant(name: str, sink: Any) -> Participant:
    participant: Participant = participant_of(sink)
    if isinstance(participant, NeedsJvm) and participant.jvm:
        raise DefinitionError(
            f"{name}: {type(sink).__name__} needs a JVM of its own, which a query of yours does not have",
            next="write the rows with DataFrame.write.jdbc, or make the query a poundlock Job",
        )
    if isinstance(participant, FollowsTime) and participant.needs_event_time:
        raise DefinitionError(
            f"{name}: {type(sink).__name__} waits for a watermark, which a query of yours does not hand on",
            next='write PartitionCommit(trigger="process-time"), or make the query a poundlock Job',
        )
    return participant


class BatchWriter:
    """What `foreachBatch` calls with each batch; made by `foreach_batch`.

    Args:
        name: of the query.
        storage: where the ledger is.
        sinks: participants by name.
        clock: what rolls go by.
    """

    def __init__(self, name: str, storage: Storage, sinks: Mapping[str, Participant], clock: Clock) -> None:
        self._name, self._storage, self._sinks, self._clock = name, storage, dict(sinks), clock
        self._lock = threading.Lock()
        self._run: _Run | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch: prepare in tasks, decide, commit. Does nothing for one that was done before.

        Idempotent by the query's id and `batch_id`.

        Raises:
            DefinitionError: this is not called by a streaming query, or the ledger is another query's.
            TransientError: a task, the storage or a sink failed; starting the query again goes on.
            TerminalError: the batch does not add up.
            FencedError: the query was started elsewhere.
        """
        with self._lock:
            run, self._run = self._run, None
            if run is None:
                run = _Run.begin(self._name, self._storage, self._sinks, self._clock, frame)
            try:
                run.write(frame, batch_id)
            except BaseException:
                run.epoch.release()  # a query that is started again in this process begins with recovery
                raise
            self._run = run

    def finish(self) -> None:
        """Make visible what sinks hold back, such as files that are not full; call it when the query has ended.

        Without it that happens with a later batch. Nothing is lost if it is never called.
        """
        with self._lock:
            if self._run is not None:
                self._run.finish()
                self._run = None


@dataclass(frozen=True)
class _Run:
    """One life of a query's driver: it has claimed the ledger and finished what an earlier life decided."""

    identity: Identity
    epoch: Epoch
    sinks: Mapping[str, Participant]
    coordinator: Coordinator
    clock: Clock

    @classmethod
    def begin(
        cls, name: str, storage: Storage, sinks: Mapping[str, Participant], clock: Clock, frame: DataFrame
    ) -> _Run:
        query = query_id(frame)
        identity = _identity(storage, name, query, clock)
        mine = {each: bound(sink, job_id=identity.job_id, sink=each) for each, sink in sinks.items()}
        _preflight(mine, frame)
        described = {each: sink.describe_json() for each, sink in mine.items() if isinstance(sink, Inspectable)}
        epoch = Epoch.claim(storage, clock=clock, sinks=described)
        try:
            identity = rename(storage, identity, name)
            coordinator = Coordinator(
                identity=identity, epoch=epoch, ledger=Ledger(storage), participants=mine, clock=clock
            )
            coordinator.recover()
        except BaseException:
            epoch.release()
            raise
        return cls(identity, epoch, mine, coordinator, clock)

    def write(self, frame: DataFrame, batch_id: int) -> None:
        coordinator = self.coordinator
        decided = coordinator.decided(batch_id)
        if decided is None:
            newest = coordinator.sources.get(_SOURCE)
            ranges: Mapping[str, SourceRange] = {
                _SOURCE: SourceRange(None if newest is None else newest.end, {"v": 1, "batch": batch_id})
            }
        else:
            ranges = decided
        coordinator.checkpoint(batch_id, ranges, partial(self._run_tasks, frame))
        due = coordinator.next_roll_ms()
        if due is not None and due <= self.clock.now_ms():
            coordinator.roll(Occasion.ROLL)

    def finish(self) -> None:
        try:
            self.coordinator.roll(Occasion.END)
        finally:
            self.epoch.release()

    def _run_tasks(self, frame: DataFrame, given: SinkDirectives) -> TaskResults:
        """Run the one Spark job of a batch; nothing where all of it is decided."""
        if given.decided:
            run_for_state(frame)
            return TaskResults(prepared=[])
        started = given.started_ms
        directive = Directive(
            checkpoint=given.checkpoint,
            epoch=given.epoch,
            started_ms=started,
            run=uuid.uuid4().hex,
            sinks=given.sinks,
            time=TimeDirective(TimeState(), started, {}),
        )
        computed, inputs = _inputs(frame, self.sinks)
        on_error = "dead_letter" if DEAD_LETTER in self.sinks else "fail"
        steps = [Step(name, SinkStep(name, columns.schema), ()) for name, columns in inputs.items()]
        stage = pickled(BatchStage(StageBody(0, self.identity.job_id, steps, self.sinks, on_error), inputs))
        task = partial(_run_task, stage=stage, directive=directive)
        rows = map_arrow(computed, task, "report binary").collect()
        return _results([pickle.loads(bytes(row[0])) for row in rows])


def run_for_state(frame: DataFrame) -> None:
    """Run a batch that was delivered again and has been written before: what Spark keeps of it, it keeps when its tasks run.

    Spark 4.2 fails a batch of a query with state whose tasks did not run.
    """
    frame.write.format("noop").mode("overwrite").save()


def query_id(frame: DataFrame) -> str:
    """Return the id of the query that a batch is of: 32 hex digits. It is kept in the query's checkpoint."""
    result = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not result:
        raise DefinitionError(
            "this function is for a streaming query, and no query has called it",
            next="write df.writeStream.foreachBatch(foreach_batch(…)).option('checkpointLocation', …).start()",
        )
    return uuid.UUID(result).hex


def _identity(storage: Storage, name: str, query: str, clock: Clock) -> Identity:
    kept = read_identity(storage)
    if kept is not None and kept.job_id != query:
        raise DefinitionError(
            f"{storage.root} is the ledger of another query ({kept.job_id}, not {query}), whose batches have the same numbers",
            next="give this query a checkpoint_dir of its own, or start it with the checkpointLocation it had",
            job=name,
        )
    return open_identity(storage, name=name, clock=clock, job_id=query)


def _preflight(sinks: Mapping[str, Any], frame: DataFrame) -> None:
    """Ask every sink whether it can work. Raises DefinitionError."""
    for sink in sinks.values():
        if isinstance(sink, Preflight):
            sink.preflight()
    check_tasks(sinks, frame.sparkSession.sparkContext.defaultParallelism)


def _inputs(frame: DataFrame, sinks: Mapping[str, Any]) -> tuple[DataFrame, dict[str, SinkInput]]:
    """Return a batch with the columns that sinks want computed, and which columns each is given."""
    from pyspark.sql import functions as F

    own = list(frame.columns)
    wanted: dict[str, dict[str, str]] = {}
    for name, sink in sinks.items():
        if name == DEAD_LETTER:
            continue
        wanted[name] = {column: column for column in own}
        computed = sink.computed_columns if isinstance(sink, ComputesColumns) else {}
        for column, expression in computed.items():
            wanted[name][column] = f"__{name}{column}"
            frame = frame.withColumn(f"__{name}{column}", F.expr(expression))
    schema = arrow_schema(frame, "foreachBatch")
    inputs = {}
    for name, columns in wanted.items():
        seen = pa.schema([schema.field(column).with_name(seen_as) for seen_as, column in columns.items()])
        inputs[name] = SinkInput(list(columns.values()), seen)
        check_rows(sinks[name], name, seen)
    return frame, inputs


def _run_task(batches: Iterator[pa.RecordBatch], *, stage: bytes, directive: Directive) -> Iterator[pa.RecordBatch]:
    """Write and prepare the rows of one partition; yield the report."""
    from pyspark import TaskContext

    loaded: BatchStage = load_shipped(stage)
    context = TaskContext.get()
    assert context is not None
    report = loaded.run(batches, directive, context.partitionId(), new_attempt())
    yield pa.RecordBatch.from_arrays([binary_column(pa.py_buffer(pickle.dumps(report)))], ["report"])


def _results(reports: Sequence[TaskReport]) -> TaskResults:
    counts = {
        name: Counts(read=sink.rows_in, written=sink.rows_out.get("", 0), dead_lettered=sink.rejected)
        for name, sink in total_counts(reports).items()
    }
    rows = max((count.read for name, count in counts.items() if name != DEAD_LETTER), default=0)
    prepared = [item for report in reports for item in report.prepared]
    return TaskResults(prepared=prepared, counts=counts, rows_read={_SOURCE: rows}, tasks=len(reports))
