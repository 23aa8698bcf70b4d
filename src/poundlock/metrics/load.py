"""What the tasks of checkpoints did and how long it took them: by operator, by task, by sink; values that are added up.

Sums are over decided checkpoints alone, so what a failed attempt did is in none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from poundlock.metrics.timeline import CommitCall

MOST_REASONS = 50
OTHER_REASONS = "other"
_LONGEST = 100
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|(?<![\w.-])-?\d[\d.,:_-]*")


@dataclass(frozen=True, slots=True)
class OperatorLoad:
    """What went through one operator, a source or a sink among them, in all of its tasks.

    Args:
        rows_in, rows_out: rows that came and that went on; of a source, what was read; of a sink, what was written.
        filtered, rejected, late: rows that did not go on.
        busy_ms: CPU time of the threads that ran it, without that of the operators behind it.
        waiting_ms: the rest of the time it took: for a disk, a broker, a database, or for the processor.
        bytes_in: of what came over an exchange, or was read; None where that is not known.
    """

    rows_in: int = 0
    rows_out: int = 0
    filtered: int = 0
    rejected: int = 0
    late: int = 0
    busy_ms: float = 0.0
    waiting_ms: float = 0.0
    bytes_in: int | None = None

    def plus(self, other: OperatorLoad) -> OperatorLoad:
        """Return the sum of two."""
        sizes = [each for each in (self.bytes_in, other.bytes_in) if each is not None]
        return OperatorLoad(
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
            self.filtered + other.filtered,
            self.rejected + other.rejected,
            self.late + other.late,
            self.busy_ms + other.busy_ms,
            self.waiting_ms + other.waiting_ms,
            sum(sizes) if sizes else None,
        )


@dataclass(frozen=True, slots=True)
class TaskUsage:
    """What one attempt of a task took.

    Args:
        worker: which process it ran in, "machine:pid".
        took_ms: from its first row to its report.
        cpu_ms: CPU time of its process meanwhile, all threads.
        memory_bytes: the most that its process ever had in memory.
    """

    worker: str = ""
    took_ms: float = 0.0
    cpu_ms: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """What one task of a stage did.

    Args:
        stage, task: its place: number of the stage, and index within it.
        rows_in: rows that came to the stage's first operators.
        took_ms, cpu_ms: see `TaskUsage`.
    """

    stage: int
    task: int
    rows_in: int = 0
    took_ms: float = 0.0
    cpu_ms: float = 0.0

    def plus(self, other: TaskLoad) -> TaskLoad:
        """Return the sum of two of the same task."""
        return replace(
            self,
            rows_in=self.rows_in + other.rows_in,
            took_ms=self.took_ms + other.took_ms,
            cpu_ms=self.cpu_ms + other.cpu_ms,
        )


@dataclass(frozen=True, slots=True)
class CommitLoad:
    """The commits of a sink: how many calls, how often one was repeated because its outcome was not known, and their time."""

    committables: int = 0
    retries: int = 0
    took_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class JobLoad:
    """What a job's checkpoints did since its process started.

    Args:
        operators: by id.
        tasks: of every stage, sorted.
        sinks: by name.
        reasons: dead letters, or skipped records, by the kind of reason: at most `MOST_REASONS`, the rest under "other".
        phases_ms: how long checkpoints were in each phase.
        worker_memory_bytes: the most memory that the worker processes of the newest checkpoint with any had, added up.
        worker_cpu_ms: CPU time of tasks.
    """

    operators: Mapping[str, OperatorLoad] = field(default_factory=dict)
    tasks: tuple[TaskLoad, ...] = ()
    sinks: Mapping[str, CommitLoad] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    worker_memory_bytes: int | None = None
    worker_cpu_ms: float = 0.0

    def plus(self, other: JobLoad) -> JobLoad:
        """Return this and what a further checkpoint did."""
        operators = dict(self.operators)
        for name, load in other.operators.items():
            operators[name] = operators.get(name, OperatorLoad()).plus(load)
        tasks = {(load.stage, load.task): load for load in self.tasks}
        for task in other.tasks:
            known = tasks.get((task.stage, task.task))
            tasks[task.stage, task.task] = task if known is None else known.plus(task)
        phases = dict(self.phases_ms)
        for phase, ms in other.phases_ms.items():
            phases[phase] = phases.get(phase, 0.0) + ms
        memory = other.worker_memory_bytes
        return JobLoad(
            operators,
            tuple(tasks[place] for place in sorted(tasks)),
            commits_added(self.sinks, other.sinks),
            reasons_added(self.reasons, other.reasons),
            phases,
            self.worker_memory_bytes if memory is None else memory,
            self.worker_cpu_ms + other.worker_cpu_ms,
        )


NO_LOAD = JobLoad()


def commits_added(one: Mapping[str, CommitLoad], other: Mapping[str, CommitLoad]) -> dict[str, CommitLoad]:
    """Return the commits of each sink in both."""
    both = dict(one)
    for name, load in other.items():
        was = both.get(name, CommitLoad())
        both[name] = CommitLoad(
            was.committables + load.committables, was.retries + load.retries, was.took_ms + load.took_ms
        )
    return both


def of_calls(calls: Iterable[CommitCall]) -> dict[str, CommitLoad]:
    """Return what commit calls come to by sink."""
    loads: dict[str, CommitLoad] = {}
    for call in calls:
        loads = commits_added(loads, {call.sink: CommitLoad(call.committables, call.retries, call.took_ms)})
    return loads


def reasons_added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of counts by reason; what is beyond `MOST_REASONS` of them is counted as "other"."""
    both = dict(one)
    for kind, count in other.items():
        _count(both, kind, count)
    return both


def count_reason(reasons: dict[str, int], reason: str) -> None:
    """Count a record that could not be used, by the kind of its reason."""
    _count(reasons, kind_of_reason(reason), 1)


def _count(reasons: dict[str, int], kind: str, count: int) -> None:
    name = kind if kind in reasons or len(reasons) < MOST_REASONS else OTHER_REASONS
    reasons[name] = reasons.get(name, 0) + count


def kind_of_reason(reason: str) -> str:
    """Return a reason of a dead letter without what is special to the record: its first clause, values in quotes and numbers left out.

    A label of a metric has to have few values; the whole reason is in the dead letter.
    """
    return _VALUES.sub("…", reason.partition(": ")[0])[:_LONGEST]
