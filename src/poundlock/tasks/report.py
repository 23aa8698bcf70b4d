"""What a task is given and what it reports: typed values that travel pickled between the driver and its tasks.

A report counts rows per step; only the driver, which has the reports of every task, can say what became of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poundlock.checkpoint.participant import JSON, Prepared
from poundlock.checkpoint.skew import Shares
from poundlock.connectors.base import PartitionRead, Split
from poundlock.metrics.load import TaskUsage
from poundlock.metrics.user_totals import UserMetrics
from poundlock.operators.chain import StepCounts
from poundlock.operators.time_values import SplitTimes, TimeDirective
from poundlock.state.directive import PreparedState, StateDirective
from poundlock.tasks.event_time import SplitPlace


@dataclass(frozen=True, slots=True)
class Directive:
    """What every task of a checkpoint knows of it.

    Args:
        epoch: the driver attempt that planned it.
        started_ms: the driver's clock when it began, ms since the epoch.
        run: unique to this run of the checkpoint's tasks; reports of an earlier run are distinguished by it.
        parallelism: how many tasks each stage behind an exchange has in this checkpoint.
        places: of all splits, by number; empty where nobody asks for a row's split behind a Spark segment, or how many there are.
        state: by the name of a keyed stage, which state each of its tasks has.
        sinks: per sink that is to be written, what its participant wants its writers to know. Rows for other sinks are
            counted and not written: their part of the checkpoint is visible already.
    """

    checkpoint: int
    epoch: int
    started_ms: int
    run: str
    sinks: Mapping[str, JSON]
    time: TimeDirective
    parallelism: int = 1
    places: Sequence[SplitPlace] = ()
    state: Mapping[str, StateDirective] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """A split of a checkpoint.

    Args:
        sequence: its place among the splits of the source in this checkpoint; the same whichever task reads it.
        number: its place among all splits of the checkpoint.
    """

    source: str
    split: Split
    sequence: int
    number: int = -1

    @property
    def place(self) -> SplitPlace:
        """Where its rows are read."""
        return SplitPlace(self.source, self.split.name or self.split.id, self.sequence)


@dataclass(frozen=True, slots=True)
class TaskWork:
    """The splits that one task reads, in order; `subtask` is the index of the task within the checkpoint."""

    subtask: int
    splits: Sequence[SourceSplit]


@dataclass(slots=True)
class SourceRead:
    """What a task read of one source: how many splits, and how many bytes where the reader counts them; then of each partition, too."""

    splits: int = 0
    bytes: int | None = None
    partitions: dict[str, PartitionRead] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one attempt of one task did.

    Args:
        run: of the checkpoint's tasks, see `Directive`.
        reads: per source, what it read of it.
        state: name of the stage and the state that it prepared; None where its stage keeps none.
        watermarks: those that its operators ran by, see `Advanced.used`; "" where its stage has none.
        groups: per operator, how its rows lay over key groups.
        splits: per source, how many rows its splits had.
        executor: where it ran, see `executor_name`; "" where its stage keeps no state.
        usage: what the attempt took.
        reasons: records that could not be used, by the kind of reason.
        metrics: what the functions of its steps have counted.
    """

    stage: int
    subtask: int
    run: str
    prepared: Sequence[Prepared]
    steps: Mapping[str, StepCounts]
    reads: Mapping[str, SourceRead]
    state: tuple[str, PreparedState] | None = None
    times: Sequence[SplitTimes] = ()
    watermarks: str = ""
    groups: Mapping[str, Shares] = field(default_factory=dict)
    splits: Mapping[str, Shares] = field(default_factory=dict)
    executor: str = ""
    usage: TaskUsage = field(default_factory=TaskUsage)
    reasons: Mapping[str, int] = field(default_factory=dict)
    metrics: UserMetrics = field(default_factory=UserMetrics)


def total_counts(reports: Iterable[TaskReport]) -> dict[str, StepCounts]:
    """Return the rows per step, added up over tasks."""
    totals: dict[str, StepCounts] = {}
    for report in reports:
        for step, counts in report.steps.items():
            totals.setdefault(step, StepCounts()).add(counts)
    return totals


class AddedReports:
    """Reports on their way to the driver: Spark adds those of a task when it has succeeded, before the job ends.

    An `AccumulatorParam` of pyspark's by its methods. It is here and not beside the job that Spark runs, because it travels to
    the workers, and they would load all that the driver needs of Spark with it.
    """

    def zero(self, value: list[TaskReport]) -> list[TaskReport]:
        return []

    def addInPlace(self, value1: list[TaskReport], value2: list[TaskReport]) -> list[TaskReport]:
        return [*value1, *value2]


@dataclass(frozen=True, slots=True)
class Reporter:
    """Adds a report in a task to an accumulator of Spark's."""

    reports: Any

    def __call__(self, report: TaskReport) -> None:
        self.reports.add([report])
