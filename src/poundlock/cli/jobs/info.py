"""`poundlock list` and `info`: this user's jobs in Flink's words, and one of them, by the registry and what drivers elsewhere write
into their checkpoint folders. Only `info` asks a job, while it runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from poundlock.cli.job_lookup import RunningJobArgument, find_job, jobs_in, progress_line, progress_of
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.output import watermark_text
from poundlock.errors import PoundlockError
from poundlock.values import utc_text

if TYPE_CHECKING:
    from poundlock.control.registry import JobEntry


_WIDTH = 62


@with_shared_options
def list_jobs(
    folder: Annotated[
        str | None,
        Argument(metavar="[FOLDER]", help="A checkpoint folder, or one with several in it; default: your jobs."),
    ] = None,
    every: Annotated[bool, Option("-a", "--all", help="Jobs that ended, too.")] = False,
    *,
    call: Call,
) -> None:
    """List the running jobs."""
    from poundlock.control.registry import Registry

    settings = call.settings()
    entries = Registry(settings.state_dir).entries() if folder is None else jobs_in(folder)
    running, ended = ([entry for entry in entries if entry.ended is over] for over in (False, True))
    lines = [*_part("Running/Restarting Jobs", "No running jobs.", running), "No scheduled jobs."]
    if every:
        lines += _part("Terminated Jobs", "No terminated jobs.", ended)
    call.output.show(lines, [entry.to_json() for entry in (*running, *(ended if every else ()))])


def _part(title: str, none: str, entries: Sequence[JobEntry]) -> list[str]:
    if not entries:
        return [none]
    return [f" {title} ".center(_WIDTH, "-"), *(_line(entry) for entry in entries), "-" * _WIDTH]


def _line(entry: JobEntry) -> str:
    where = f" {entry.on_cluster}" if entry.on_cluster else ""
    return f"{utc_text(entry.started_ms)} : {entry.job_id} : {_titled(entry)}{where}"


def _titled(entry: JobEntry) -> str:
    return f"{entry.name} ({entry.state}{', gone' if entry.gone else ''})"


@with_shared_options
def command(job: RunningJobArgument, *, call: Call) -> None:
    """Show one job: how it goes or how it ended."""
    known = find_job(job, call)
    from poundlock.control.driver_status import ended_with

    silent: list[PoundlockError] = []
    entry, progress, savepoint = known.entry, progress_of(known, silent.append), ended_with(known.entry)
    why = silent[0] if silent else None
    data = {**entry.to_json(), "gone": entry.gone, "progress": progress, "savepoint": savepoint}
    data["silent"] = None if why is None else why.what
    call.output.show(_lines(entry, progress, savepoint), data)
    if why is not None:
        call.output.note(f"{why.what}: this is what it wrote into its checkpoint folder\nNext: {why.next}")


def _lines(entry: JobEntry, progress: Mapping[str, Any] | None, savepoint: str | None) -> Iterable[str]:
    yield f"Job {entry.job_id} : {_titled(entry)}"
    supervises = "" if entry.child is None or entry.ended else f", supervises {entry.child}"
    values = {
        "started": utc_text(entry.started_ms),
        "ended": None if entry.ended_ms is None else f"{utc_text(entry.ended_ms)}, exit code {entry.exit_code}",
        "process": None if entry.application else f"{entry.pid} on {entry.host}{supervises}",
        "application": f"{entry.application}, with the driver" if entry.application else entry.spark_application,
        "restarts": None if not entry.process_restarts else f"{entry.process_restarts} of the process",
        "command": shlex.join(["poundlock", entry.command, *entry.arguments]),
        "folder": entry.folder,
        "checkpoint": entry.checkpoint_dir,
        "savepoint": None if savepoint is None else f"{savepoint}, with which it ended",
        "log": entry.log,
        "REST": None if entry.rest is None or entry.ended else http_address(*entry.rest),
        "token": None if entry.ended else entry.token_file,
        "parallelism": (progress or {}).get("parallelism"),
        "locality": _locality(progress),
        "watermark": _watermark(progress),
        "progress": progress_line(progress),
        "written": None if entry.written_ms is None else utc_text(entry.written_ms),
        "failure": None if entry.failure is None else entry.failure[0],
        "code": entry.failure_code or None,
        "next": None if entry.failure is None else entry.failure[1] or None,
    }
    yield from (f"  {name:<11} {value}" for name, value in values.items() if value is not None)


def _locality(progress: Mapping[str, Any] | None) -> str | None:
    share = (progress or {}).get("state_locality")
    return None if share is None else f"{share:.0%} of key groups where their state is"


def _watermark(progress: Mapping[str, Any] | None) -> str | None:
    """Return the watermark and the source partition that holds it back, None where the job has none."""
    watermark, held_by = ((progress or {}).get(name) for name in ("watermark", "held_by"))
    if watermark is None and held_by is None:
        return None
    return watermark_text(watermark) + (f", held back by {held_by}" if held_by else "")


def http_address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
