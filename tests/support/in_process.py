"""Jobs whose tasks run in the driver's process, one after the other: all of a job but Spark is the real thing, and a checkpoint takes milliseconds.

What goes from stage to stage is kept in memory. Stages travel pickled all the same, so that a task has nothing of another's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from poundlock.driver import context as assembly
from poundlock.plan.stages import StageChain
from poundlock.spark.batch_job import pickled
from poundlock.spark.launch.session import Session
from poundlock.tasks.entry import run_exchange_tasks, run_source_tasks
from poundlock.tasks.report import Directive, TaskReport, TaskWork
from poundlock.tasks.stage import Parcel

__all__ = ["PATCHES", "InProcess"]


class InProcess(Session):
    """A session without Spark.

    Args:
        tasks: how many a stage has where a job does not say.
    """

    def __init__(self, tasks: int = 1) -> None:
        super().__init__(SimpleNamespace(defaultParallelism=tasks, master="local"), None)

    @property
    def ours(self) -> bool:
        return True

    @property
    def alive(self) -> bool:
        return True

    @property
    def jvm_alive(self) -> bool:
        return True

    def stop(self, patience_s: float = 0) -> None:
        """Nothing was started."""

    kill = stop


class BatchJobsInProcess:
    """Runs the stages of a checkpoint. See `poundlock.spark.batch_job.BatchJobs`."""

    places_tasks = False

    def __init__(self, session: Session, job: str, chain: StageChain) -> None:
        self._source = pickled(chain.source)
        self._later = {number: pickled(stage) for number, stage in chain.later.items()}

    def run(self, directive: Directive, work: Sequence[TaskWork]) -> list[TaskReport]:
        reports: list[TaskReport] = []
        sent: dict[int, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))

        def keep(parcels: Iterable[Parcel]) -> None:
            for number, task, delivery in parcels:
                sent[number][task].append(delivery)

        if not work and not self._later:
            return []
        given = iter(work or [TaskWork(0, ())])
        keep(run_source_tasks(given, stage=self._source, directive=directive, report=reports.append))
        for number, stage in self._later.items():
            for task in range(directive.parallelism):
                rows = iter([(task, delivery) for delivery in sent[number][task]])
                keep(run_exchange_tasks(task, rows, stage=stage, directive=directive, report=reports.append))
        return reports

    def spread(self) -> None:
        """There are no executors."""

    def cancel(self) -> None:
        """Tasks end by themselves."""

    def idle(self, patience_s: float) -> bool:
        return True


class TasksInProcess:
    """Runs functions here. See `poundlock.spark.small_jobs.SparkTasks`."""

    def __init__(self, session: Session, job: str) -> None:
        pass

    def run(self, call: Callable[[list[Any]], list[Any]], pieces: Sequence[list[Any]]) -> list[list[Any]]:
        return [call(piece) for piece in pieces]


PATCHES = ((assembly, "BatchJobs", BatchJobsInProcess), (assembly, "SparkTasks", TasksInProcess))
"""What is put in the place of what, as `monkeypatch.setattr` takes it."""
