"""Plans a checkpoint: which range of every source it reads, and which task reads what.

Nothing is remembered but what was decided: a checkpoint that was planned and not decided is planned again, with other ranges
if that suits.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from poundlock.checkpoint.cycle import Planned
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.participant import JSON
from poundlock.connectors.base import (
    ClosableEnumerator,
    Enumerator,
    IdentifyingEnumerator,
    LagReportingEnumerator,
    MeasuringEnumerator,
    PartitionedEnumerator,
    PartitionLagEnumerator,
    PartitionRead,
    PausableEnumerator,
    RangeCheckingEnumerator,
    Split,
    SplitSource,
)
from poundlock.operators.time_graph import Held
from poundlock.operators.time_values import SourceInput
from poundlock.storage.base import Storage
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.report import SourceSplit, TaskReport, TaskWork


@dataclass(frozen=True)
class CheckpointPlan(Planned):
    """What one checkpoint reads, and which task reads what."""

    work: Sequence[TaskWork]  # what each task reads; no task where there is nothing to read
    splits: Mapping[str, int]
    places: Sequence[SplitPlace] = ()

    @property
    def has_data(self) -> bool:
        """Whether there is anything to read."""
        return any(span.start != span.end for span in self.ranges.values())


@dataclass(eq=False)
class Planner:
    """The enumerators of one attempt of a job; used by one thread at a time."""

    sources: Mapping[str, SplitSource]
    workspace: Callable[[str], Storage]
    parallelism: int  # of the next plan
    _: KW_ONLY
    whole: Collection[str] = ()  # sources of which all splits of a partition go to one task
    alone: bool = (
        False  # each partition has a task of its own, whatever the parallelism: a sink knows its tasks by them
    )
    read_only: bool = False  # whether sources are not notified of what was read

    def __post_init__(self) -> None:
        self._enumerators: dict[str, Enumerator] = {
            name: source.enumerator(self.workspace(name)) for name, source in self.sources.items()
        }
        self._initial = {name: enumerator.initial() for name, enumerator in self._enumerators.items()}

    def plan(
        self, checkpoint: int, decided: Mapping[str, SourceRange], held: Mapping[str, Held] | None = None
    ) -> CheckpointPlan:
        """Plan a new checkpoint. `held`: per source, what has to wait for others of its alignment group."""
        ranges = {}
        for name, enumerator in self._enumerators.items():
            start = self._position(name, decided)
            # As the ledger will return it, so that the next checkpoint can be seen to begin here.
            end = json.loads(json.dumps(_latest(enumerator, start, (held or {}).get(name))))
            ranges[name] = SourceRange(start, end, self._identity(name, start, end, decided))
        return self._plan(checkpoint, ranges)

    def measured(self, reports: Sequence[TaskReport]) -> None:
        """Have the sources that ask for it know how wide what was read was."""
        for name, enumerator in self._enumerators.items():
            if isinstance(enumerator, MeasuringEnumerator):
                sizes: dict[str, PartitionRead] = {}
                for read in (report.reads[name] for report in reports if name in report.reads):
                    for partition, size in read.partitions.items():
                        sizes.setdefault(partition, PartitionRead()).add(size)
                if sizes:
                    enumerator.measured(sizes)

    def check_ranges(self, plan: CheckpointPlan) -> None:
        """Raise SourceGoneError unless all that was decided long ago can be read once more."""
        for name, span in plan.ranges.items():
            enumerator = self._enumerators[name]
            if isinstance(enumerator, RangeCheckingEnumerator) and span.start != span.end:
                enumerator.check_range(span.start, span.end, span.identity)

    def check_identity(self, plan: CheckpointPlan) -> None:
        """Raise SourceGoneError unless what was read of each source is what was to be read; called behind the tasks."""
        for name, span in plan.ranges.items():
            enumerator = self._enumerators[name]
            if isinstance(enumerator, IdentifyingEnumerator) and span.start != span.end:
                enumerator.identity(span.start, span.end, span.identity)

    def _identity(self, name: str, start: Any, end: Any, decided: Mapping[str, SourceRange]) -> Mapping[str, Any]:
        enumerator = self._enumerators[name]
        known = decided[name].identity if name in decided else {}
        if not isinstance(enumerator, IdentifyingEnumerator) or start == end:
            return known
        return enumerator.identity(start, end, known)

    def lag(self, decided: Mapping[str, SourceRange]) -> int | None:
        """Return how many records wait in the sources that know it, None where none does."""
        lags = [
            enumerator.lag(self._position(name, decided))
            for name, enumerator in self._enumerators.items()
            if isinstance(enumerator, LagReportingEnumerator)
        ]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known else None

    def lags(self, decided: Mapping[str, SourceRange]) -> dict[str, Mapping[str, int]]:
        """Return how many records wait in each partition, by source, of the sources that know it; `lag` asks for them."""
        return {
            name: enumerator.partition_lags(self._position(name, decided))
            for name, enumerator in self._enumerators.items()
            if isinstance(enumerator, PartitionLagEnumerator)
        }

    def plan_again(self, checkpoint: int, decided: Mapping[str, SourceRange]) -> CheckpointPlan:
        """Plan a decided checkpoint once more, over the ranges it was decided with."""
        ranges = {name: span for name, span in decided.items() if name in self._enumerators}
        return self._plan(checkpoint, ranges)

    def plan_nothing(self, checkpoint: int, decided: Mapping[str, SourceRange]) -> CheckpointPlan:
        """Plan a checkpoint that reads nothing."""
        positions = {name: self._position(name, decided) for name in self._enumerators}
        return self._plan(checkpoint, {name: SourceRange(at, at) for name, at in positions.items()})

    def _plan(self, checkpoint: int, ranges: Mapping[str, SourceRange]) -> CheckpointPlan:
        splits = {
            name: self._enumerators[name].splits(span.start, span.end) if span.start != span.end else ()
            for name, span in ranges.items()
        }
        counts = {name: len(result) for name, result in splits.items()}
        work = tasks_by_partition(splits) if self.alone else assign_splits(splits, self.parallelism, self.whole)
        work, places = _numbered(work)
        return CheckpointPlan(checkpoint, ranges, work, counts, places)

    def inputs(self, ranges: Mapping[str, SourceRange]) -> dict[str, SourceInput]:
        """Return what event time has to know of each source: its partitions, and whether anything comes behind a range."""
        result = {}
        for name, enumerator in self._enumerators.items():
            end = ranges[name].end if name in ranges else self._initial[name]
            partitions = None
            if isinstance(enumerator, PartitionedEnumerator):
                partitions = tuple(enumerator.partitions(end))
            result[name] = SourceInput(partitions=partitions, ended=bool(enumerator.finished(end)))
        return result

    def finished(self, decided: Mapping[str, SourceRange]) -> bool:
        """Return whether every source was read to its end."""
        return all(e.finished(self._position(name, decided)) for name, e in self._enumerators.items())

    def committed(self, decided: Mapping[str, SourceRange]) -> None:
        """Notify the sources that everything before their positions is decided and committed."""
        if self.read_only:
            return
        for name, enumerator in self._enumerators.items():
            enumerator.committed(self._position(name, decided))

    def pause(self) -> None:
        """Have everything that writes into a workspace beside the checkpoints leave it alone until the next plan."""
        for enumerator in self._enumerators.values():
            if isinstance(enumerator, PausableEnumerator):
                enumerator.pause()

    def close(self) -> None:
        """Release what the enumerators hold, such as connections."""
        for enumerator in self._enumerators.values():
            if isinstance(enumerator, ClosableEnumerator):
                enumerator.close()

    def _position(self, name: str, decided: Mapping[str, SourceRange]) -> Any:
        span = decided.get(name)
        return self._initial[name] if span is None else span.end


def assign_splits(
    splits: Mapping[str, Sequence[Split]], parallelism: int, whole: Collection[str] = ()
) -> list[TaskWork]:
    """Return the work of each task: of every source about equal weights, the same for the same splits.

    Args:
        whole: sources of which all splits of a partition go to one task, in their order.
    """
    tasks = min(parallelism, sum(len(result) for result in splits.values()))
    groups: list[list[SourceSplit]] = [[] for _ in range(tasks)]
    first = 0  # sources with few splits begin where the one before ended, so that they do not all meet in one task
    for name, result in splits.items():
        units = _units(name, result, whole=name in whole)
        heap = [(0, (i - first) % tasks, i) for i in range(tasks)]
        heapq.heapify(heap)
        mine: list[list[SourceSplit]] = [[] for _ in range(tasks)]
        for unit in sorted(units, key=lambda unit: (-_weight(unit), unit[0].sequence)):
            weight, order, i = heapq.heappop(heap)
            mine[i] += unit
            heapq.heappush(heap, (weight + _weight(unit), order, i))
        for i, group in enumerate(mine):
            groups[i] += sorted(group, key=lambda each: each.sequence)
        first = (first + len(units)) % tasks if tasks else 0
    return [TaskWork(i, group) for i, group in enumerate(g for g in groups if g)]


def tasks_by_partition(splits: Mapping[str, Sequence[Split]]) -> list[TaskWork]:
    """Return a task for each partition of each source, so that a repeated checkpoint has the same tasks."""
    units = [unit for name, result in splits.items() for unit in _units(name, result, whole=True)]
    return [TaskWork(i, unit) for i, unit in enumerate(units)]


def _numbered(work: Sequence[TaskWork]) -> tuple[list[TaskWork], list[SplitPlace]]:
    """Return work whose splits have numbers, and the place of each by its number."""
    places = sorted(each.place for task in work for each in task.splits)
    numbers = {place: number for number, place in enumerate(places)}
    return [TaskWork(t.subtask, [replace(s, number=numbers[s.place]) for s in t.splits]) for t in work], places


def _latest(enumerator: Enumerator, start: JSON, held: Held | None) -> JSON:
    """Return how far a source may be read."""
    if held is None:
        return enumerator.latest(start)
    if held.everything:
        return start
    if isinstance(enumerator, PartitionedEnumerator):
        return enumerator.latest(start, held.partitions)
    return enumerator.latest(start)


def _units(source: str, splits: Sequence[Split], *, whole: bool) -> list[list[SourceSplit]]:
    """Return what is never divided: single splits, or all of a partition."""
    placed = [SourceSplit(source, split, i) for i, split in enumerate(sorted(splits, key=lambda s: s.id))]
    if not whole:
        return [[each] for each in placed]
    by_partition: dict[str, list[SourceSplit]] = {}
    for each in placed:
        by_partition.setdefault(each.split.name or each.split.id, []).append(each)
    return list(by_partition.values())


def _weight(unit: Sequence[SourceSplit]) -> int:
    return sum(each.split.weight for each in unit)
