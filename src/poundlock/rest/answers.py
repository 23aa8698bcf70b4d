"""What the server answers, made from what is observed of the job. Nothing here changes anything.

Figures that are not known are null, never zero; times that are not there yet are -1, as in Flink.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from poundlock import __version__
from poundlock.control.registry import ENDED, now_ms
from poundlock.driver.requests import Trigger
from poundlock.errors import PoundlockError
from poundlock.rest import models
from poundlock.rest.figures import CheckpointFigures
from poundlock.rest.observed import Observed, Vertex

_REFRESH_MS = 3000


def overview(job: Observed) -> models.Overview:
    """Answer GET /overview."""
    slots = job.setup.parallelism or 1
    state = job.entry.state
    return models.Overview(
        taskmanagers=1,
        slots_total=slots,
        slots_available=slots if job.ended else 0,
        jobs_running=int(state not in ENDED),
        jobs_finished=int(state == "FINISHED"),
        jobs_cancelled=int(state == "CANCELED"),
        jobs_failed=int(state == "FAILED"),
        poundlock_version=__version__,
    )


def configuration() -> models.Configuration:
    """Answer GET /config."""
    local = time.localtime()
    return models.Configuration(
        refresh_interval=_REFRESH_MS,
        timezone_name=local.tm_zone,
        timezone_offset=local.tm_gmtoff * 1000,
        poundlock_version=__version__,
        features={"web-submit": False, "web-cancel": True, "web-history": False, "web-rescale": False},
    )


def summary(job: Observed) -> models.JobSummary:
    """Answer for one line of GET /jobs/overview."""
    begin, end, duration = _times(job)
    return models.JobSummary(
        jid=job.job_id,
        name=job.entry.name,
        state=job.state,
        start_time=begin,
        end_time=end,
        duration=duration,
        last_modification=max(job.entry.since.values(), default=begin),
        tasks=_tasks(job),
    )


def details(job: Observed) -> models.JobDetails:
    """Answer GET /jobs/{jid}."""
    begin, end, duration = _times(job)
    return models.JobDetails(
        jid=job.job_id,
        name=job.entry.name,
        isStoppable=not job.ended,
        state=job.state,
        start_time=begin,
        end_time=end,
        duration=duration,
        now=now_ms(),
        timestamps=dict(job.entry.since),
        vertices=[_vertex(job, vertex) for vertex in job.setup.vertices],
        status_counts=_tasks(job),
        progress=dataclasses.asdict(job.progress),
    )


def checkpoints(job: Observed) -> models.Checkpoints:
    """Answer GET /jobs/{jid}/checkpoints."""
    history = job.figures.history()
    completed = job.figures.refresh().records.get("checkpoint", 0)
    restored = None
    saved = job.figures.restored_savepoint
    if job.figures.restored is not None:
        restored = models.Restored(
            id=job.figures.restored,
            restore_timestamp=job.figures.restored_ms,
            is_savepoint=saved is not None,
            external_path=saved,
        )
    return models.Checkpoints(
        counts=models.CheckpointCounts(
            restored=int(restored is not None), total=completed, in_progress=0, completed=completed, failed=0
        ),
        summary=models.CheckpointSummary(
            checkpointed_size=_spread([each.size for each in history if each.size is not None]),
            end_to_end_duration=_spread([each.duration_ms for each in history]),
        ),
        latest=models.Latest(completed=_line(history[0]) if history else None, restored=restored),
        history=[_line(each) for each in history],
        began_with=job.figures.began_with,
    )


def checkpoint_details(job: Observed, number: int) -> models.CheckpointDetails | None:
    """Answer GET /jobs/{jid}/checkpoints/details/{n}; None if there is no such checkpoint."""
    checkpoint = job.figures.find(number)
    if checkpoint is None:
        return None
    sources = {
        name: models.SourceOfCheckpoint(start=start, end=end, rows=rows, bytes=size)
        for name, (start, end, rows, size) in checkpoint.sources.items()
    }
    return models.CheckpointDetails(**_line(checkpoint).model_dump(), sources=sources)


def exceptions(job: Observed) -> models.Exceptions:
    """Answer GET /jobs/{jid}/exceptions. There are no stack traces: those are in the log."""
    entries = [
        models.ExceptionEntry(exceptionName=what, stacktrace="", timestamp=at_ms)
        for what, at_ms in reversed(job.entry.troubles)
    ]
    newest = entries[0] if entries else None
    return models.Exceptions(
        root_exception=newest.exceptionName if newest else None,
        timestamp=newest.timestamp if newest else None,
        exceptionHistory=models.ExceptionHistory(entries=entries),
    )


def metrics(job: Observed, wanted: Sequence[str] | None) -> list[models.Metric]:
    """Answer GET /jobs/{jid}/metrics: the names there are, or the values of those that are wanted."""
    values = {
        name: value
        for name, value in dataclasses.asdict(job.progress).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    values["uptime"] = _times(job)[2]
    # Between two checkpoints the progress alone knows what idle partitions no longer hold back.
    watermark = job.progress.watermark if job.progress.watermark is not None else job.figures.refresh().watermark_ms
    if watermark is not None:
        values["currentWatermark"] = watermark
    if wanted is None:
        return [models.Metric(id=name) for name in values]
    return [models.Metric(id=name, value=str(values[name])) for name in wanted if name in values]


def job_configuration(job: Observed) -> models.JobConfiguration:
    """Answer GET /jobs/{jid}/config."""
    config = {
        "execution-mode": "STREAMING",
        "restart-strategy": job.setup.settings.get("restart_strategy_type", "exponential-delay"),
        "job-parallelism": job.setup.parallelism,
        "user-config": dict(job.setup.settings),
    }
    return models.JobConfiguration(jid=job.job_id, name=job.entry.name, execution_config=config)


def checkpoint_trigger(trigger: Trigger) -> models.CheckpointTriggerInfo:
    """Answer what became of a checkpoint that was asked for."""
    if trigger.status == "IN_PROGRESS":
        return models.CheckpointTriggerInfo(status=models.TriggerStatus(id="IN_PROGRESS"))
    number = trigger.location if isinstance(trigger.location, int) else None
    return models.CheckpointTriggerInfo(
        status=models.TriggerStatus(id="COMPLETED"),
        operation=models.CheckpointOperation(checkpointId=number, failure_cause=_cause(trigger.failure)),
    )


def savepoint_trigger(trigger: Trigger) -> models.SavepointTriggerInfo:
    """Answer what became of a savepoint or a stop that was asked for."""
    if trigger.status == "IN_PROGRESS":
        return models.SavepointTriggerInfo(status=models.TriggerStatus(id="IN_PROGRESS"))
    place = None if trigger.location is None else str(trigger.location)
    return models.SavepointTriggerInfo(
        status=models.TriggerStatus(id="COMPLETED"),
        operation=models.SavepointOperation(location=place, failure_cause=_cause(trigger.failure)),
    )


def _cause(error: PoundlockError | None) -> models.FailureCause | None:
    if error is None:
        return None
    return models.FailureCause.model_validate({"class": type(error).__name__, "stack-trace": str(error)})


def _times(job: Observed) -> tuple[int, int, int]:
    """Return when it started and ended (-1 = not yet) and how long it has run, ms."""
    end = job.entry.since.get(job.entry.state, -1) if job.ended else -1
    return job.entry.started_ms, end, max(0, (end if end >= 0 else now_ms()) - job.entry.started_ms)


def _tasks(job: Observed) -> dict[str, int]:
    state = job.entry.state.lower()
    counts = dict.fromkeys(("created", "running", "canceling", "failed", "finished", "canceled", "initializing"), 0)
    counts[state if state in counts else "created"] = len(job.setup.vertices)
    return {"total": len(job.setup.vertices), **counts}


def _vertex(job: Observed, vertex: Vertex) -> models.VertexDetails:
    begin, end, duration = _times(job)
    totals = job.figures.refresh()
    counts = totals.counts.get(vertex.name)
    known: dict[str, int | None]
    if vertex.kind == "source":
        known = {"read-records": totals.rows_in.get(vertex.name), "read-bytes": totals.bytes_in.get(vertex.name)}
    else:
        known = {
            "write-records": counts.written if counts is not None else 0,
            "write-bytes": totals.bytes_out.get(vertex.name),
        }
    return models.VertexDetails(
        id=vertex.name,
        name=f"{vertex.kind.capitalize()}: {vertex.name} ({vertex.description})",
        parallelism=job.setup.parallelism or 1,
        status=job.state,
        start_time=begin,
        end_time=end,
        duration=duration,
        metrics=known,
    )


def _line(figures: CheckpointFigures) -> models.CheckpointLine:
    return models.CheckpointLine(
        id=figures.number,
        trigger_timestamp=figures.started_ms,
        latest_ack_timestamp=figures.decided_ms,
        checkpointed_size=figures.size,
        end_to_end_duration=figures.duration_ms,
        rows_read=figures.rows_read,
        rows_written=figures.rows_written,
        rows_late=figures.late,
        rows_dead_lettered=figures.dead_lettered,
    )


def _spread(values: Sequence[int]) -> models.MinMaxAverage:
    if not values:
        return models.MinMaxAverage(min=0, max=0, avg=0)
    return models.MinMaxAverage(min=min(values), max=max(values), avg=round(sum(values) / len(values)))
