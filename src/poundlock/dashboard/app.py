"""The application of `poundlock dashboard`: the paths of a job's own server, for many jobs, and the page."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter, Request

from poundlock import __version__
from poundlock.control.registry import ENDED
from poundlock.rest import models
from poundlock.rest.access.access import Admission
from poundlock.rest.access.guard import Guard
from poundlock.rest.answers import refusal, summary
from poundlock.rest.app import application
from poundlock.rest.served import ServedJobs

router = APIRouter()


def make_dashboard(served: ServedJobs, admission: Admission) -> Guard:
    """Return the ASGI application; every request but those for the page has to bring a token."""
    description = "The jobs of this machine, and of checkpoint roots."
    return application(served, admission, description, router, owner="dashboard")


def _served(request: Request) -> ServedJobs:
    served: ServedJobs = request.app.state.served
    return served


@router.get("/overview")
def overview(request: Request) -> models.Overview:
    """All jobs together."""
    jobs = _served(request).all()
    states = Counter(job.entry.state for job in jobs)
    running = [job for job in jobs if not job.ended]
    return models.Overview(
        taskmanagers=len(running),
        slots_total=sum(job.progress.parallelism or job.setup.parallelism or 1 for job in running),
        slots_available=0,
        jobs_running=sum(count for state, count in states.items() if state not in ENDED),
        jobs_finished=states["FINISHED"],
        jobs_cancelled=states["CANCELED"],
        jobs_failed=states["FAILED"],
        poundlock_version=__version__,
    )


@router.get("/jobs")
def jobs(request: Request) -> models.Jobs:
    """The jobs' ids and states."""
    return models.Jobs(jobs=[models.JobStatus(id=job.job_id, status=job.state) for job in _served(request).all()])


@router.get("/jobs/overview")
def jobs_overview(request: Request) -> models.JobsOverview:
    """The jobs' states and times."""
    return models.JobsOverview(jobs=[summary(job) for job in _served(request).all()])


@router.get("/metrics/prometheus")
def prometheus() -> None:
    """Each job has its own metrics: this answers with 404."""
    raise refusal(
        404, "a dashboard has no metrics of its own", "ask each job: GET /metrics/prometheus on its own server"
    )
