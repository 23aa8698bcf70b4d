"""Finds the checkpoint that a person means: its folder, the job's file, or the job's name. Nothing is changed.

A user's file is run only where it is what was given; a folder or a name needs none of the user's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from poundlock.cli.options import Call
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from poundlock.checkpoint.identity import Identity
    from poundlock.checkpoint.participant import JSON, Participant
    from poundlock.job import Job
    from poundlock.storage import Storage


CheckpointArgument = Annotated[
    str, Argument(metavar="PATH", help="A job's checkpoint folder, its file JOB.PY[:NAME], or its name.")
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
            near = get_close_matches(path, known, n=1)
            raise _none(path, f"did you mean {near[0]}?" if near else _NEXT)
    if checkpoint is None:
        raise _none(path, _NEXT)
    return checkpoint


def find_of_job(job: str, call: Call) -> FoundCheckpoint:
    """Return the checkpoint of a job that is meant as `info` takes it, by id or name, or by what `find_checkpoint` takes.

    Raises:
        DefinitionError: there is no such job, or none has run there.
        TerminalError: the checkpoint's identity is damaged.
    """
    from poundlock.cli.job_lookup import find_job, names_folder

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
        refuse_left(storage)  # half of a restore has no identity yet
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
