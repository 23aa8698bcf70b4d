"""Notes in a checkpoint folder: that its job ended with a savepoint and left all to it, and that a restore has begun in it.

While one of them is there, no job runs in the folder but one that is restored into it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.identity import read_identity
from poundlock.checkpoint.portable import Portable
from poundlock.errors import DefinitionError, TransientError
from poundlock.failpoints import SavepointFailpoint, hit
from poundlock.storage import Storage
from poundlock.storage.json_record import parsed, read_record
from poundlock.threads import in_thread

if TYPE_CHECKING:
    from poundlock.plan.plan import Plan

LEFT = "savepoint.json"
RESTORING = "restoring.json"


@dataclass(frozen=True)
class Note:
    """Which savepoint, and the job it is about; None where an older version noted it."""

    savepoint: str
    job_id: str | None = None


def leave(storage: Storage, sinks: Mapping[str, Any], path: str, *, job_id: str, check: Callable[[], None]) -> None:
    """Note that a job ended with a savepoint, which has all of it, and remove what its sinks carried hidden.

    Args:
        check: raises if a newer driver has taken over.

    Raises:
        OSError: it could not be noted, and the job goes on. What cannot be removed stays until the restore removes it.
    """
    check()
    _write(storage, LEFT, path, job_id)
    hit(SavepointFailpoint.LEFT)
    with suppress(OSError, TransientError):
        _sweep(sinks, check)


def _sweep(sinks: Mapping[str, Any], check: Callable[[], None]) -> None:
    """Remove what the sinks of a job carry hidden, all of it; where a sink's system is away it stays as it is."""
    check()
    for sink in sinks.values():
        if isinstance(sink, Portable):
            with suppress(TransientError, DefinitionError):
                sink.sweep({}, remove=True, check=check)


def left(storage: Storage) -> str | None:
    """Return the savepoint with which the job of a checkpoint folder ended, None if it did not end with one."""
    note = left_by(storage)
    return None if note is None else note.savepoint


def left_by(storage: Storage) -> Note | None:
    """Return what a job that ended with a savepoint noted: the savepoint and its own job id; None if none did."""
    return _note(storage, LEFT)


def _write(storage: Storage, name: str, savepoint: str, job_id: str) -> bool:
    return storage.create_exclusive(
        name, json.dumps({"v": 1, "savepoint": savepoint, "job_id": job_id}).encode() + b"\n"
    )


def _note(storage: Storage, name: str) -> Note | None:
    next = "restore the file from a backup, or go on from the savepoint in another checkpoint_dir"
    return read_record(storage, name, parsed(Note), next=next)


def refuse_left(storage: Storage, script: str = "JOB.PY", command: str = "run") -> None:
    """Raise DefinitionError if a checkpoint folder's job ended with a savepoint, where its data went, or is half restored."""
    restoring = in_thread(lambda: interrupted_restore(storage), "poundlock-look")
    if (path := left(storage)) is not None:
        raise DefinitionError(
            f"the job of {storage.root} ended with the savepoint {path}",
            next=f"go on from it: poundlock {command} -s {path} {script}; or start over in another checkpoint_dir",
        )
    if (interrupted := restoring.result()) is not None:
        path = interrupted.savepoint
        raise DefinitionError(
            f"{storage.root} has half of a restore that was interrupted, of the savepoint {path}",
            next=f"restore it again: poundlock {command} -s {path} {script}",
        )


def interrupted_restore(storage: Storage) -> Note | None:
    """Return what a restore that has not come to its end wrote when it began, None if there is none."""
    return _note(storage, RESTORING)


def mark_restore(plan: Plan, storage: Storage, path: str, job_id: str, interrupted: Note | None) -> bool:
    """Note that a restore begins, unless another process has begun something here; return whether it may.

    Args:
        storage: the checkpoint folder, whose lock is held.
        interrupted: the restore that was known to have been interrupted here.
    """
    if interrupted_restore(storage) != interrupted:
        return False
    if interrupted is None and read_identity(storage) is not None and left(storage) is None:
        return False
    before = read_identity(storage)
    others = {None if before is None else before.job_id, None if interrupted is None else interrupted.job_id}
    for other in others - {None, job_id}:
        # It left all to a savepoint, or was never whole; if it was killed before it could tidy up, nobody else would.
        _sweep({n: bound(sink, job_id=str(other), sink=n) for n, sink in plan.sinks.items()}, lambda: None)
    if interrupted is not None:
        storage.delete(RESTORING)
    return _write(storage, RESTORING, path, job_id)


def settle_restore(storage: Storage) -> None:
    """Note that a restore is done: the job before, and that this one was being restored, are history."""
    storage.delete(LEFT)
    storage.delete(RESTORING)
