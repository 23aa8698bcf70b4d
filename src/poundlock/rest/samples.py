"""The values of a job's metrics, whoever exports them. A figure that is not known is left out, so that no graph shows a zero that was
never measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from poundlock.checkpoint.skew import Shares
from poundlock.control.registry import now_ms
from poundlock.driver.progress import Progress
from poundlock.metrics.load import JobLoad
from poundlock.metrics.process_usage import of_processes
from poundlock.metrics.timeline import PHASES
from poundlock.metrics.user_totals import GaugeValue, HistogramValue, UserMetrics
from poundlock.plan.plan import DEAD_LETTER
from poundlock.rest.catalogue import BY_NAME, USER_PREFIX, Kind, MetricDefinition
from poundlock.rest.figures import Spread, Totals
from poundlock.rest.observed import Observed

_STATES = ("INITIALIZING", "RUNNING", "RESTARTING", "FINISHED", "CANCELED", "FAILED")


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric, with the values of its own labels."""

    value: float | Spread
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric with its values."""

    metric: MetricDefinition
    samples: tuple[Sample, ...]


def measured(job: Observed) -> Iterator[Measured]:
    """Yield the metrics of a job as they are now."""
    totals, progress = job.figures.refresh(), job.progress
    yield from _flow(totals, progress)
    yield from _of_load(progress.load)
    yield from _of_user(totals.metrics)
    yield from _of_checkpoints(job, totals, progress)
    yield from _of_job(job, progress)
    if job.entry.here and job.entry.process == os.getpid():
        yield from _of_processes()


def _one(name: str, value: float | Spread) -> Measured:
    return Measured(BY_NAME[name], (Sample(value),))


def _by_label(name: str, values: Mapping[str, float]) -> Measured:
    return Measured(BY_NAME[name], tuple(Sample(value, (key,)) for key, value in values.items()))


def _flow(totals: Totals, progress: Progress) -> Iterator[Measured]:
    sinks = {name: counts for name, counts in totals.counts.items() if name != DEAD_LETTER}
    yield _one("rows_read_total", progress.rows_read)
    yield _by_label("rows_in_total", totals.rows_in)
    yield _by_label("bytes_in_total", totals.bytes_in)
    yield _largest("key_group_largest_share", progress.skew.groups)
    yield _largest("split_largest_share", progress.skew.splits)
    yield _by_label("rows_out_total", {name: counts.written for name, counts in totals.counts.items()})
    yield _by_label("bytes_out_total", totals.bytes_out)
    yield _by_label("rows_late_total", {name: counts.late for name, counts in sinks.items()})
    yield _by_label("rows_dead_lettered_total", {name: counts.dead_lettered for name, counts in sinks.items()})
    yield _by_label("rows_skipped_total", {name: counts.skipped for name, counts in sinks.items()})
    yield _by_label("rows_filtered_total", {name: counts.filtered for name, counts in sinks.items()})
    if progress.lag is not None:
        yield _one("lag_records", progress.lag)
        if progress.lag == 0 or progress.rows_per_s > 0:
            yield _one("lag_seconds", progress.lag / progress.rows_per_s if progress.lag else 0)
    waiting = {(source, name): rows for source, parts in progress.lags.items() for name, rows in parts.items()}
    if waiting:
        yield Measured(BY_NAME["lag_partition_records"], tuple(Sample(rows, of) for of, rows in waiting.items()))
    watermark = totals.watermark_ms if progress.watermark is None else progress.watermark
    if watermark is not None:
        yield _one("watermark_timestamp_seconds", watermark / 1000)
        yield _one("watermark_delay_seconds", (now_ms() - watermark) / 1000)


def _largest(name: str, shares: Mapping[str, Shares]) -> Measured:
    return _by_label(name, {id: of.share(of.largest[0]) for id, of in shares.items() if of.largest})


def _of_load(load: JobLoad) -> Iterator[Measured]:
    yield _by_label("rows_rejected_total", load.reasons)
    operators = load.operators
    yield _by_label("operator_rows_in_total", {name: each.rows_in for name, each in operators.items()})
    yield _by_label("operator_rows_out_total", {name: each.rows_out for name, each in operators.items()})
    yield _by_label("operator_rows_filtered_total", {name: each.filtered for name, each in operators.items()})
    yield _by_label("operator_rows_rejected_total", {name: each.rejected for name, each in operators.items()})
    yield _by_label("operator_rows_late_total", {name: each.late for name, each in operators.items()})
    yield _by_label("operator_busy_seconds_total", {name: each.busy_ms / 1000 for name, each in operators.items()})
    yield _by_label("operator_waiting_seconds_total", {n: each.waiting_ms / 1000 for n, each in operators.items()})
    sizes = {name: each.bytes_in for name, each in operators.items() if each.bytes_in is not None}
    yield _by_label("operator_bytes_in_total", sizes)
    places = [(str(task.stage), str(task.task)) for task in load.tasks]
    yield _of_tasks("task_rows_in_total", places, (task.rows_in for task in load.tasks))
    yield _of_tasks("task_seconds_total", places, (task.took_ms / 1000 for task in load.tasks))
    yield _of_tasks("task_cpu_seconds_total", places, (task.cpu_ms / 1000 for task in load.tasks))
    yield _by_label("commits_total", {name: each.committables for name, each in load.sinks.items()})
    yield _by_label("commit_retries_total", {name: each.retries for name, each in load.sinks.items()})
    yield _by_label("commit_seconds_total", {name: each.took_ms / 1000 for name, each in load.sinks.items()})
    yield _by_label("checkpoint_phase_seconds_total", {name: ms / 1000 for name, ms in load.phases_ms.items()})
    if load.worker_memory_bytes is not None:
        yield _one("worker_memory_bytes", load.worker_memory_bytes)
        yield _one("worker_cpu_seconds_total", load.worker_cpu_ms / 1000)


def _of_user(metrics: UserMetrics) -> Iterator[Measured]:
    """Yield the metrics that the job's functions keep; their names are the user's."""
    what = "A metric of the job's own."
    kinds: tuple[tuple[Kind, str, Mapping[str, Mapping[str, Any]]], ...] = (
        ("counter", "_total", metrics.counters), ("gauge", "", metrics.gauges), ("histogram", "", metrics.histograms)
    )  # fmt: skip
    for kind, end, of in kinds:
        by_name: dict[str, list[Sample]] = {}
        for operator, named in of.items():
            for name, value in named.items():
                by_name.setdefault(name, []).append(Sample(_plain(value), (operator,)))
        for name, samples in sorted(by_name.items()):
            metric = MetricDefinition(f"{USER_PREFIX}{name}{end}", kind, what, ("operator",))
            yield Measured(metric, tuple(samples))


def _plain(value: int | GaugeValue | HistogramValue) -> float | Spread:
    if isinstance(value, HistogramValue):
        spread = Spread(value.bounds, value.sum)
        spread.counts = list(value.counts)
        return spread
    return value.value if isinstance(value, GaugeValue) else value


def _of_tasks(name: str, places: Iterable[tuple[str, str]], values: Iterable[float]) -> Measured:
    return Measured(BY_NAME[name], tuple(Sample(value, place) for place, value in zip(places, values, strict=True)))


def _of_checkpoints(job: Observed, totals: Totals, progress: Progress) -> Iterator[Measured]:
    history = job.figures.history()
    yield _one("checkpoint_duration_seconds", totals.seconds)
    yield _one("checkpoint_size_bytes", totals.sizes)
    yield _one("checkpoints_completed_total", totals.records["checkpoint"])
    yield _one("checkpoints_failed_total", progress.failed_checkpoints)
    yield _by_label(
        "checkpoints_in_progress",
        {phase: sum(each.phase == phase for each in progress.under_way) for phase in PHASES},
    )
    oldest = min((each.started_ms for each in progress.under_way), default=None)
    yield _one("checkpoint_in_progress_seconds", 0 if oldest is None else max(0, now_ms() - oldest) / 1000)
    if history:
        newest = history[0]
        yield _one("last_checkpoint", newest.number)
        yield _one("last_checkpoint_timestamp_seconds", newest.decided_ms / 1000)
        yield _one("last_checkpoint_duration_seconds", newest.duration_ms / 1000)
        yield _by_label("last_checkpoint_phase_seconds", {n: ms / 1000 for n, ms in newest.phases_ms.items()})
        if newest.size is not None:
            yield _one("last_checkpoint_size_bytes", newest.size)
    if progress.newest_failed:
        yield _one("last_failed_checkpoint_timestamp_seconds", progress.newest_failed[-1].failed_ms / 1000)


def _of_job(job: Observed, progress: Progress) -> Iterator[Measured]:
    yield _one("restarts_total", progress.restarts)
    yield _one("job_restarts_total", max(progress.all_restarts, progress.restarts))
    if job.entry.child is not None:
        yield _one("process_restarts_total", job.entry.process_restarts)
    yield _one("process_start_seconds", job.entry.started_ms / 1000)
    if progress.parallelism is not None:
        yield _one("parallelism", progress.parallelism)
    if progress.state_locality is not None:
        yield _one("state_locality_ratio", progress.state_locality)
    if progress.state_bytes is not None:
        yield _one("state_size_bytes", progress.state_bytes)
    yield _by_label("job_state", {state: int(progress.state == state) for state in _STATES})


def _of_processes() -> Iterator[Measured]:
    usages = of_processes()
    yield _by_label("driver_memory_bytes", {name: usage.memory_bytes for name, usage in usages.items()})
    yield _by_label("driver_cpu_seconds_total", {name: usage.cpu_s for name, usage in usages.items()})
