"""What the tasks of one checkpoint report, added up for the coordinator; what does not add up is never decided."""

from __future__ import annotations

from collections.abc import Sequence

from poundlock.checkpoint.decision import EventTime
from poundlock.checkpoint.outcome import TaskResults
from poundlock.driver.planner import CheckpointPlan
from poundlock.errors import TransientError
from poundlock.operators.time_values import DecidedTime
from poundlock.plan.row_accounts import sink_counts
from poundlock.plan.stages import StageChain
from poundlock.tasks.report import TaskReport, total_counts


def task_results(
    chain: StageChain,
    plan: CheckpointPlan,
    reports: Sequence[TaskReport],
    *,
    watermarks: DecidedTime | None,
    event_time: EventTime | None,
) -> TaskResults:
    """Return the sums of a checkpoint's reports.

    Args:
        chain: the stages.
        plan: what was read.
        reports: of all tasks.
        watermarks: what the decision is to say of watermarks.
        event_time: what it is to say of the rows' times.

    Raises:
        TransientError: the tasks did not read just the splits that were planned for them.
    """
    _check_splits(plan, reports)
    totals = total_counts(reports)
    return TaskResults(
        prepared=[item for report in reports for item in report.prepared],
        counts=sink_counts(chain.nodes, chain.segments, totals, keeps_dead_letters=chain.keeps_dead_letters),
        rows_read={name: totals[name].rows_in if name in totals else 0 for name in chain.source.sources},
        bytes_read=_bytes_read(reports),
        tasks=len(plan.work) or None,
        watermarks=watermarks,
        event_time=event_time,
        state=[report.state for report in reports if report.state is not None],
    )


def _check_splits(plan: CheckpointPlan, reports: Sequence[TaskReport]) -> None:
    for name, planned in plan.splits.items():
        read = sum(report.reads[name].splits for report in reports if name in report.reads)
        if read != planned:
            raise TransientError(
                f"{planned} splits of {name!r} were planned and {read} were read",
                next="nothing was committed; the checkpoint is taken again",
            )


def _bytes_read(reports: Sequence[TaskReport]) -> dict[str, int]:
    """Return how large what was read is, per source whose readers all count."""
    reads = [(name, read.bytes) for report in reports for name, read in report.reads.items()]
    uncounted = {name for name, size in reads if size is None}
    sizes: dict[str, int] = {}
    for name, size in reads:
        if size is not None and name not in uncounted:
            sizes[name] = sizes.get(name, 0) + size
    return sizes
