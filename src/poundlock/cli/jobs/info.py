"""`poundlock list` and `info`: this user's jobs in Flink's words, and one of them, by the registry and what drivers elsewhere write
into their checkpoint folders. Only `info` asks a job, while it runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from poundlock.cli.job_lookup import KnownJobArgument, find_job, jobs_in, progress_line, progress_of
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.output import watermark_text
from poundlock.errors import DefinitionError, PoundlockError
from poundlock.values import utc_text

if TYPE_CHECKING:
    from poundlock.cli.jobs.root import FolderJob
    from poundlock.control.process_memory import ProcessMemory
    from poundlock.control.registry import JobEntry


_WIDTH = 62


@with_shared_options
def list_jobs(
    folder: Annotated[
        str | None,
        Argument(metavar="[FOLDER]", help="A checkpoint folder, or one with several in it; default: your jobs."),
    ] = None,
    every: Annotated[bool, Option("-a", "--all", help="Jobs that ended, too.")] = False,
    root: Annotated[
        str | None,
        Option(
            "--root", metavar="CHECKPOINT_ROOT", help="The jobs of all users and machines whose checkpoints are in it."
        ),
    ] = None,
    *,
    call: Call,
) -> None:
    """List the running jobs."""
    from poundlock.control.registry import Registry

    if root is not None:
        if folder is not None:
            raise DefinitionError("both a folder and --root are given", next="give one of them")
        _show_below(root, every, call)
        return
    settings = call.settings()
    entries = Registry(settings.state_dir).entries() if folder is None else jobs_in(folder)
    running, ended = ([entry for entry in entries if entry.ended is over] for over in (False, True))
    lines = [*_part("Running/Restarting Jobs", "No running jobs.", running), "No scheduled jobs."]
    if every:
        lines += _part("Terminated Jobs", "No terminated jobs.", ended)
    call.output.show(lines, [entry.to_json() for entry in (*running, *(ended if every else ()))])


def _show_below(root: str, every: bool, call: Call) -> None:
    from poundlock.cli.jobs.root import jobs_below
    from poundlock.control.registry import now_ms

    jobs, now = jobs_below(root), now_ms()
    running, ended = ([job for job in jobs if job.ended is over] for over in (False, True))

    def lines(title: str, none: str, those: Sequence[FolderJob]) -> list[str]:
        return _framed(title, none, [_line_of_folder(job, now) for job in those])

    shown = [*lines("Running/Restarting Jobs", "No running jobs.", running), "No scheduled jobs."]
    if every:
        shown += lines("Terminated Jobs", "No terminated jobs.", ended)
    call.output.show(shown, [job.to_json(now) for job in (*running, *(ended if every else ()))])


def _line_of_folder(job: FolderJob, now_ms: int) -> str:
    started = utc_text(None if job.entry is None else job.entry.started_ms)
    titled = f"{job.name} ({job.state})" if job.entry is None else _titled(job.entry)
    return f"{started} : {job.job_id} : {titled} {job.status_text(now_ms)}"


def _part(title: str, none: str, entries: Sequence[JobEntry]) -> list[str]:
    return _framed(title, none, [_line(entry) for entry in entries])


def _framed(title: str, none: str, lines: Sequence[str]) -> list[str]:
    return [f" {title} ".center(_WIDTH, "-"), *lines, "-" * _WIDTH] if lines else [none]


def _line(entry: JobEntry) -> str:
    where = f" {entry.on_cluster}" if entry.on_cluster else ""
    return f"{utc_text(entry.started_ms)} : {entry.job_id} : {_titled(entry)}{where}"


def _titled(entry: JobEntry) -> str:
    from poundlock.control.registry import STANDBY

    standby = ", standby" if entry.role == STANDBY and not entry.ended else ""
    return f"{entry.name} ({entry.state}{standby}{', gone' if entry.gone else ''})"


@with_shared_options
def command(job: KnownJobArgument, *, call: Call) -> None:
    """Show one job: how it goes or how it ended."""
    known = find_job(job, call)
    from poundlock.control.driver_status import ended_with
    from poundlock.control.process_memory import memory_of

    silent: list[PoundlockError] = []
    entry, progress, savepoint = known.entry, progress_of(known, silent.append), ended_with(known.entry)
    why = silent[0] if silent else None
    data = {**entry.to_json(), "gone": entry.gone, "progress": progress, "savepoint": savepoint}
    data["silent"] = None if why is None else why.what
    memory = memory_of(entry.process) if entry.here and not entry.ended and not entry.between else []
    data["memory"] = [asdict(each) for each in memory]
    call.output.show(_lines(entry, progress, savepoint, memory), data)
    if why is not None:
        call.output.note(f"{why.what}: this is what it wrote into its checkpoint folder\nNext: {why.next}")


def _lines(
    entry: JobEntry, progress: Mapping[str, Any] | None, savepoint: str | None, memory: Sequence[ProcessMemory]
) -> Iterable[str]:
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
        "REST": _rest(entry),
        "token": None if entry.ended else entry.token_file,
        "memory": _memory(memory),
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


def _rest(entry: JobEntry) -> str | None:
    if entry.rest is None or entry.ended:
        return None
    from poundlock.rest.server import http_address

    return http_address(*entry.rest, tls=entry.rest_certificate is not None)


def _memory(memory: Sequence[ProcessMemory]) -> str | None:
    """Return what a job's processes take, all together and each; None where that is not known."""
    if not memory:
        return None
    each = ", ".join(f"{process.program} {process.pid}: {process.bytes >> 20:,}" for process in memory)
    return f"{sum(process.bytes for process in memory) >> 20:,} MB ({each})"


def _locality(progress: Mapping[str, Any] | None) -> str | None:
    share = (progress or {}).get("state_locality")
    return None if share is None else f"{share:.0%} of key groups where their state is"


def _watermark(progress: Mapping[str, Any] | None) -> str | None:
    """Return the watermark and the source partition that holds it back, None where the job has none."""
    watermark, held_by = ((progress or {}).get(name) for name in ("watermark", "held_by"))
    if watermark is None and held_by is None:
        return None
    return watermark_text(watermark) + (f", held back by {held_by}" if held_by else "")
