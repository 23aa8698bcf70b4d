"""The web application: the guard in front of all routes, and those that change something.

Without a token nothing is looked up and nothing changes; whatever is asked, the answer is JSON and no stack trace.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException

from poundlock.control.driver_status import start_command
from poundlock.control.registry import STANDBY
from poundlock.driver.requests import Then, Trigger
from poundlock.errors import PoundlockError
from poundlock.rest import answers, models, page
from poundlock.rest.access.access import Admission
from poundlock.rest.access.guard import NEXT, Guard
from poundlock.rest.answers import JobCalled, refusal
from poundlock.rest.observed import Observed
from poundlock.rest.served import OneJob, ServedJobs
from poundlock.rest.views import decisions, event_time, graph, logs, outputs, overview, savepoints, series, state
from poundlock.rest.views.job_folder import JobFolders
from poundlock.rest.views.savepoints import Disposals
from poundlock.storage.storage_errors import storage_trouble

VIEWS = [module.router for module in (overview, graph, decisions, event_time, state, outputs, series, logs, savepoints)]
_ERRORS: dict[int | str, dict[str, Any]] = {
    status.value: {"model": models.Errors, "description": status.phrase}
    for status in (
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus(404),
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.SERVICE_UNAVAILABLE,
    )
}


def make_app(job: Observed, admission: Admission) -> Guard:
    """Return the ASGI application of a job; every request but those for the page has to bring a token, as `Authorization: Bearer …`."""
    description = "One running job, with Flink's paths and shapes."
    return application(OneJob(job), admission, description, answers.of_one_job, owner="job")


def application(served: ServedJobs, admission: Admission, description: str, overall: APIRouter, *, owner: str) -> Guard:
    """Return the ASGI application of a server's jobs; `overall` has the paths without a job's id, `owner` is "job" or "dashboard"."""
    app = FastAPI(
        title="poundlock",
        version="1",
        description=description,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(HTTPBearer(auto_error=False, description=f"The content of the {owner}'s token file."))],
        responses=_ERRORS,
    )
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(PoundlockError, _unreadable)
    app.add_exception_handler(OSError, _unreadable)
    app.add_exception_handler(Exception, _failed)
    app.state.served = served
    app.state.folders, app.state.disposals = JobFolders(), Disposals()
    for each in (overall, page.router, *VIEWS, answers.router, router):
        app.include_router(each)
    return Guard(app, admission, page.is_public, owner)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    errors = error.detail if isinstance(error.detail, list) else [str(error.detail), NEXT]
    return JSONResponse({"errors": errors}, status_code=error.status_code, headers=error.headers)


async def _unreadable(_request: Request, error: Exception) -> Response:
    """Answer what a view could not read of a folder: what, and what to do."""
    if isinstance(error, OSError):
        error = storage_trouble(error, doing="reading what the job has written")
    assert isinstance(error, PoundlockError)
    errors = [error.what, error.next or NEXT]
    return JSONResponse({"errors": errors}, status_code=HTTPStatus.SERVICE_UNAVAILABLE)


async def _failed(_request: Request, error: Exception) -> Response:
    errors = [f"the request failed: {type(error).__name__}", "the stack trace is in the job's log; please report it"]
    return JSONResponse({"errors": errors}, status_code=HTTPStatus.INTERNAL_SERVER_ERROR)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    what = "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors())
    # What was sent may hold what no encoding can say.
    text = json.dumps({"errors": [what, NEXT]}, ensure_ascii=True)
    return Response(text, status_code=HTTPStatus.BAD_REQUEST, media_type="application/json")


router = APIRouter()


def _job_alive(job: JobCalled) -> Observed:
    if job.ended:
        raise refusal(409, f"the job has ended: {job.entry.state}", f"start it again: {start_command(job.entry)}")
    if job.entry.role == STANDBY:
        raise refusal(
            409,
            "this driver stands by, and another one runs the job",
            f"ask that one through the checkpoint folder: poundlock info {job.entry.checkpoint_dir}",
        )
    return job


JobAlive = Annotated[Observed, Depends(_job_alive)]


@router.post("/jobs/{jid}/checkpoints", status_code=HTTPStatus.ACCEPTED)
def trigger_checkpoint(
    job: JobAlive, request: Request, body: models.CheckpointRequest | None = None
) -> models.RequestId:
    """Take a checkpoint now."""
    return _asked(request, job.requests.trigger("checkpoint"))


@router.post("/jobs/{jid}/savepoints", status_code=HTTPStatus.ACCEPTED)
def trigger_savepoint(job: JobAlive, request: Request, body: models.SavepointRequest | None = None) -> models.RequestId:
    """Take a savepoint."""
    body = body or models.SavepointRequest()
    then: Then = "cancel" if body.cancel_job else "go on"
    return _asked(request, job.requests.trigger("savepoint", directory=body.target_directory, then=then))


@router.post("/jobs/{jid}/stop", status_code=HTTPStatus.ACCEPTED)
def stop(job: JobAlive, request: Request, body: models.StopRequestBody | None = None) -> models.RequestId:
    """Finish the running checkpoint and all pending files and end; with a directory or `drain`, after a savepoint."""
    body = body or models.StopRequestBody()
    if body.targetDirectory is not None or body.drain:
        made = job.requests.trigger("savepoint", directory=body.targetDirectory, then="stop", drain=body.drain)
    else:
        made = job.requests.trigger("stop")
        job.stop.stop()
    return _asked(request, made)


@router.patch("/jobs/{jid}", status_code=HTTPStatus.ACCEPTED)
def cancel(job: JobAlive, request: Request, mode: Literal["cancel"] = "cancel") -> dict[str, str]:
    """End the job at once. Pending data stays hidden for the next start, and nothing is lost."""
    _asked(request, job.requests.trigger("stop"))
    job.stop.cancel()
    return {}


def _asked(request: Request, made: Trigger) -> models.RequestId:
    """Return the answer to what was asked for, whose end the log of operations gets as well."""
    request.state.trigger = made
    return models.RequestId(request_id=made.id)
