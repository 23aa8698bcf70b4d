"""The web application: routes, and the token in front of all of them.

Without the token nothing is looked up and nothing changes; whatever is asked, the answer is JSON and no stack trace.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException

from poundlock.driver.requests import Requests, Then
from poundlock.rest import answers, models
from poundlock.rest.observed import Observed
from poundlock.rest.prometheus import CONTENT_TYPE, exposition

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_ID = r"^[0-9a-fA-F]{32}$"
JobId = Annotated[str, Path(pattern=_ID, description="The job's id, 32 hex digits.")]
TriggerId = Annotated[str, Path(pattern=_ID, description="What the request was answered with.")]
_LARGEST = 2**63 - 1
_LARGEST_BODY = 1 << 16
_log = logging.getLogger("poundlock.rest")
_ERRORS: dict[int | str, dict[str, Any]] = {
    status.value: {"model": models.Errors, "description": status.phrase}
    for status in (
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus(404),
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    )
}


def make_app(job: Observed, token: str) -> Any:
    """Return the ASGI application of a job.

    Args:
        token: what every request has to bring, as `Authorization: Bearer …`.
    """
    app = FastAPI(
        title="poundlock",
        version="1",
        description="One running job, with Flink's paths and shapes.",
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(HTTPBearer(auto_error=False, description="The content of the job's token file."))],
        responses=_ERRORS,
    )
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _failed)
    _looking(app, job)
    _looking_at_checkpoints(app, job)
    _asking(app, job)
    return _Guard(app, token)


class _Guard:
    """Lets nothing through that does not bring the token, or is larger than any request that means something."""

    def __init__(self, app: FastAPI, token: str) -> None:
        self.app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._allowed(scope):
            refusal = JSONResponse(
                {"errors": ["the token is missing or wrong", "send Authorization: Bearer with the job's token file"]},
                status_code=HTTPStatus.UNAUTHORIZED,
                headers={"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
        elif scope["type"] in ("http", "lifespan"):
            try:
                await self.app(scope, _limited(receive), send)
            except Exception:
                # It has been answered; whoever runs the server would print the stack trace on the job's terminal.
                _log.exception("a request failed: %s %s", scope.get("method"), scope.get("path"))

    def _allowed(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._wanted)


def _limited(receive: Receive) -> Receive:
    """Return what gives a request up to a size that nothing here exceeds: the job's memory is for rows."""
    seen = 0

    async def limited() -> MutableMapping[str, Any]:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > _LARGEST_BODY:
            raise _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request has more than {_LARGEST_BODY:,} bytes")
        return message

    return limited


def _refusal(status: int, *lines: str) -> HTTPException:
    return HTTPException(status, detail=list(lines))


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    errors = error.detail if isinstance(error.detail, list) else [str(error.detail)]
    return JSONResponse({"errors": errors}, status_code=error.status_code, headers=error.headers)


async def _failed(_request: Request, error: Exception) -> Response:
    errors = [f"the request failed: {type(error).__name__}", "the stack trace is in the job's log; please report it"]
    return JSONResponse({"errors": errors}, status_code=HTTPStatus.INTERNAL_SERVER_ERROR)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()]
    # What was sent may hold what no encoding can say.
    text = json.dumps({"errors": errors}, ensure_ascii=True)
    return Response(text, status_code=HTTPStatus.BAD_REQUEST, media_type="application/json")


def _looking(app: FastAPI, job: Observed) -> None:
    """Add what is only looked at."""

    @app.get("/overview")
    def overview() -> models.Overview:
        """The process as a whole."""
        return answers.overview(job)

    @app.get("/config")
    def config() -> models.Configuration:
        """What a dashboard asks for first."""
        return answers.configuration()

    @app.get("/jobs")
    def jobs() -> models.Jobs:
        """The job's id and state."""
        return models.Jobs(jobs=[models.JobStatus(id=job.job_id, status=job.state)])

    @app.get("/jobs/overview")
    def jobs_overview() -> models.JobsOverview:
        """The job's state and times."""
        return models.JobsOverview(jobs=[answers.summary(job)])

    @app.get("/metrics/prometheus", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    def prometheus() -> Response:
        """All metrics, for Prometheus."""
        return Response(exposition(job), media_type=CONTENT_TYPE)

    @app.get("/jobs/{jid}")
    def details(jid: JobId) -> models.JobDetails:
        """The job with its sources and sinks."""
        _check(job, jid)
        return answers.details(job)

    @app.get("/jobs/{jid}/exceptions")
    def exceptions(jid: JobId) -> models.Exceptions:
        """Why the job was restarted."""
        _check(job, jid)
        return answers.exceptions(job)

    @app.get("/jobs/{jid}/metrics", response_model_exclude_none=True)
    def metrics(
        jid: JobId, get: Annotated[str | None, Query(description="Names, with commas between.")] = None
    ) -> list[models.Metric]:
        """The names of metrics, or the values of some."""
        _check(job, jid)
        return answers.metrics(job, None if get is None else get.split(","))

    @app.get("/jobs/{jid}/config")
    def job_config(jid: JobId) -> models.JobConfiguration:
        """How the job was set up, without secrets."""
        _check(job, jid)
        return answers.job_configuration(job)


def _looking_at_checkpoints(app: FastAPI, job: Observed) -> None:
    """Add what is looked at of checkpoints, and what became of those that were asked for."""

    @app.get("/jobs/{jid}/checkpoints")
    def checkpoints(jid: JobId) -> models.Checkpoints:
        """The checkpoints of this process."""
        _check(job, jid)
        return answers.checkpoints(job)

    @app.get("/jobs/{jid}/checkpoints/details/{number}")
    def checkpoint(jid: JobId, number: Annotated[int, Path(ge=0, le=_LARGEST)]) -> models.CheckpointDetails:
        """One checkpoint, of an earlier process too."""
        _check(job, jid)
        details = answers.checkpoint_details(job, number)
        if details is None:
            raise _refusal(404, f"there is no checkpoint {number}", "see the checkpoints there are: GET …/checkpoints")
        return details

    @app.get("/jobs/{jid}/checkpoints/{trigger_id}", response_model_exclude_none=True)
    def checkpoint_trigger(jid: JobId, trigger_id: TriggerId) -> models.CheckpointTriggerInfo:
        """What became of a checkpoint that was asked for."""
        _check(job, jid)
        trigger = job.requests.find(trigger_id.lower(), "checkpoint")
        if trigger is None:
            raise _unknown_trigger()
        return answers.checkpoint_trigger(trigger)

    @app.get("/jobs/{jid}/savepoints/{trigger_id}", response_model_exclude_none=True)
    def savepoint_trigger(jid: JobId, trigger_id: TriggerId) -> models.SavepointTriggerInfo:
        """What became of a savepoint or a stop that was asked for."""
        _check(job, jid)
        trigger = job.requests.find(trigger_id.lower(), "savepoint", "stop")
        if trigger is None:
            raise _unknown_trigger()
        return answers.savepoint_trigger(trigger)


def _asking(app: FastAPI, job: Observed) -> None:
    """Add what changes something."""

    @app.post("/jobs/{jid}/checkpoints", status_code=HTTPStatus.ACCEPTED)
    def trigger_checkpoint(jid: JobId, body: models.CheckpointRequest | None = None) -> models.RequestId:
        """Take a checkpoint now."""
        return models.RequestId(request_id=_alive(job, jid).trigger("checkpoint").id)

    @app.post("/jobs/{jid}/savepoints", status_code=HTTPStatus.ACCEPTED)
    def trigger_savepoint(jid: JobId, body: models.SavepointRequest | None = None) -> models.RequestId:
        """Take a savepoint."""
        body = body or models.SavepointRequest()
        then: Then = "cancel" if body.cancel_job else "go on"
        made = _alive(job, jid).trigger("savepoint", directory=body.target_directory, then=then)
        return models.RequestId(request_id=made.id)

    @app.post("/jobs/{jid}/stop", status_code=HTTPStatus.ACCEPTED)
    def stop(jid: JobId, body: models.StopRequestBody | None = None) -> models.RequestId:
        """Finish the running checkpoint and all pending files and end; with a directory or `drain`, after a savepoint."""
        body = body or models.StopRequestBody()
        requests = _alive(job, jid)
        if body.targetDirectory is not None or body.drain:
            made = requests.trigger("savepoint", directory=body.targetDirectory, then="stop", drain=body.drain)
        else:
            made = requests.trigger("stop")
            job.stop.stop()
        return models.RequestId(request_id=made.id)

    @app.patch("/jobs/{jid}", status_code=HTTPStatus.ACCEPTED)
    def cancel(jid: JobId, mode: Literal["cancel"] = "cancel") -> dict[str, str]:
        """End the job at once. Pending data stays hidden for the next start, and nothing is lost."""
        _alive(job, jid)
        job.stop.cancel()
        return {}


def _unknown_trigger() -> HTTPException:
    return _refusal(404, "there is no such request", "the newest hundred requests can be looked up")


def _check(job: Observed, jid: str) -> None:
    if jid.lower() != job.job_id:
        raise _refusal(404, f"job {jid.lower()} is not here", "see the job that is: GET /jobs")


def _alive(job: Observed, jid: str) -> Requests:
    _check(job, jid)
    if job.ended:
        raise _refusal(409, f"the job has ended: {job.entry.state}", "start it again with: poundlock run")
    return job.requests
