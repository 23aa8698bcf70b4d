"""`poundlock info`: one job, from the registry and, while it runs, from the job itself."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from poundlock.cli.job_lookup import RunningJobArgument, find_job, progress_line, progress_of
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output
from poundlock.cli.progress_display import time_text
from poundlock.errors import PoundlockError

if TYPE_CHECKING:
    from poundlock.control.registry import JobEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class _Info:
    """A job's entry and its newest progress, where it is known."""

    entry: JobEntry
    progress: Mapping[str, Any] | None
    savepoint: str | None = None

    def to_json(self) -> Any:
        return {
            **self.entry.to_json(),
            "gone": self.entry.gone,
            "progress": self.progress,
            "savepoint": self.savepoint,
        }

    def lines(self) -> Iterable[str]:
        entry = self.entry
        yield f"Job {entry.job_id} : {entry.name} ({entry.state}{', gone' if entry.gone else ''})"
        values = {
            "started": _time(entry.started_ms),
            "ended": None if entry.ended_ms is None else f"{_time(entry.ended_ms)}, exit code {entry.exit_code}",
            "process": None if entry.application else f"{entry.pid} on {entry.host}{_supervises(entry)}",
            "application": f"{entry.application}, with the driver" if entry.application else entry.spark_application,
            "restarts": None if not entry.process_restarts else f"{entry.process_restarts} of the process",
            "command": shlex.join(["poundlock", "run", *entry.arguments]),
            "folder": entry.folder,
            "checkpoint": entry.checkpoint_dir,
            "savepoint": None if self.savepoint is None else f"{self.savepoint}, with which it ended",
            "log": entry.log,
            "REST": None if entry.rest is None or entry.ended else f"http://{_host(entry.rest[0])}:{entry.rest[1]}",
            "token": None if entry.ended else entry.token_file,
            "watermark": _watermark(self.progress),
            "progress": progress_line(self.progress),
            "written": None if entry.written_ms is None else _time(entry.written_ms),
            "failure": None if entry.failure is None else entry.failure[0],
            "next": None if entry.failure is None else entry.failure[1] or None,
        }
        yield from (f"  {name:<11} {value}" for name, value in values.items() if value is not None)


def _watermark(progress: Mapping[str, Any] | None) -> str | None:
    """Return the watermark and the source partition that holds it back, None where the job has none."""
    watermark, held_by = ((progress or {}).get(name) for name in ("watermark", "held_by"))
    if watermark is None and held_by is None:
        return None
    return time_text(watermark) + (f", held back by {held_by}" if held_by else "")


def _ended_with(entry: JobEntry) -> str | None:
    """Return the savepoint with which a job ended; None if it did not, or that is not known from here."""
    from poundlock.driver.savepoints.handover import left_by
    from poundlock.storage import open_storage

    if not entry.ended:
        return None
    try:
        note = left_by(open_storage(entry.checkpoint_dir))
    except (OSError, PoundlockError):
        return None
    return str(note["savepoint"]) if note is not None and note["job_id"] == entry.job_id else None


def _supervises(entry: JobEntry) -> str:
    return "" if entry.child is None or entry.ended else f", supervises {entry.child}"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).strftime("%d.%m.%Y %H:%M:%S")


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def command(
    job: RunningJobArgument,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> None:
    """Show one job: how it goes or how it ended."""
    known = find_job(job, define, config)
    Output(json).show(_Info(entry=known.entry, progress=progress_of(known), savepoint=_ended_with(known.entry)))
