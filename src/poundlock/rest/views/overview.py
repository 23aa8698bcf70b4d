"""The list of jobs as the dashboard shows it: of a job's own server that one, of `poundlock dashboard` all there are."""

from __future__ import annotations

import shlex

from fastapi import APIRouter, Request

from poundlock.control.registry import now_ms
from poundlock.rest.observed import Observed
from poundlock.rest.served import ServedJobs
from poundlock.rest.views import models

router = APIRouter()


@router.get("/dashboard/jobs")
def cards(request: Request) -> models.JobCards:
    """The jobs there are, with how each goes."""
    served: ServedJobs = request.app.state.served
    jobs = sorted(served.all(), key=lambda job: job.entry.started_ms, reverse=True)
    return models.JobCards(now=now_ms(), jobs=[card(job) for job in jobs], unreadable=list(served.unreadable()))


def card(job: Observed) -> models.JobCard:
    """Return a job as a line of the list."""
    entry, progress = job.entry, job.progress
    return models.JobCard(
        jid=job.job_id,
        name=entry.name,
        state=job.state,
        started=entry.started_ms,
        ended=entry.ended_ms,
        host=entry.host,
        process=entry.process,
        application=entry.on_cluster,
        checkpoint_dir=entry.checkpoint_dir,
        command=shlex.join(["poundlock", entry.command, *entry.arguments]),
        restarts=progress.restarts + entry.process_restarts,
        checkpoint=progress.checkpoint,
        rows_read=progress.rows_read,
        rows_written=progress.rows_written,
        rows_per_s=0.0 if job.ended else progress.rows_per_s,
        lag=progress.lag,
        last_ms=progress.last_ms,
        watermark=progress.watermark,
        dead_lettered=progress.dead_lettered,
        state_bytes=progress.state_bytes,
        parallelism=progress.parallelism or job.setup.parallelism,
        failure=None if entry.failure is None else list(entry.failure),
        gone=entry.gone,
        operable=not job.ended,
        written=entry.written_ms,
    )
