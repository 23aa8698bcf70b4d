"""What the commands about running jobs share: how a job is named, how it is reached, and how its end is waited for.

A job is asked by REST; where that is off, a stop and a cancel are signals, which the process that was meant gets or nobody.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poundlock.cli.output import Output, Text
from poundlock.errors import DefinitionError, PoundlockError, TerminalError, TransientError

if TYPE_CHECKING:
    from poundlock.control.control_client import FolderClient
    from poundlock.control.registry import JobEntry, Registry
    from poundlock.rest.client import Client


RunningJobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="A job's id, the beginning of its id, or its name; see `poundlock list`.")
]

SAVED = "Savepoint completed. Path: "
_KINDS = {kind.__name__: kind for kind in (DefinitionError, TransientError, TerminalError)}
_POLL_S = 0.1
_FOLDER_POLL_S = 1.0
_TELL_S = 3.0


def find_job(wanted: str, define: Sequence[str] | None, config: Path | None) -> tuple[Registry, JobEntry]:
    """Return the registry and the job that is meant, running or not. Raises DefinitionError."""
    from poundlock.config import load_settings
    from poundlock.control.registry import Registry

    registry = Registry(load_settings(define or (), config=config).state_dir)
    return registry, registry.resolve(wanted)


def find_running(wanted: str, define: Sequence[str] | None, config: Path | None) -> tuple[Registry, JobEntry]:
    """Return the registry and the job that is meant. Raises DefinitionError if it does not run."""
    registry, entry = find_job(wanted, define, config)
    if entry.ended:
        raise DefinitionError(
            f"job {entry.job_id} ({entry.name}) is not running: {entry.state}",
            next=f"start it with: poundlock run {entry.job_file}",
        )
    return registry, entry


def client_of(entry: JobEntry) -> Client | None:
    """Return the way to a job's REST server, None if it has none. Raises NoAnswer."""
    from poundlock.rest.client import Client

    return Client.of(entry)


def folder_client(entry: JobEntry) -> FolderClient | None:
    """Return the way to a job whose driver runs on a cluster; None if it is a process of a machine."""
    if entry.application is None:
        return None
    from poundlock.control import yarn
    from poundlock.control.control_client import FolderClient
    from poundlock.control.driver_status import lost
    from poundlock.storage import open_storage

    application = entry.application

    def gone() -> str | None:
        known = yarn.ask(application)
        return lost(known).what if known is not None and known.over else None

    return FolderClient(open_storage(entry.checkpoint_dir), entry.name, gone)


def answering(entry: JobEntry, what_not: str) -> Client:
    """Return the way to a job's REST server; `what_not` says what cannot be had without one.

    Raises:
        TransientError: the job is being started again.
        DefinitionError: it serves no REST.
        NoAnswer: it does not answer.
    """
    client = client_of(entry)
    if client is not None:
        return client
    if entry.state == "RESTARTING":
        raise TransientError(
            f"job {entry.job_id} ({entry.name}) is being started again, and nobody answers until then",
            next=f"ask again when it runs: poundlock info {entry.job_id[:8]}",
        )
    raise DefinitionError(
        f"job {entry.job_id} ({entry.name}) serves no REST, {what_not}",
        next='install it with python -m pip install "poundlock[rest]", and start the job without --no-rest',
    )


def progress_of(entry: JobEntry) -> Mapping[str, Any] | None:
    """Return a job's newest progress: of the running job, or its last; None where it is not known."""
    if entry.ended or entry.application is not None:
        return entry.progress or None
    try:
        client = client_of(entry)
        found: Mapping[str, Any] | None = None if client is None else client.get()["progress"]
    except PoundlockError:
        return None
    return found


def progress_line(progress: Mapping[str, Any] | None) -> str | None:
    """Return progress as one line, None where it is not known."""
    from poundlock.cli.progress_display import status_line
    from poundlock.driver.progress import Progress

    try:
        return None if progress is None else status_line(Progress(**progress))
    except TypeError:  # of another version
        return None


def send(entry: JobEntry, number: signal.Signals) -> None:
    """Send a signal to a job's process. Raises DefinitionError if it cannot be reached from here."""
    import socket

    from poundlock.control.process_id import send_signal

    if entry.host != socket.gethostname():
        raise DefinitionError(
            f"job {entry.job_id} runs on {entry.host} and serves no REST here", next=f"type it on {entry.host}"
        )
    try:
        send_signal(entry.pid, entry.process_start, number)
    except PermissionError as error:
        raise DefinitionError(
            f"process {entry.pid} of job {entry.job_id} is another user's", next="type it as that user"
        ) from error


def await_end(registry: Registry, entry: JobEntry, output: Output, patience_s: float | None = None) -> JobEntry | None:
    """Wait until a job has ended, saying now and then on standard error how it goes; None if it has not within the patience."""
    begun = told = time.monotonic()
    shown = None
    while True:
        now = registry.reread(entry) or entry
        if now.ended:
            return now
        at = time.monotonic()
        if patience_s is not None and at - begun > patience_s:
            return None
        if at - told > _TELL_S:
            told = at
            line = progress_line(progress_of(now))
            if line is not None and line != shown:
                output.note(line)
                shown = line
        time.sleep(_POLL_S if entry.application is None else _FOLDER_POLL_S)


def failed(entry: JobEntry, output: Output) -> int:
    """Tell how a job failed and return its exit code."""
    what, next = entry.failure or (f"job {entry.name} failed", f"read {entry.log}")
    output.error(PoundlockError(f"job {entry.job_id} failed: {what}", next=next or f"read {entry.log}"))
    return entry.exit_code or 1


def trigger_savepoint(registry: Registry, entry: JobEntry, place: str, body: Mapping[str, Any]) -> str:
    """Ask a job for a savepoint, wait for it, and return its path.

    Args:
        registry: where the job is kept.
        entry: the job.
        place: below the job's own path: "/savepoints" or "/stop".
        body: of the request.

    Raises:
        PoundlockError: it was not taken, or the job serves no REST.
    """
    from poundlock.rest.client import NoAnswer

    if (folder := folder_client(entry)) is not None:
        then = "cancel" if body.get("cancel-job") else "stop" if place == "/stop" else "go on"
        directory = _shared(entry, body.get("target-directory") or body.get("targetDirectory"))
        return str(folder.ask("savepoint", directory=directory, then=then, drain=bool(body.get("drain"))))
    client = answering(entry, "so no savepoint can be asked for")
    asked = client.post(place, dict(body))["request-id"]
    while True:
        try:
            found: dict[str, Any] = client.get(f"/savepoints/{asked}")
        except NoAnswer:  # the job ends when the savepoint is taken; its last word says where that is
            ended = await_end(registry, entry, Output(True), 60)
            _, mark, path = str((ended.progress or {}).get("message", "") if ended else "").partition(SAVED)
            if mark:
                return path
            if ended is None:
                raise
            raise PoundlockError(
                f"no savepoint of job {entry.job_id} was taken: it ended before that ({ended.state})",
                next=f"start it again, then ask again: poundlock run {entry.job_file}",
            ) from None
        if found["status"]["id"] != "IN_PROGRESS":
            break
        time.sleep(_POLL_S)
    cause = found["operation"].get("failure-cause")
    if cause is not None:
        what, _, next = cause["stack-trace"].partition("\nNext: ")
        kind = _KINDS.get(cause["class"], PoundlockError)
        raise kind(f"no savepoint of job {entry.job_id} was taken: {what}", next=next)
    return str(found["operation"]["location"])


def _shared(entry: JobEntry, directory: str | None) -> str:
    """Return the folder of a savepoint that a driver in a container takes. Raises DefinitionError if it would be that container's."""
    from poundlock.storage import LocalStorage, open_storage

    if directory is None or isinstance(open_storage(directory), LocalStorage):
        what = (
            "a savepoint of it has to be told where it goes" if directory is None else f"{directory} is of one machine"
        )
        raise DefinitionError(
            f"the driver of job {entry.job_id} ({entry.name}) runs on a cluster, and {what}",
            next="name a folder that all machines share, such as hdfs://namenode/savepoints",
        )
    return directory


def folder_of(directory: str) -> str:
    """Return the folder that was typed, as the job understands it too, wherever it was started. Raises DefinitionError."""
    from poundlock.storage import open_storage

    return open_storage(directory).root


def saved(entry: JobEntry, path: str) -> Text:
    """Return what to show when a savepoint was taken."""
    return Text(
        text=f"Savepoint completed. Path: {path}\nYou can resume your program from this savepoint with the run command.",
        data={"job_id": entry.job_id, "savepoint": path},
    )
