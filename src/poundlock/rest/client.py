"""How the command line asks a running job: plain HTTP with the token of the registry's entry.

No proxy is used: the token must not go anywhere but to the job.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poundlock.control.channel import TELL_S, Answer, ControlChannel, EndedMeanwhile, Kind, NoAnswer, Say, unanswered
from poundlock.control.registry import JobEntry
from poundlock.driver.requests import Then
from poundlock.errors import DefinitionError, PoundlockError, TerminalError, TransientError

_TIMEOUT_S = 30.0
_STATUS_S = 2.0  # how a job goes is in its checkpoint folder, too
_POLL_S = 0.1
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_KINDS = {kind.__name__: kind for kind in (DefinitionError, TransientError, TerminalError)}


@dataclass(frozen=True, kw_only=True)
class HttpChannel(ControlChannel):
    """A way to one job's REST server."""

    entry: JobEntry
    address: tuple[str, int]
    token: str = field(repr=False)
    say: Say = lambda error: None
    """Is called where an answer does not come, and goes on being waited for, or is looked for in the checkpoint folder."""

    @classmethod
    def of(cls, entry: JobEntry, say: Say = lambda error: None) -> HttpChannel | None:
        """Return the way to a job; None if it has no server, or one that another machine keeps to itself.

        Raises:
            NoAnswer: the token file cannot be read: the job has ended, or it is another user's.
        """
        if entry.rest is None or entry.token_file is None or not entry.here:
            return None
        try:
            token = Path(entry.token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise NoAnswer(
                f"the token of job {entry.name} cannot be read: {entry.token_file}: {error.strerror or error}",
                next=f"see whether it still runs: poundlock info {entry.job_id[:8]}",
            ) from error
        host, port = entry.rest
        return cls(entry=entry, address=(_ANY.get(host, host), port), token=token, say=say)

    def ask(self, kind: Kind, *, directory: str | None = None, then: Then = "go on", drain: bool = False) -> Answer:
        body: dict[str, Any]
        if kind == "cancel":
            self._ask("PATCH", "?mode=cancel")
        elif kind == "stop":
            self._ask("POST", "/stop", {})
        elif kind == "checkpoint":
            return int(self._done("/checkpoints", "/checkpoints", {}, kind)["checkpointId"])
        elif then == "stop":
            body = {"drain": drain, **({} if directory is None else {"targetDirectory": directory})}
            return str(self._done("/stop", "/savepoints", body, kind)["location"])
        else:
            body = {"cancel-job": then == "cancel", **({} if directory is None else {"target-directory": directory})}
            return str(self._done("/savepoints", "/savepoints", body, kind)["location"])
        return None

    def status(self) -> Mapping[str, Any]:
        progress: Mapping[str, Any] = self._ask("GET", "", waits=False)["progress"]
        return progress

    def _done(self, place: str, below: str, body: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        """Ask for something, wait for it, and return what came of it. Raises PoundlockError if it failed."""
        asked = self._ask("POST", place, body)["request-id"]
        while True:
            try:
                now: Mapping[str, Any] = self._ask("GET", f"{below}/{asked}")
            except NoAnswer as error:
                raise EndedMeanwhile(error.what, next=error.next) from error
            if now["status"]["id"] != "IN_PROGRESS":
                break
            time.sleep(_POLL_S)
        cause = now["operation"].get("failure-cause")
        if cause is not None:
            why, _, next = cause["stack-trace"].partition("\nNext: ")
            kind = _KINDS.get(cause["class"], PoundlockError)
            raise kind(f"no {what} of job {self.entry.job_id} was taken: {why}", next=next, code=cause.get("code", ""))
        operation: Mapping[str, Any] = now["operation"]
        return operation

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, waits: bool = True) -> Any:
        """Return the answer to a request for `/jobs/<id><path>`, or say soon that it is waited for. Raises PoundlockError."""
        host, port = self.address
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S if waits else _STATUS_S)
        late = unanswered(self.entry, f"does not answer on {host}:{port}; it is waited for, up to {_TIMEOUT_S:.0f} s")
        timer = threading.Timer(TELL_S, self.say, [late])
        if waits:
            timer.start()
        headers = {"Authorization": f"Bearer {self.token}"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection.request(method, f"/jobs/{self.entry.job_id}{path}", body=data, headers=headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, TimeoutError) and not waits:
                self.say(unanswered(self.entry, f"does not answer on {host}:{port}"))
            raise NoAnswer(
                f"job {self.entry.name} does not answer on {host}:{port}: {error or type(error).__name__}",
                next=f"see whether it still runs: poundlock info {self.entry.job_id[:8]}",
            ) from error
        finally:
            timer.cancel()
            connection.close()
        return self._understood(status, text)

    def _understood(self, status: int, text: bytes) -> Any:
        if status == http.HTTPStatus.UNAUTHORIZED:
            raise DefinitionError(
                f"job {self.entry.name} does not take the token in {self.entry.token_file}",
                next="leave the token files in the state directory as they are; a signal works without: kill PID",
            )
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if status < http.HTTPStatus.BAD_REQUEST and value is not None:
            return value
        errors = value.get("errors") if isinstance(value, dict) else None
        what, *more = errors or [f"job {self.entry.name} answered with HTTP status {status}"]
        raise PoundlockError(what, next=more[0] if more else f"read its log: poundlock logs {self.entry.job_id[:8]}")
