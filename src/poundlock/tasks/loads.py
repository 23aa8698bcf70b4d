"""What the reports of a checkpoint's tasks say of the work: by operator, by task, and of the processes that did it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from poundlock.metrics.load import CommitLoad, JobLoad, OperatorLoad, TaskLoad, reasons_added
from poundlock.operators.chain import StepCounts
from poundlock.tasks.report import TaskReport, total_counts

_NS = 1_000_000  # in a millisecond


def load_of(reports: Sequence[TaskReport]) -> JobLoad:
    """Return what the tasks of a checkpoint did; of commits and phases it says nothing."""
    reasons: Mapping[str, int] = {}
    for report in reports:
        reasons = reasons_added(reasons, report.reasons) if report.reasons else reasons
    return JobLoad(
        operators={name: _of_operator(counts) for name, counts in total_counts(reports).items()},
        tasks=tuple(sorted((_of_task(report) for report in reports), key=lambda load: (load.stage, load.task))),
        reasons=reasons,
        worker_memory_bytes=_memory(reports),
        worker_cpu_ms=sum(report.usage.cpu_ms for report in reports),
    )


def of_end(commits: Mapping[str, CommitLoad], phases: Iterable[tuple[str, float]]) -> JobLoad:
    """Return the rest of what a checkpoint did: its commits, and the time, ms, that it was in each phase."""
    return JobLoad(sinks=commits, phases_ms=dict(phases))


def _of_operator(counts: StepCounts) -> OperatorLoad:
    return OperatorLoad(
        rows_in=counts.rows_in,
        rows_out=sum(counts.rows_out.values()),
        filtered=counts.filtered,
        rejected=counts.rejected,
        late=counts.late,
        busy_ms=counts.busy_ns / _NS,
        waiting_ms=counts.waiting_ns / _NS,
        bytes_in=counts.bytes_in,
    )


def _of_task(report: TaskReport) -> TaskLoad:
    first = [report.steps[name].rows_in for name in (report.reads or report.groups) if name in report.steps]
    rows = sum(first) if first else max((counts.rows_in for counts in report.steps.values()), default=0)
    return TaskLoad(report.stage, report.subtask, rows, report.usage.took_ms, report.usage.cpu_ms)


def _memory(reports: Iterable[TaskReport]) -> int | None:
    """Return the most that the worker processes ever had, added up; None where no task ran."""
    peaks: dict[str, int] = {}
    for report in reports:
        peaks[report.usage.worker] = max(peaks.get(report.usage.worker, 0), report.usage.memory_bytes)
    return sum(peaks.values()) if peaks else None
