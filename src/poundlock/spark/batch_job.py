"""One checkpoint's tasks as one Spark job, over RDDs: no row enters the JVM, and no SQL session is needed.

Spark places tasks, retries them and moves blocks between them; what a task does is in `poundlock.tasks`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pickle import PicklingError
from typing import Any, cast

from poundlock.errors import DefinitionError
from poundlock.plan.stages import SegmentStage, StageChain
from poundlock.spark.launch.session import Session
from poundlock.spark.placement import TaskPlacement
from poundlock.spark.planned_tasks import PROPERTY, as_property, run_planned_tasks
from poundlock.spark.private import STAGE_NAME, named_stage
from poundlock.spark.segments import LoweredSegment
from poundlock.tasks.entry import (
    addressed,
    by_task,
    drained,
    run_exchange_tasks,
    run_rows_tasks,
    run_source_tasks,
    segment_blocks,
    segment_rows,
)
from poundlock.tasks.keyed_stage import KeyedStage
from poundlock.tasks.partitioned_stage import PartitionedStage
from poundlock.tasks.report import AddedReports, Directive, Reporter, TaskReport, TaskWork

_POLL_S = 0.02
_SOURCE_WORDS = "read, decode, write"
_NEWEST = 2  # jobs whose tasks may still run: those before them ended well


def _one_per_task(reports: Sequence[TaskReport], run: str) -> list[TaskReport]:
    """Return one report of each task of a run.

    Where Spark ran a task twice, as after it lost an executor, both reports name the same rows; the output of the one that
    is left out is nobody's, and the sweep removes it.
    """
    return list({(report.stage, report.subtask): report for report in reports if report.run == run}.values())


def pickled(stage: Any) -> bytes:
    """Return a stage as it travels to the workers; modules of the user's that are not installed travel by value.

    Raises:
        DefinitionError: something in it cannot be pickled.
    """
    from poundlock.spark.pickled_functions import shipped

    try:
        return shipped(stage)
    except (PicklingError, TypeError) as error:
        raise DefinitionError(
            f"a function of the job uses something that cannot be sent to the tasks: {error}",
            next="make locks, open files, connections and generators inside the function, not beside it",
        ) from None


def _words_of(stage: KeyedStage | PartitionedStage) -> str:
    if isinstance(stage, PartitionedStage):
        return f"placed by: {', '.join(stage.inputs)}"
    return f"by key: {', '.join(head.id for head in stage.operators)}"


class BatchJobs:
    """Runs the checkpoints of one attempt of a job, one Spark job each. `run` is called by one thread at a time.

    Raises:
        DefinitionError: something in a stage cannot be pickled.
    """

    def __init__(self, session: Session, job: str, chain: StageChain) -> None:
        self._session, self._context, self._job, self._chain = session, session.context, job, chain
        # One for all checkpoints: pyspark keeps every accumulator of a process for ever.
        self._reports = self._context.accumulator([], cast(Any, AddedReports()))
        self._placement = None if session.local else TaskPlacement(self._context)
        self._group = f"poundlock-{job}-{secrets.token_hex(4)}"
        self._source = pickled(chain.source)
        self._later = {
            number: pickled(stage.rows if isinstance(stage, SegmentStage) else stage)
            for number, stage in chain.later.items()
        }
        # Of a job with one stage, by the number of tasks. Spark would skip the stages of an RDD whose shuffles it has made before.
        self._planned: dict[int, Any] = {}

    def run(self, directive: Directive, work: Sequence[TaskWork]) -> list[TaskReport]:
        """Run the stages over the work of a checkpoint; return the reports, one of each task, in no order.

        Raises:
            Exception: as Spark raises it, when a task failed too often.
        """
        if not work and not self._later:
            return []
        self._reports.value = []
        self._context.setJobGroup(
            self._group, f"{self._job}: checkpoint {directive.checkpoint}", interruptOnCancel=False
        )
        run = _Run(self, directive)
        given = None if self._later else as_property(directive, work)
        try:
            if given is None:
                run.start(work or [TaskWork(0, ())])
            else:
                self._run_planned(given, len(work))
        finally:
            run.release()
        return _one_per_task(self._reports.value, directive.run)

    def spread(self) -> None:
        """Have Spark choose again which executor has which tasks of keyed stages, as after new ones came."""
        if self._placement is not None:
            self._placement.forget()

    @property
    def places_tasks(self) -> bool:
        """Whether there are executors to choose from."""
        return self._placement is not None

    def _run_planned(self, given: str, tasks: int) -> None:
        """Run a checkpoint's tasks over the RDD that is there for so many of them."""
        context = self._context
        rows = self._planned.get(tasks)
        if rows is None:
            task = partial(run_planned_tasks, stage=self._source, report=Reporter(self._reports))
            numbers = context.parallelize(range(tasks), tasks).setName(f"{self._job}: {tasks} pieces of work")
            rows = numbers.mapPartitionsWithIndex(task).setName(f"{self._job}: {_SOURCE_WORDS}")
            self._planned[tasks] = rows
        context.setLocalProperty(PROPERTY, given)
        try:
            with named_stage(context, _SOURCE_WORDS):
                rows.collect()
        finally:
            with suppress(Exception):  # the JVM may be gone
                context.setLocalProperty(PROPERTY, None)

    def cancel(self) -> None:
        """End what runs. Its tasks get a signal, and may take a moment; see `idle`."""
        with suppress(Exception):  # the JVM may be gone, which is an end as well
            self._context.cancelJobGroup(self._group)

    def idle(self, patience_s: float) -> bool:
        """Wait until no task of these jobs runs, at most so long; return whether none does.

        A stage that was cancelled is not listed as active any more while its tasks still end, so they are counted by stage.
        """
        deadline = time.monotonic() + patience_s
        with suppress(Exception):  # the JVM may be gone, and its tasks with it
            while self._running_tasks():
                if time.monotonic() > deadline:
                    return False
                time.sleep(_POLL_S)
        return True

    def _running_tasks(self) -> int:
        tracker = self._context.statusTracker()
        jobs = [
            job for job in map(tracker.getJobInfo, sorted(tracker.getJobIdsForGroup(self._group))[-_NEWEST:]) if job
        ]
        stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)


class _Run:
    """The stages of one checkpoint as RDDs. What several stages read is kept until the end, so that tasks run once."""

    def __init__(self, jobs: BatchJobs, directive: Directive) -> None:
        self._jobs, self._directive = jobs, directive
        self._report = Reporter(jobs._reports)
        self._made: dict[int, Any] = {}
        self._words: dict[int, str] = {}
        self._kept: list[Any] = []
        self._segments: list[LoweredSegment] = []

    def start(self, work: Sequence[TaskWork]) -> None:
        jobs, chain = self._jobs, self._jobs._chain
        pieces = jobs._context.parallelize(work, len(work)).setName(f"{jobs._job}: {len(work)} pieces of work")
        task = partial(run_source_tasks, stage=jobs._source, directive=self._directive, report=self._report)
        self._add(0, pieces.mapPartitions(task), _SOURCE_WORDS)
        for number, stage in chain.later.items():
            if isinstance(stage, SegmentStage):
                words = f"{self._words_of(self._before(number))}, Spark SQL behind {', '.join(stage.inputs)}"
                self._name(words)
                rows = self._segment_rows(number, stage)
                run: Any = run_rows_tasks
            else:
                words = _words_of(stage)
                rows = self._exchanged_rows(number)
                run = run_exchange_tasks
            task = partial(run, stage=jobs._later[number], directive=self._directive, report=self._report)
            self._add(number, rows.mapPartitionsWithIndex(task), words)
        last = [number for number in self._made if not chain.feeds.get(number)]
        rows = [self._made[number] for number in last]
        self._run(rows[0] if len(rows) == 1 else jobs._context.union(rows), self._words_of(last))

    def release(self) -> None:
        """Release what was kept, and the names, which belong to this thread."""
        with suppress(Exception):  # the JVM may be gone
            self._name(None)
            if not self._jobs._session.owned:
                for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
                    self._jobs._context.setLocalProperty(name, None)
        for segment in self._segments:
            segment.release()
        for rows in self._kept:
            rows.unpersist()

    def _add(self, number: int, rows: Any, words: str) -> None:
        chain = self._jobs._chain
        rows = rows.setName(f"{self._jobs._job}: {words}")
        self._words[number] = words
        fed = [chain.later[stage] for stage in chain.feeds.get(number, ())]
        functions = any(isinstance(stage, SegmentStage) and stage.functions for stage in fed)
        reads = sum(len(stage.inputs) if isinstance(stage, SegmentStage) else 1 for stage in fed)
        if reads > 1 or functions:
            from pyspark import StorageLevel

            self._kept.append(rows.persist(StorageLevel.MEMORY_AND_DISK))
        if functions:
            self._run(
                rows, words
            )  # a function may leave rows unread, and its tasks must run to their ends all the same
        self._made[number] = rows

    def _run(self, rows: Any, words: str) -> None:
        self._name(words)
        self._jobs._context.runJob(rows, drained, list(range(rows.getNumPartitions())))

    def _name(self, words: str | None) -> None:
        self._jobs._context.setLocalProperty(STAGE_NAME, words)

    def _words_of(self, numbers: Sequence[int]) -> str:
        return "; ".join(self._words[number] for number in numbers)

    def _before(self, number: int) -> list[int]:
        return [n for n, fed in self._jobs._chain.feeds.items() if number in fed]

    def _exchanged_rows(self, number: int) -> Any:
        before = self._before(number)
        made = [self._made[n] for n in before]
        sent = made[0] if len(made) == 1 else self._jobs._context.union(made)
        sent = sent.mapPartitions(partial(addressed, stage=number))
        parallelism, placement = self._directive.parallelism, self._jobs._placement
        with named_stage(self._jobs._context, self._words_of(before)):
            rows = sent.partitionBy(parallelism, by_task)
            return rows if placement is None else placement.placed(rows, parallelism, sent.getNumPartitions())

    def _segment_rows(self, number: int, stage: SegmentStage) -> Any:
        context, before = self._jobs._context, [self._made[n] for n in self._before(number)]
        blocks = {}
        for name in stage.inputs:
            parts = [rows.mapPartitions(partial(segment_blocks, stage=number, input=name)) for rows in before]
            blocks[name] = parts[0] if len(parts) == 1 else context.union(parts)
        lowered = stage.segment.lower(self._jobs._session.sql, blocks)
        self._segments.append(lowered)
        outputs = [rows.mapPartitions(partial(segment_rows, output=name)) for name, rows in lowered.blocks.items()]
        return outputs[0] if len(outputs) == 1 else context.union(outputs)
