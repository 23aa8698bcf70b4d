"""The metrics of a job: each with its name, what kind it is, its labels, and what it says. `docs/metrics.md` is held against this.

Every metric has the labels `job` and `job_id` as well, and a name that begins with `poundlock_`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

PREFIX = "poundlock_"
USER_PREFIX = "user_"
"""Behind the prefix, what the names of metrics begin with that the job's functions keep."""
Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric.

    Args:
        name: without the prefix; that of a counter ends in `_total`.
        what: what it says, a sentence.
        labels: besides `job` and `job_id`.
    """

    name: str
    kind: Kind
    what: str
    labels: tuple[str, ...] = ()

    @property
    def exposed(self) -> tuple[str, ...]:
        """The names of its series, as Prometheus has them."""
        ends = ("_bucket", "_count", "_sum") if self.kind == "histogram" else ("",)
        return tuple(f"{PREFIX}{self.name}{end}" for end in ends)


def _of(kind: Kind, *rows: tuple[str, str] | tuple[str, str, str]) -> Iterable[MetricDefinition]:
    for name, what, *labels in rows:
        yield MetricDefinition(name, kind, what, tuple(labels[0].split()) if labels else ())


METRICS: tuple[MetricDefinition, ...] = (
    *_of(
        "counter",
        ("rows_read_total", "Rows read from all sources."),
        ("rows_in_total", "Rows read, of sources that count them.", "source"),
        ("bytes_in_total", "Bytes read, of sources that tell.", "source"),
        ("rows_out_total", "Rows written.", "sink"),
        ("bytes_out_total", "Bytes written, of sinks that tell.", "sink"),
        ("rows_late_total", "Rows that came behind the watermark.", "sink"),
        ("rows_dead_lettered_total", "Rows that went to the dead letters.", "sink"),
        ("rows_skipped_total", "Rows that could not be used and were left out.", "sink"),
        ("rows_filtered_total", "Rows that the job itself left out.", "sink"),
        ("rows_rejected_total", "Rows that could not be used, by the kind of reason.", "reason"),
        ("operator_rows_in_total", "Rows that came to an operator.", "operator"),
        ("operator_rows_out_total", "Rows that an operator sent on; of a sink, that it wrote.", "operator"),
        ("operator_rows_filtered_total", "Rows that an operator left out.", "operator"),
        ("operator_rows_rejected_total", "Rows that an operator could not use.", "operator"),
        ("operator_rows_late_total", "Rows that an operator dropped because they were late.", "operator"),
        ("operator_bytes_in_total", "Bytes that came to a keyed operator over its exchange.", "operator"),
        ("operator_busy_seconds_total", "CPU time of tasks in an operator itself.", "operator"),
        ("operator_waiting_seconds_total", "Time of tasks in an operator itself without CPU, as for a disk.", "operator"),
        ("task_rows_in_total", "Rows that came to the first operators of a task.", "stage task"),
        ("task_seconds_total", "Time from the beginning of a task to its report.", "stage task"),
        ("task_cpu_seconds_total", "CPU time of a task's process meanwhile.", "stage task"),
        ("commits_total", "Committables that a sink was asked to make visible.", "sink"),
        ("commit_retries_total", "Commits that were asked for again, as their outcome was not known.", "sink"),
        ("commit_seconds_total", "Time of commits.", "sink"),
        ("checkpoints_completed_total", "Checkpoints that were decided."),
        ("checkpoints_failed_total", "Checkpoints that were begun and never decided, in the job's whole life."),
        ("checkpoint_phase_seconds_total", "Time that checkpoints were in a phase.", "phase"),
        ("restarts_total", "Restarts since this process started."),
        ("job_restarts_total", "Restarts in the job's whole life, by its drivers."),
        ("process_restarts_total", "How often the supervisor has started the job's process again."),
        ("worker_cpu_seconds_total", "CPU time of all tasks."),
        ("driver_cpu_seconds_total", "CPU time of the driver's process, and of the JVMs below it.", "process"),
    ),
    *_of(
        "gauge",
        ("lag_records", "Records waiting in the sources."),
        ("lag_partition_records", "Records waiting in a partition.", "source partition"),
        ("lag_seconds", "How long the waiting records take at the rate of the newest checkpoints."),
        ("watermark_timestamp_seconds", "The watermark, seconds since 1970."),
        ("watermark_delay_seconds", "How far the watermark is behind the clock."),
        ("key_group_largest_share", "Part of an operator's rows that one key group has.", "operator"),
        ("split_largest_share", "Part of a source's rows that one split has.", "source"),
        ("last_checkpoint", "Number of the newest checkpoint."),
        ("last_checkpoint_timestamp_seconds", "When the newest checkpoint was decided, seconds since 1970."),
        ("last_checkpoint_duration_seconds", "How long the newest checkpoint took."),
        ("last_checkpoint_size_bytes", "Bytes that the newest checkpoint wrote."),
        ("last_checkpoint_phase_seconds", "How long the newest checkpoint was in a phase.", "phase"),
        ("last_failed_checkpoint_timestamp_seconds", "When a checkpoint failed last, seconds since 1970."),
        ("checkpoints_in_progress", "Checkpoints that are under way, by the phase they are in.", "phase"),
        ("checkpoint_in_progress_seconds", "Age of the oldest checkpoint that is under way; 0 = none is."),
        ("process_start_seconds", "When the process started."),
        ("parallelism", "Number of tasks that a checkpoint has at most."),
        ("state_locality_ratio", "Part of the key groups that were worked on the executor that had them before."),
        ("state_size_bytes", "Size of the files of keyed state."),
        ("worker_memory_bytes", "The most memory that the newest checkpoint's worker processes had, added up."),
        ("driver_memory_bytes", "Memory of the driver's process, and of the JVMs below it.", "process"),
        ("job_state", "1 for the state the job is in.", "state"),
    ),
    *_of(
        "histogram",
        ("checkpoint_duration_seconds", "Checkpoints from their start to their end."),
        ("checkpoint_size_bytes", "What checkpoints wrote to sinks."),
    ),
)  # fmt: skip

BY_NAME = {metric.name: metric for metric in METRICS}
