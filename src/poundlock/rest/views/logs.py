"""The end of a job's log, and what went wrong by it: restarts, failures, and lines with a stack trace, in full.

A log is read where its process ran, else from the copy that its driver keeps in the checkpoint folder. Of a job that only its
folder tells of, the copy alone is read: whoever may write there must not choose which file of this machine is shown.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from poundlock.control.control_logs import CopiedLog
from poundlock.rest.answers import JobCalled, refusal
from poundlock.rest.observed import Observed
from poundlock.rest.views import models
from poundlock.rest.views.job_folder import FolderOfJob, JobFolder

router = APIRouter()
_TAIL = 512 << 10
_ORDER = ("debug", "info", "warning", "error", "critical")
_OWN = ("time", "level", "message", "job", "logger", "exception")

Level = Literal["debug", "info", "warning", "error"]


@router.get("/jobs/{jid}/log")
def log(
    job: JobCalled,
    folder: FolderOfJob,
    last: Annotated[int, Query(ge=1, le=5000, description="How many lines at most.")] = 300,
    level: Annotated[Level, Query(description="Only lines of at least this level.")] = "debug",
    contains: Annotated[str, Query(max_length=200, description="Only lines with this text, in any case.")] = "",
) -> models.LogLines:
    """The newest lines of the log."""
    place, truncated, texts = _texts(job, folder)
    wanted = contains.lower()
    texts = [text for text in texts if wanted in text.lower()]
    listed = [line for line in map(_line, texts) if _at_least(line, level)]
    return models.LogLines(place=place, truncated=truncated or len(listed) > last, lines=listed[-last:])


@router.get("/jobs/{jid}/failures")
def failures(job: JobCalled, folder: FolderOfJob) -> models.JobFailures:
    """What went wrong, the newest first: how the job failed, why it was restarted, and warnings and errors of its log in full."""
    entries = [models.Failure(at=at, what=what, next="", level="restart") for what, at in job.entry.troubles]
    try:
        texts = _texts(job, folder)[2]
    except Exception as error:  # a log that is gone hides nothing of what the registry knows
        entries.append(models.Failure(at=job.entry.started_ms, what=f"the log cannot be read: {error}", next=""))
        texts = []
    for line in map(_line, texts):
        if _at_least(line, "warning"):
            next = line.rest.get("next")
            entries.append(
                models.Failure(
                    at=_ms(line.time) or job.entry.started_ms,
                    what=line.message,
                    next=next if isinstance(next, str) else "",
                    trace=line.exception,
                    level=line.level or "error",
                )
            )
    if job.entry.failure is not None and job.ended:
        what, next = job.entry.failure
        entries.append(models.Failure(at=job.entry.ended_ms or job.entry.started_ms, what=what, next=next))
    entries.sort(key=lambda each: each.at, reverse=True)
    failure = None if job.entry.failure is None else list(job.entry.failure)
    return models.JobFailures(state=job.state, failure=failure, restarts=job.progress.restarts, entries=entries[:200])


def _texts(job: Observed, folder: JobFolder) -> tuple[str, bool, Sequence[str]]:
    """Return where the log is, whether there is more before, and its newest lines, the oldest first."""
    path = Path(job.entry.log)
    try:
        if job.entry.here and job.entry.written_ms is None and path.suffix == ".log":
            place = str(path)
            with path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - _TAIL))
                data = file.read(_TAIL)
        else:
            place = f"{folder.storage.root}/control/logs"
            data = CopiedLog(folder.storage).new()
            size = len(data)
    except OSError as error:
        raise refusal(
            404, f"the log cannot be read: {path}: {error.strerror or error}", f"look on {job.entry.host}: {path}"
        ) from error
    lines = data[-_TAIL:].split(b"\n")
    if size > _TAIL:
        del lines[0]
    return place, size > _TAIL, [line.decode(errors="replace") for line in lines if line.strip()]


def _line(text: str) -> models.LogLine:
    try:
        value: Any = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError
    except (ValueError, RecursionError):
        return models.LogLine(time=None, level=None, message=text, rest={}, exception=None)
    exception = value.get("exception")
    return models.LogLine(
        time=_text(value.get("time")),
        level=_text(value.get("level")),
        message=_text(value.get("message")) or "",
        rest={name: each for name, each in value.items() if name not in _OWN},
        exception=None if exception is None else str(exception),
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _at_least(line: models.LogLine, level: Level) -> bool:
    """Return whether a line is of a level or above; one that says none is of every level but errors."""
    if line.level not in _ORDER:
        return level in ("debug", "info")
    return _ORDER.index(line.level) >= _ORDER.index(level)


def _ms(time: str | None) -> int | None:
    try:
        return None if time is None else round(datetime.fromisoformat(time).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
