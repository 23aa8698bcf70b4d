"""What stands in front of all routes: where a request may come from, whose token it brings, what that one may ask for, how large it is.

Without a token nothing is looked up and nothing changes; whatever is refused is refused in JSON, before any route sees it. Pages of
other sites get nothing, whatever they send along: a browser names the site in `Origin` and `Sec-Fetch-Site`, and a name that
somebody has led to this machine stands in `Host`. Each operation leaves a line in the log of operations.
"""

from __future__ import annotations

import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse

from poundlock.control.operations_log import OperationsLog
from poundlock.driver.requests import Trigger
from poundlock.rest.access.access import Admission
from poundlock.rest.access.tokens import Caller

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PAGE_HEADER = "X-Requested-With"
"""What an operation of a page has to bring, with any value: a page of another site cannot send it without being allowed to."""

NEXT = "see what can be asked: GET /openapi.json; send a body as JSON, with Content-Type: application/json"
LARGEST_BODY = 1 << 16
_LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})
_LARGEST_SHOWN = 2048
_OPERATIONS = {"checkpoints": "checkpoint", "savepoints": "savepoint", "stop": "stop"}
_log = logging.getLogger("poundlock.rest")


@dataclass(frozen=True, kw_only=True)
class _Refused:
    status: HTTPStatus
    what: str
    next: str


class Guard:
    """Lets through what may be asked by whoever asks it.

    Args:
        is_public: tells of a method and a path whether they are for the page itself, in which nothing of a job is.
        owner: whose server it is, "job" or "dashboard".
    """

    def __init__(
        self, app: FastAPI, admission: Admission, is_public: Callable[[str, str], bool], owner: str = "job"
    ) -> None:
        self.app, self._owner = app, owner
        self._is_public = is_public
        self._tokens, self._hosts, self._operations = admission.tokens, admission.hosts, admission.operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return
        headers = _headers(scope)
        caller = self._caller(headers)
        refused = self._refusal(scope, headers, caller)
        request = _Request(receive, send)
        if refused is not None:
            extra = {"WWW-Authenticate": "Bearer"} if refused.status == HTTPStatus.UNAUTHORIZED else {}
            if _brings_body(headers):
                extra["Connection"] = "close"  # nobody reads it
            answer = JSONResponse(
                {"errors": [refused.what, refused.next]}, status_code=refused.status, headers=extra or None
            )
            await answer(scope, receive, request.send)
        else:
            try:
                await self.app(scope, request.receive, request.send)
            except Exception:
                # It has been answered; whoever runs the server would print the stack trace on the job's terminal.
                _log.exception("a request failed: %s %s", scope.get("method"), scope.get("path"))
        if self._operations is not None and scope["method"] not in _LOOKS:
            _note(self._operations, scope, caller, request, refused)

    def _caller(self, headers: Mapping[str, list[str]]) -> Caller | None:
        given = headers.get("authorization", [])
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return self._tokens.caller(token) if scheme == "Bearer" and token else None

    def _refusal(self, scope: Scope, headers: Mapping[str, list[str]], caller: Caller | None) -> _Refused | None:
        """Return why a request gets no further, None if it does."""
        host = headers.get("host", [""])[0]
        if self._hosts is not None and not _is_here(host, self._hosts):
            return _Refused(
                status=HTTPStatus.FORBIDDEN,
                what=f"this {self._owner} is not asked as {host[:100]!r}",
                next="ask it as localhost, or name the host in rest.allowed-hosts",
            )
        if self._is_public(scope["method"], scope["path"]):
            return None  # a link to it may stand anywhere
        if _is_of_another_site(headers, host):
            return _Refused(
                status=HTTPStatus.FORBIDDEN,
                what="a page of another site asks",
                next=f"open what this {self._owner} serves itself; other sites' pages get nothing",
            )
        if caller is None:
            return _Refused(
                status=HTTPStatus.UNAUTHORIZED,
                what="the token is missing or wrong",
                next=f"send Authorization: Bearer with the {self._owner}'s token file",
            )
        if _announced(headers) > LARGEST_BODY:
            return _Refused(
                status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                what=f"the request has more than {LARGEST_BODY:,} bytes",
                next=NEXT,
            )
        if scope["method"] in _LOOKS:
            return None
        if not caller.operates:
            return _Refused(
                status=HTTPStatus.FORBIDDEN,
                what=f"the token {caller.name} may only look",
                next="send a token with the role operate",
            )
        if _is_of_a_page(headers) and not headers.get(PAGE_HEADER.lower()):
            return _Refused(
                status=HTTPStatus.FORBIDDEN,
                what=f"an operation of a page needs the header {PAGE_HEADER}",
                next=f"send {PAGE_HEADER}: poundlock along",
            )
        return None


class _Request:
    """One request while it is answered: what was sent, up to a size that nothing here exceeds, and the status of the answer."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._size = 0
        self._too_large = False
        self.body = b""
        self.status = 0

    async def receive(self) -> MutableMapping[str, Any]:
        """Receive the next piece. Raises HTTPException if that is too much: the job's memory is for rows."""
        message = await self._receive()
        piece = message.get("body", b"")
        self._size += len(piece)
        if self._size > LARGEST_BODY:
            self._too_large = True
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail=[f"the request has more than {LARGEST_BODY:,} bytes", NEXT]
            )
        self.body = (self.body + piece)[: _LARGEST_SHOWN + 1]
        return message

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self._too_large:  # what follows is not read, so that nothing can follow on this connection
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await self._send(message)


def _headers(scope: Scope) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def _announced(headers: Mapping[str, list[str]]) -> int:
    """Return how long the body is that a request announces; 0 where it does not say. The server has refused what is no number."""
    given = headers.get("content-length", ["0"])[0]
    return int(given) if given.isascii() and given.isdigit() else 0


def _brings_body(headers: Mapping[str, list[str]]) -> bool:
    return "transfer-encoding" in headers or _announced(headers) > 0


def _is_here(host: str, allowed: frozenset[str]) -> bool:
    """Return whether a Host header names this machine's loopback, or one of the names that are allowed."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name == "localhost" or name in allowed:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_of_another_site(headers: Mapping[str, list[str]], host: str) -> bool:
    """Return whether a browser says that a page of another origin has sent this; another port is another origin."""
    if any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
        return True
    return any(origin.partition("://")[2].lower() != host.lower() for origin in headers.get("origin", []))


def _is_of_a_page(headers: Mapping[str, list[str]]) -> bool:
    return any(name in headers for name in ("origin", "sec-fetch-site", "cookie"))


def _note(
    operations: OperationsLog, scope: Scope, caller: Caller | None, request: _Request, refused: _Refused | None
) -> None:
    method, path, client = scope["method"], str(scope["path"]), scope.get("client")
    operation = "cancel" if method == "PATCH" else _OPERATIONS.get(path.rpartition("/")[2], f"{method} {path}")
    who = None if caller is None else caller.name
    trigger = scope.get("state", {}).get("trigger")
    operations.note(
        operation,
        "accepted" if HTTPStatus.OK <= request.status < HTTPStatus.BAD_REQUEST else "refused",
        who=who,
        role=None if caller is None else caller.role,
        source=None if client is None else f"{client[0]}:{client[1]}",
        path=path,
        arguments=_shown(request.body),
        status=request.status,
        failure=None if refused is None else refused.what,
        request_id=trigger.id if isinstance(trigger, Trigger) else None,
    )
    if isinstance(trigger, Trigger):
        operations.follow(operation, trigger, who=who)


def _shown(body: bytes) -> Any:
    """Return what was sent as the log shows it."""
    if not body:
        return None
    if len(body) > _LARGEST_SHOWN:
        return f"{len(body)} bytes or more"
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
