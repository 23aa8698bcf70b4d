"""What commands share: how a job or the checkpoint of one is named and looked up, how a running job is reached, and how its end is waited for.

A user's file is run only where it is what was given; a folder or a name needs none of the user's code. Nothing is changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from poundlock.cli.completion import checkpoint_names, job_names, running_job_names
from poundlock.cli.options import Call
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError, PoundlockError, TransientError, did_you_mean

if TYPE_CHECKING:
    from poundlock.checkpoint.identity import Identity
    from poundlock.checkpoint.participant import JSON, Participant
    from poundlock.control.channel import ControlChannel, FolderChannel
    from poundlock.control.registry import JobEntry
    from poundlock.driver.requests import Then
    from poundlock.job import Job
    from poundlock.storage import Storage


_NAMED = "A job's id, the beginning of its id, its name, or its checkpoint folder; see `poundlock list`."
RunningJobArgument = Annotated[str, Argument(metavar="JOB", help=_NAMED, autocompletion=running_job_names)]
KnownJobArgument = Annotated[str, Argument(metavar="JOB", help=_NAMED, autocompletion=job_names)]
"""Of a job that may have ended."""

SAVED = "Savepoint completed. Path: "
_POLL_S = 0.1
_FOLDER_POLL_S = 1.0
_TELL_S = 3.0
_SILENT_S = 120.0
_END_S = 60.0


@dataclass(frozen=True)
class KnownJob:
    """A job that runs or has run; `again` looks again, and returns None where there is no entry any more.

    `say` shows that its driver does not answer, while an answer is waited for; `authorities` is the setting
    `security.ssl.rest.ca-file`.
    """

    entry: JobEntry
    again: Callable[[], JobEntry | None]
    say: Callable[[PoundlockError], None] = lambda error: None
    authorities: Path | None = None

    def channel(self, say: Callable[[PoundlockError], None] | None = None) -> ControlChannel:
        """Return the way to it: by REST, by a signal to a process of this machine that is the job alone, or by its checkpoint folder."""
        say = say or self.say
        from poundlock.control.channel import FirstAnswer, NoAnswer, SignalChannel
        from poundlock.rest.client import HttpChannel

        if self.entry.application is not None:
            return folder_channel(self.entry, say)
        if self.entry.between:
            return SignalChannel(self.entry)
        try:
            http = HttpChannel.of(self.entry, say, authorities=self.authorities)
        except NoAnswer:
            http = None
        ways: list[ControlChannel] = [] if http is None else [http]
        if not self.entry.is_shell:
            ways.append(SignalChannel(self.entry))
        return FirstAnswer([*ways, folder_channel(self.entry, say)])


def names_folder(wanted: str) -> bool:
    """Return whether what was typed is a checkpoint folder, and no id or name."""
    return "/" in wanted or Path(wanted, "job.json").is_file()


def find_job(wanted: str, call: Call) -> KnownJob:
    """Return the job that is meant, running or not, by its id, its name or its checkpoint folder. Raises DefinitionError."""
    from poundlock.control.driver_status import in_folder
    from poundlock.control.registry import Registry

    def say(error: PoundlockError) -> None:
        call.output.note(str(error))

    settings = call.settings()
    registry, authorities = Registry(settings.state_dir), settings.security_ssl_rest_ca_file
    if names_folder(wanted):
        storage = find_checkpoint(wanted, call).storage
        return KnownJob(_in_folder(storage), lambda: in_folder(storage), say, authorities)
    entry = registry.resolve(wanted)
    return KnownJob(entry, lambda: registry.reread(entry), say, authorities)


def jobs_in(folder: str) -> list[JobEntry]:
    """Return the jobs whose checkpoint folder this is, or whose are in it. Raises DefinitionError if there are none."""
    from poundlock.checkpoint.identity import PATH, read_identity
    from poundlock.control.driver_status import in_folder
    from poundlock.storage import open_storage

    storage = open_storage(folder)
    inner = [] if read_identity(storage) else [f"{storage.root}/{name}" for name in sorted(storage.names("."))]
    folders = [storage, *(open_storage(path) for path in inner)]
    entries = [entry for each in folders if each.stat(PATH) is not None and (entry := in_folder(each)) is not None]
    if not entries:
        raise DefinitionError(
            f"no job has written how it goes into {folder}",
            next="give a job's checkpoint folder, or one with several in it",
        )
    return entries


def _in_folder(storage: Storage) -> JobEntry:
    """Return the entry of the job of a checkpoint folder, by what its driver wrote there."""
    from poundlock.control.driver_status import in_folder

    entry = in_folder(storage)
    if entry is None:
        raise DefinitionError(
            f"no driver has written how it goes into {storage.root}",
            next="see the jobs of this machine: poundlock list -a",
        )
    return entry


def find_running(wanted: str, call: Call) -> KnownJob:
    """Return the job that is meant. Raises DefinitionError if it does not run."""
    from poundlock.control.driver_status import start_command

    job = find_job(wanted, call)
    entry = job.entry
    if entry.ended:
        raise DefinitionError(
            f"job {entry.job_id} ({entry.name}) is not running: {entry.state}",
            next=f"start it with: {start_command(entry)}",
        )
    return job


def folder_channel(entry: JobEntry, say: Callable[[PoundlockError], None] = lambda error: None) -> FolderChannel:
    """Return the way to a job through its checkpoint folder."""
    from poundlock.control import yarn
    from poundlock.control.channel import FolderChannel
    from poundlock.control.driver_status import lost
    from poundlock.storage import open_storage

    def gone() -> str | None:
        known = None if entry.application is None else yarn.ask(entry.application)
        return lost(known).what if known is not None and known.over else None

    return FolderChannel(open_storage(entry.checkpoint_dir), entry.name, gone, say)


def progress_of(job: KnownJob, silent: Callable[[PoundlockError], None]) -> Mapping[str, Any] | None:
    """Return a job's newest progress: of the running job, or its last; None where it is not known.

    `silent` is called where its driver does not answer, and the progress is what it wrote last.
    """
    if job.entry.ended:
        return job.entry.progress or None
    try:
        return job.channel(silent).status() or None
    except PoundlockError:
        return None


def progress_line(progress: Mapping[str, Any] | None) -> str | None:
    """Return progress as one line, None where it is not known."""
    from poundlock.cli.progress_display import status_line
    from poundlock.driver.progress import Progress

    try:
        return None if progress is None else status_line(Progress.of(progress))
    except TypeError:  # of another version
        return None


def await_end(job: KnownJob, output: Output, patience_s: float | None = None) -> JobEntry | None:
    """Wait until a job has ended, noting now and then on standard error how it goes; None if it has not within the patience.

    Raises:
        TransientError: its driver is on another machine, and has written nothing for long.
    """
    begun = noted = silent = time.monotonic()
    shown, newest = None, job.entry
    unanswered: list[PoundlockError] = []
    while True:
        now = job.again() or job.entry
        if now.ended:
            return now
        at = time.monotonic()
        if now != newest or now.written_ms is None:
            newest, silent = now, at
        elif at - silent > _SILENT_S and now.application is None:
            raise TransientError(
                f"the driver on {now.host} has written nothing into {now.checkpoint_dir} for {_SILENT_S:.0f} s",
                next=f"see whether process {now.pid} runs on {now.host}",
            )
        if patience_s is not None and at - begun > patience_s:
            return None
        if at - noted > _TELL_S:
            noted = at
            before = len(unanswered)
            line = progress_line(progress_of(job, unanswered.append))
            if unanswered and not before:
                output.note(f"{unanswered[0].what}; its end is waited for\nNext: {unanswered[0].next}")
            if line is not None and line != shown:
                output.note(line)
                shown = line
        time.sleep(_POLL_S if now.written_ms is None else _FOLDER_POLL_S)


def failed(entry: JobEntry, output: Output) -> int:
    """Show how a job failed and return its exit code."""
    what, next = entry.failure or (f"job {entry.name} failed", f"read {entry.log}")
    output.error(
        PoundlockError(f"job {entry.job_id} failed: {what}", next=next or f"read {entry.log}", code=entry.failure_code)
    )
    return entry.exit_code or 1


def savepoint_folder(directory: str) -> str:
    """Return the folder that was typed as the job understands it too, wherever it was started. Raises DefinitionError."""
    from poundlock.storage import open_checkpoint

    return open_checkpoint(directory, "savepoint").root


def take_savepoint(job: KnownJob, directory: str | None, *, then: Then = "go on", drain: bool = False) -> str:
    """Ask a job for a savepoint, wait for it and for the end it brings, and return its path; see `Trigger`.

    Raises:
        PoundlockError: it was not taken, or the folder is of one machine and the driver on another.
    """
    from poundlock.control.channel import EndedMeanwhile, check_shared
    from poundlock.control.driver_status import start_command

    entry = job.entry
    folder = None if directory is None else savepoint_folder(directory)
    check_shared(entry, folder)
    try:
        path = job.channel().savepoint(folder, then=then, drain=drain)
    except EndedMeanwhile:  # the job ends when the savepoint is taken; its last word says where that is
        ended = await_end(job, Output(True), _END_S)
        _, mark, path = str((ended.progress or {}).get("message", "") if ended else "").partition(SAVED)
        if mark and (folder is None or path.startswith(f"{folder}/")):  # elsewhere it is somebody else's
            return path
        if ended is None:
            raise
        raise PoundlockError(
            f"no savepoint of job {entry.job_id} was taken: it ended before that ({ended.state})",
            next=f"start it again, then ask again: {start_command(ended)}",
        ) from None
    if then != "go on":
        await_end(job, Output(True))
    return path


def show_saved(entry: JobEntry, path: str, output: Output, *, drained: bool = False) -> None:
    resume = "You can resume your program from this savepoint with the run command."
    if drained:
        resume = "The job is drained: every window has fired. One that goes on from here fires a window again if rows come for it."
    output.show(f"{SAVED}{path}\n{resume}", {"job_id": entry.job_id, "savepoint": path})


CheckpointArgument = Annotated[
    str,
    Argument(
        metavar="PATH",
        help="A job's checkpoint folder, its file JOB.PY[:NAME], or its name.",
        autocompletion=checkpoint_names,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """The checkpoint folder of a job that has run, and the job where its file was given."""

    storage: Storage
    identity: Identity
    job: Job | None


def find_checkpoint(path: str, call: Call) -> FoundCheckpoint:
    """Return the checkpoint that a path or name means.

    That is a checkpoint folder, `job.py[:name]`, or the name of a job: of a folder below the state directory's checkpoints, else
    of a job that was run with this state directory.

    Raises:
        DefinitionError: no job has run there, or the job's file or the settings are wrong.
        TerminalError: the checkpoint's identity is damaged.
    """
    if _is_file(path):
        return _of_file(path, call)
    checkpoint = _open(path)
    if checkpoint is None and "/" not in path:
        state_dir = call.settings().state_dir
        folder = state_dir / "checkpoints"
        checkpoint = _open(str(folder / path)) or _registered(path, state_dir)
        if checkpoint is None:
            known = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
            raise _none(path, did_you_mean(path, known, _NEXT))
    if checkpoint is None:
        raise _none(path, _NEXT)
    return checkpoint


def find_of_job(job: str, call: Call) -> FoundCheckpoint:
    """Return the checkpoint of a job that is meant as `info` takes it, by id or name, or by what `find_checkpoint` takes.

    Raises:
        DefinitionError: there is no such job, or none has run there.
        TerminalError: the checkpoint's identity is damaged.
    """
    if names_folder(job) or _is_file(job):
        return find_checkpoint(job, call)
    try:
        entry = find_job(job, call).entry
    except DefinitionError as unknown:
        try:
            return find_checkpoint(job, call)
        except DefinitionError:
            raise unknown from None
    return find_checkpoint(entry.checkpoint_dir, call)


def _is_file(path: str) -> bool:
    return path.endswith(".py") or ".py:" in path


def rebuilder(checkpoint: FoundCheckpoint) -> Callable[[str, JSON], Participant | None]:
    """Return how sinks are made again: as the job's file says where it was given, else as they described themselves."""
    from poundlock.connectors.sink_factory import rebuild_sink

    if checkpoint.job is None:
        return lambda name, description: rebuild_sink(description)
    from poundlock.plan.plan import make_plan

    sinks = make_plan(checkpoint.job).sinks
    return lambda name, description: sinks[name] if name in sinks else rebuild_sink(description)


def rebuilt_sinks(checkpoint: FoundCheckpoint) -> Mapping[str, Participant | None]:
    """Return the sinks the job has or had; None where one cannot be made without the job's own code."""
    from poundlock.audit.fsck import rebuilt_sinks as rebuilt
    from poundlock.checkpoint.ledger.ledger import Ledger

    return rebuilt(checkpoint.storage, checkpoint.identity, Ledger(checkpoint.storage).newest(), rebuilder(checkpoint))


def _of_file(path: str, call: Call) -> FoundCheckpoint:
    from poundlock.cli.job_loader import load_job
    from poundlock.driver.driver import checkpoint_dir, with_settings

    settings = call.settings()
    job = with_settings(load_job(path), settings)
    folder = checkpoint_dir(job, settings)
    checkpoint = _open(folder, job)
    if checkpoint is None:
        raise _none(folder, f"run the job first: poundlock run {path}")
    return checkpoint


def _open(folder: str, job: Job | None = None) -> FoundCheckpoint | None:
    from poundlock.checkpoint.identity import read_identity
    from poundlock.driver.savepoints.handover import refuse_left
    from poundlock.storage import open_storage

    storage = open_storage(folder)
    identity = read_identity(storage)
    if identity is None:
        refuse_left(storage, *([job.script, job.command] if job else []))  # half of a restore has no identity yet
    return None if identity is None else FoundCheckpoint(storage=storage, identity=identity, job=job)


def _registered(job: str, state_dir: Path) -> FoundCheckpoint | None:
    """Return the checkpoint of a job that was run with this state directory, wherever it keeps it."""
    from poundlock.control.registry import Registry

    try:
        entry = Registry(state_dir).resolve(job)
    except DefinitionError:
        return None  # the caller says what may be given instead
    return _open(entry.checkpoint_dir)


def _none(path: str, next: str) -> DefinitionError:
    return DefinitionError(f"{path} is no checkpoint of a job that has run", next=next)


_NEXT = "give the job's checkpoint folder (it holds job.json), its file job.py, or its name"
