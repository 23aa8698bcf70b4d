"""Deleting the checkpoint of a job that was cancelled, where it asked for that; and ending a deletion that was interrupted.

The newest decision is carried out first. Then a mark says that the folder is being deleted, and goes last: until it is there the
checkpoint is whole, and from then on whoever starts in the folder deletes the rest before anything else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypedDict

from poundlock.checkpoint.capabilities import Inspectable, bound
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.epoch import FOLDER as EPOCHS
from poundlock.checkpoint.epoch import Epoch, described_operators
from poundlock.checkpoint.identity import PATH as IDENTITY
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.participant import JSON
from poundlock.connectors.sink_factory import rebuild_sink
from poundlock.driver.savepoints.handover import LEFT
from poundlock.driver.savepoints.retained_checkpoints import FOLDER
from poundlock.errors import DefinitionError, TransientError
from poundlock.failpoints import DeletionPoint, hit
from poundlock.plan.plan import Plan
from poundlock.savepoint.operator_ids import operators, operators_before, refuse_stranger
from poundlock.savepoint.restore import OF_A_CHECKPOINT
from poundlock.storage import Storage
from poundlock.storage.copying import remove_empty
from poundlock.storage.json_record import parsed, read_record
from poundlock.values import Clock

MARK = "deleting.json"
_OURS = (*OF_A_CHECKPOINT, FOLDER, LEFT, IDENTITY)


class Mark(TypedDict):
    """Whose checkpoint is being deleted, and how its sinks described themselves."""

    job_id: str
    name: str
    sinks: Mapping[str, JSON]


def delete_checkpoint(
    storage: Storage, identity: Identity, sinks: Mapping[str, Any], coordinator: Coordinator, epoch: Epoch
) -> None:
    """Delete a cancelled job's checkpoint, with what its sinks carry hidden; the coordinator is new, and no task runs.

    Raises:
        PoundlockError: the newest decision could not be carried out, and the checkpoint is whole; or the deletion was begun and
            could not be ended, and the next start in the folder does that.
    """
    coordinator.recover()
    newest = coordinator.newest.checkpoint
    if coordinator.is_produced_again(newest):
        raise TransientError(
            f"part of checkpoint {newest} was aborted from outside and has to be produced again",
            next="start the job again and cancel it when it has gone on",
        )
    hit(DeletionPoint.COMMITTED)
    descriptions: JSON = {name: sink.describe_json() for name, sink in sinks.items() if isinstance(sink, Inspectable)}
    mark = {"v": 1, "job_id": identity.job_id, "name": identity.name, "sinks": descriptions}
    epoch.check()
    storage.create_exclusive(MARK, json.dumps(mark).encode() + b"\n")
    hit(DeletionPoint.MARKED)
    _delete(storage, sinks, epoch)


def is_being_deleted(storage: Storage) -> bool:
    """Return whether the deletion of a checkpoint has begun. Raises TerminalError: what says so is damaged."""
    return _marked(storage) is not None


def finish_deletion(plan: Plan, storage: Storage, *, clock: Clock, say: Callable[[str], None]) -> None:
    """Delete the rest of a checkpoint whose deletion was interrupted; nothing happens where there is none.

    Raises:
        DefinitionError: it is another job's, or that job still deletes it.
    """
    mark = _marked(storage)
    if mark is None:
        return
    refuse_stranger(
        f"the rest of a cancelled job's checkpoint in {storage.root}",
        mark["name"],
        plan.job.name,
        operators_before(storage),
        operators(plan),
        next=f"start {mark['name']!r} once, or give {plan.job.name!r} another checkpoint_dir",
    )
    with Epoch.claim(storage, clock=clock, operators=described_operators(storage)) as epoch:
        if _marked(storage) is None:
            return
        _delete(storage, _sinks(plan, mark), epoch)
    say(f"Deleted the rest of the checkpoint of the cancelled job {mark['job_id']}")


def refuse_deleted(storage: Storage) -> None:
    """Raise DefinitionError if a checkpoint is being deleted: nothing can go on from it."""
    if _marked(storage) is not None:
        raise DefinitionError(
            f"the job of {storage.root} was cancelled, and its checkpoint is being deleted",
            next="begin without -s, or give another savepoint",
        )


def _marked(storage: Storage) -> Mark | None:
    next = "restore the file from a backup, or begin in another checkpoint_dir"
    return read_record(storage, MARK, parsed(Mark), next=next)


def _sinks(plan: Plan, mark: Mark) -> dict[str, Any]:
    """Return the sinks the cancelled job had, as far as they can be made; those the job has now for the rest."""
    job_id = mark["job_id"]
    sinks: dict[str, Any] = {name: bound(sink, job_id=job_id, sink=name) for name, sink in plan.sinks.items()}
    for name, description in mark["sinks"].items():
        now = sinks.get(name)
        if isinstance(now, Inspectable) and now.describe_json() == description:
            continue
        then = rebuild_sink(description)
        if then is not None:
            sinks[name] = bound(then, job_id=job_id, sink=name)
    return sinks


def _delete(storage: Storage, sinks: Mapping[str, Any], epoch: Epoch) -> None:
    """Delete what a mark stands for, and the mark last. The lock and the newest epoch stay: they fence a driver that slept."""
    for sink in sinks.values():
        sink.sweep({}, remove=True, check=epoch.check)
    hit(DeletionPoint.SWEPT)
    epoch.check()
    newest = max((name for name in storage.names(EPOCHS)), default="")
    for name in _OURS:
        for entry in list(storage.list(name)):
            if entry.path != f"{EPOCHS}/{newest}":
                storage.delete(entry.path)
                hit(DeletionPoint.FILE_DELETED)
        if storage.stat(name) is not None:
            storage.delete(name)
        with suppress(OSError):
            remove_empty(storage, name)
    storage.delete(MARK)
