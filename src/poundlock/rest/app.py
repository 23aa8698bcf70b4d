"""The web application: the token in front of all routes, and those that change something.

Without the token nothing is looked up and nothing changes; whatever is asked, the answer is JSON and no stack trace.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException

from poundlock.control.driver_status import start_command
from poundlock.control.registry import STANDBY
from poundlock.driver.requests import Then
from poundlock.rest import answers, models
from poundlock.rest.answers import JobCalled, refusal
from poundlock.rest.observed import Observed

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_LARGEST_BODY = 1 << 16
_NEXT = "see what can be asked: GET /openapi.json; send a body as JSON, with Content-Type: application/json"
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
        HTTPStatus.SERVICE_UNAVAILABLE,
    )
}


def make_app(job: Observed, token: str) -> Any:
    """Return the ASGI application of a job; every request has to bring the token, as `Authorization: Bearer …`."""
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
    app.state.job = job
    app.include_router(answers.router)
    app.include_router(router)
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
            raise refusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request has more than {_LARGEST_BODY:,} bytes", _NEXT
            )
        return message

    return limited


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    errors = error.detail if isinstance(error.detail, list) else [str(error.detail), _NEXT]
    return JSONResponse({"errors": errors}, status_code=error.status_code, headers=error.headers)


async def _failed(_request: Request, error: Exception) -> Response:
    errors = [f"the request failed: {type(error).__name__}", "the stack trace is in the job's log; please report it"]
    return JSONResponse({"errors": errors}, status_code=HTTPStatus.INTERNAL_SERVER_ERROR)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    what = "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors())
    # What was sent may hold what no encoding can say.
    text = json.dumps({"errors": [what, _NEXT]}, ensure_ascii=True)
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
def trigger_checkpoint(job: JobAlive, body: models.CheckpointRequest | None = None) -> models.RequestId:
    """Take a checkpoint now."""
    return models.RequestId(request_id=job.requests.trigger("checkpoint").id)


@router.post("/jobs/{jid}/savepoints", status_code=HTTPStatus.ACCEPTED)
def trigger_savepoint(job: JobAlive, body: models.SavepointRequest | None = None) -> models.RequestId:
    """Take a savepoint."""
    body = body or models.SavepointRequest()
    then: Then = "cancel" if body.cancel_job else "go on"
    made = job.requests.trigger("savepoint", directory=body.target_directory, then=then)
    return models.RequestId(request_id=made.id)


@router.post("/jobs/{jid}/stop", status_code=HTTPStatus.ACCEPTED)
def stop(job: JobAlive, body: models.StopRequestBody | None = None) -> models.RequestId:
    """Finish the running checkpoint and all pending files and end; with a directory or `drain`, after a savepoint."""
    body = body or models.StopRequestBody()
    if body.targetDirectory is not None or body.drain:
        made = job.requests.trigger("savepoint", directory=body.targetDirectory, then="stop", drain=body.drain)
    else:
        made = job.requests.trigger("stop")
        job.stop.stop()
    return models.RequestId(request_id=made.id)


@router.patch("/jobs/{jid}", status_code=HTTPStatus.ACCEPTED)
def cancel(job: JobAlive, mode: Literal["cancel"] = "cancel") -> dict[str, str]:
    """End the job at once. Pending data stays hidden for the next start, and nothing is lost."""
    job.stop.cancel()
    return {}
