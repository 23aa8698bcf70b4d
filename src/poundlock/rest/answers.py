"""What the server answers to those who look, made from what is observed of the job. Nothing here changes anything.

Figures that are not known are null, never zero; times that are not there yet are -1, as in Flink.
"""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response

from poundlock import __version__
from poundlock.checkpoint.skew import Shares
from poundlock.control.registry import ENDED, now_ms
from poundlock.driver.requests import Kind, Trigger
from poundlock.errors import DefinitionError, PoundlockError
from poundlock.metrics.user_totals import plain_values
from poundlock.rest import models
from poundlock.rest.checkpoint_lines import checkpoints_of, line_of
from poundlock.rest.observed import Observed, Vertex
from poundlock.rest.prometheus import CONTENT_TYPE, exposition
from poundlock.rest.served import ServedJobs
from poundlock.savepoint.kept_state import NoStateError, kept_state
from poundlock.state.key_text import plain
from poundlock.storage import open_storage
from poundlock.storage.storage_errors import explained

_ID = r"^[0-9a-fA-F]{32}$"
_REFRESH_MS = 3000
_LARGEST = 2**63 - 1
_MOST_ENTRIES = 1000

router = APIRouter()
of_one_job = APIRouter()
"""The paths without a job's id: `poundlock dashboard` has its own, of many."""


async def _job_here(request: Request) -> Observed:
    served: ServedJobs = request.app.state.served
    (job,) = served.all()
    return job


async def _job_called(
    request: Request,
    jid: Annotated[str, Path(json_schema_extra={"pattern": _ID}, description="The job's id, 32 hex digits.")],
) -> Observed:
    served: ServedJobs = request.app.state.served
    there = served.where()
    if re.fullmatch(_ID, jid) is None:
        raise refusal(400, f"{jid[:100]!r} is no job id, which has 32 hex digits", there)
    job = served.find(jid.lower())
    if job is None:
        raise refusal(404, f"job {jid.lower()} is not here", there)
    return job


JobHere = Annotated[Observed, Depends(_job_here)]
JobCalled = Annotated[Observed, Depends(_job_called)]
TriggerId = Annotated[str, Path(pattern=_ID, description="What the request was answered with.")]


def refusal(status: int, *lines: str) -> HTTPException:
    """Return what to raise: what happened, then what to do."""
    return HTTPException(status, detail=list(lines))


@of_one_job.get("/overview")
def overview(job: JobHere) -> models.Overview:
    """The process as a whole."""
    slots = _parallelism(job)
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


@router.get("/config")
def config() -> models.Configuration:
    """What a dashboard asks for first."""
    local = time.localtime()
    return models.Configuration(
        refresh_interval=_REFRESH_MS,
        timezone_name=local.tm_zone,
        timezone_offset=local.tm_gmtoff * 1000,
        poundlock_version=__version__,
        features={"web-submit": False, "web-cancel": True, "web-history": False, "web-rescale": False},
    )


@of_one_job.get("/jobs")
def jobs(job: JobHere) -> models.Jobs:
    """The job's id and state."""
    return models.Jobs(jobs=[models.JobStatus(id=job.job_id, status=job.state)])


@of_one_job.get("/jobs/overview")
def jobs_overview(job: JobHere) -> models.JobsOverview:
    """The job's state and times."""
    return models.JobsOverview(jobs=[summary(job)])


def summary(job: Observed) -> models.JobSummary:
    """Return a job as a line of a list."""
    return models.JobSummary(
        jid=job.job_id,
        name=job.entry.name,
        state=job.state,
        **_times(job),
        last_modification=max(job.entry.since.values(), default=job.entry.started_ms),
        tasks=_tasks(job),
    )


@of_one_job.get("/metrics/prometheus", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def prometheus(job: JobHere) -> Response:
    """All metrics, for Prometheus."""
    return Response(exposition(job), media_type=CONTENT_TYPE)


@router.get("/jobs/{jid}")
def details(job: JobCalled) -> models.JobDetails:
    """The job with its sources and sinks."""
    return models.JobDetails(
        jid=job.job_id,
        name=job.entry.name,
        isStoppable=not job.ended,
        state=job.state,
        **_times(job),
        now=now_ms(),
        timestamps=dict(job.entry.since),
        vertices=[_vertex(job, vertex) for vertex in job.setup.vertices],
        status_counts=_tasks(job),
        role=job.entry.role,
        progress=asdict(job.progress),
    )


@router.get("/jobs/{jid}/exceptions")
def exceptions(job: JobCalled) -> models.Exceptions:
    """Why the job was restarted."""
    # There are no stack traces: those are in the log.
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


@router.get("/jobs/{jid}/metrics", response_model_exclude_none=True)
def metrics(
    job: JobCalled, get: Annotated[str | None, Query(description="Names, with commas between.")] = None
) -> list[models.Metric]:
    """The names of metrics, or the values of some."""
    values = {
        name: value
        for name, value in asdict(job.progress).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    values["uptime"] = _times(job)["duration"]
    # Between two checkpoints the progress alone knows what idle partitions no longer hold back.
    watermark = job.progress.watermark if job.progress.watermark is not None else job.figures.refresh().watermark_ms
    if watermark is not None:
        values["currentWatermark"] = watermark
    values |= plain_values(job.figures.refresh().metrics)
    if get is None:
        return [models.Metric(id=name) for name in values]
    return [models.Metric(id=name, value=str(values[name])) for name in get.split(",") if name in values]


@router.get("/jobs/{jid}/user-metrics")
def user_metrics(job: JobCalled) -> models.UserMetricValues:
    """The metrics that the job's functions keep, by operator, summed over all decided checkpoints of its life."""
    return models.UserMetricValues.model_validate(asdict(job.figures.refresh().metrics))


@router.get("/jobs/{jid}/skew")
def skew(job: JobCalled) -> models.RowSkew:
    """How unevenly the rows of the newest checkpoint that had any lie over key groups and splits, the largest of each."""
    now = job.progress.skew
    return models.RowSkew(
        key_groups=[_shares(name, shares) for name, shares in sorted(now.groups.items())],
        splits=[_shares(name, shares) for name, shares in sorted(now.splits.items())],
    )


@router.get("/jobs/{jid}/operators/{operator}/state/{key:path}")
def key_state(
    job: JobCalled,
    operator: Annotated[str, Path(description="The operator's id.")],
    key: Annotated[str, Path(description="The key, as `poundlock state --key` takes it.")],
    limit: Annotated[int, Query(ge=1, le=_MOST_ENTRIES, description="Entries and timers of each.")] = 20,
) -> models.KeyState:
    """What an operator keeps for one key, as of the newest decided checkpoint; a key that has nothing has no state."""
    folder = job.entry.checkpoint_dir
    try:
        with explained(f"reading the state in {folder}"):
            (kept,) = kept_state(open_storage(folder), operator, key, limit=limit)
    except PoundlockError as error:
        status = 404 if isinstance(error, NoStateError) else 400 if isinstance(error, DefinitionError) else 503
        raise refusal(status, error.what, error.next) from error
    return models.KeyState.model_validate({"operator": kept.operator, **plain(kept.content)})


@router.get("/jobs/{jid}/config")
def job_config(job: JobCalled) -> models.JobConfiguration:
    """How the job was set up, without secrets."""
    config = {
        "execution-mode": "STREAMING",
        "restart-strategy": job.setup.restart_strategy
        or job.setup.settings.get("restart_strategy_type", "exponential-delay"),
        "job-parallelism": job.progress.parallelism or job.setup.parallelism,
        "user-config": dict(job.setup.settings),
    }
    return models.JobConfiguration(jid=job.job_id, name=job.entry.name, execution_config=config)


@router.get("/jobs/{jid}/checkpoints")
def checkpoints(job: JobCalled) -> models.Checkpoints:
    """The checkpoints of this process: those under way, then those that failed or completed, the newest first."""
    return checkpoints_of(job)


@router.get("/jobs/{jid}/checkpoints/details/{number}")
def checkpoint(job: JobCalled, number: Annotated[int, Path(ge=0, le=_LARGEST)]) -> models.CheckpointDetails:
    """One checkpoint, of an earlier process too."""
    figures = job.figures.find(number)
    if figures is None:
        raise refusal(404, f"there is no checkpoint {number}", "see the checkpoints there are: GET …/checkpoints")
    sources = {
        name: models.SourceOfCheckpoint(start=start, end=end, rows=rows, bytes=size)
        for name, (start, end, rows, size) in figures.sources.items()
    }
    return models.CheckpointDetails(**line_of(figures).model_dump(), sources=sources)


@router.get("/jobs/{jid}/checkpoints/{trigger_id}", response_model_exclude_none=True)
def checkpoint_trigger(job: JobCalled, trigger_id: TriggerId) -> models.CheckpointTriggerInfo:
    """What became of a checkpoint that was asked for."""
    trigger = _trigger(job, trigger_id, "checkpoint")
    if trigger.status == "IN_PROGRESS":
        return models.CheckpointTriggerInfo(status=models.TriggerStatus(id="IN_PROGRESS"))
    number = trigger.location if isinstance(trigger.location, int) else None
    return models.CheckpointTriggerInfo(
        status=models.TriggerStatus(id="COMPLETED"),
        operation=models.CheckpointOperation(checkpointId=number, failure_cause=failure_cause(trigger.failure)),
    )


@router.get("/jobs/{jid}/savepoints/{trigger_id}", response_model_exclude_none=True)
def savepoint_trigger(job: JobCalled, trigger_id: TriggerId) -> models.SavepointTriggerInfo:
    """What became of a savepoint or a stop that was asked for."""
    trigger = _trigger(job, trigger_id, "savepoint", "stop")
    if trigger.status == "IN_PROGRESS":
        return models.SavepointTriggerInfo(status=models.TriggerStatus(id="IN_PROGRESS"))
    place = None if trigger.location is None else str(trigger.location)
    return models.SavepointTriggerInfo(
        status=models.TriggerStatus(id="COMPLETED"),
        operation=models.SavepointOperation(location=place, failure_cause=failure_cause(trigger.failure)),
    )


def _trigger(job: Observed, id: str, *kinds: Kind) -> Trigger:
    trigger = job.requests.find(id.lower(), *kinds)
    if trigger is None:
        raise refusal(404, "there is no such request", "the newest hundred requests can be looked up")
    return trigger


def failure_cause(error: PoundlockError | None) -> models.FailureCause | None:
    """Return an error as an answer has it."""
    if error is None:
        return None
    return models.FailureCause.model_validate(
        {"class": type(error).__name__, "stack-trace": str(error), "code": error.code}
    )


def _parallelism(job: Observed) -> int:
    """Return how many tasks a checkpoint has, as far as it is known."""
    return job.progress.parallelism or job.setup.parallelism or 1


def _times(job: Observed) -> dict[str, int]:
    """Return when it started and ended (-1 = not yet) and how long it has run, ms."""
    begin, end = job.entry.started_ms, -1
    if job.ended:  # a driver that is looked at through its folder has left the end alone
        end = job.entry.since.get(job.entry.state) or job.entry.ended_ms or -1
    return {"start_time": begin, "end_time": end, "duration": max(0, (end if end >= 0 else now_ms()) - begin)}


def _tasks(job: Observed) -> dict[str, int]:
    state = job.entry.state.lower()
    counts = dict.fromkeys(("created", "running", "canceling", "failed", "finished", "canceled", "initializing"), 0)
    counts[state if state in counts else "created"] = len(job.setup.vertices)
    return {"total": len(job.setup.vertices), **counts}


def _vertex(job: Observed, vertex: Vertex) -> models.VertexDetails:
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
        parallelism=_parallelism(job),
        status=job.state,
        **_times(job),
        metrics=known,
    )


def _shares(id: str, shares: Shares) -> models.RowShares:
    return models.RowShares(
        id=id,
        parts=shares.parts,
        rows=shares.rows,
        skew=round(shares.skew, 3),
        largest=[
            models.RowsOfPart(name=part.name, rows=part.rows, share=round(shares.share(part), 6))
            for part in shares.largest
        ],
    )
