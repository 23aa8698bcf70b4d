"""The log of operations: a line of JSON for each thing that was asked of a job, by whom and with what outcome.

Lines are only ever added, each in one write, so that all jobs of a user may share a file and a program that rotates logs may move it
away. A line that cannot be written goes to the job's own log, and what was asked is done nevertheless: a job on a full disk has to
stop when it is asked to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poundlock.control.registry import now_ms
from poundlock.driver.requests import Trigger
from poundlock.redaction import redact
from poundlock.values import utc_text

_LONGEST = 500


@dataclass(frozen=True, kw_only=True)
class OperationsLog:
    """Where the lines about one job go.

    Args:
        path: the file; None = there is none, and the job's own log gets them.
        say: writes a line into the job's own log.
    """

    path: Path | None
    job_id: str
    job: str
    say: Callable[..., None]

    def note(self, operation: str, outcome: str, *, who: str | None, **more: Any) -> None:
        """Add a line.

        Args:
            operation: what was asked for, such as "savepoint".
            outcome: "accepted" or "refused"; of one that was accepted, later, "completed" or "failed".
            who: the name of the token, or the way it was asked; None = nobody who is known.
            more: what else is known, as plain data; None is left out.
        """
        line = {"time": utc_text(now_ms()), "job": self.job, "job_id": self.job_id, "who": who, "operation": operation}
        known = {name: _short(value) for name, value in more.items() if value is not None}
        line = redact({**line, "outcome": outcome, **known})
        if self.path is None:
            self.say("operation", **{name: value for name, value in line.items() if name not in ("time", "job")})
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(handle, json.dumps(line).encode() + b"\n")
            finally:
                os.close(handle)
        except OSError as error:
            self.say(f"{self.path} cannot be written: {error.strerror or error}; the line was: {json.dumps(line)}")

    def follow(self, operation: str, trigger: Trigger, *, who: str | None) -> None:
        """Add a line once something that was accepted has ended."""

        def ended() -> None:
            failure = trigger.failure
            self.note(
                operation,
                "completed" if failure is None else "failed",
                who=who,
                request_id=trigger.id,
                result=trigger.location,
                failure=None if failure is None else failure.what,
            )

        trigger.when_ended(ended)


def _short(value: Any) -> Any:
    return value if not isinstance(value, str) or len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
