"""A running job's savepoints, and a job that begins with one: what of the plan, the checkpoint and Spark goes in and comes out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.epoch import DriverLock
from poundlock.checkpoint.identity import Identity, new_job_id, open_identity, read_identity
from poundlock.checkpoint.participant import Inspectable, bound
from poundlock.checkpoint.portable import NewerOutput, Portable
from poundlock.errors import DefinitionError
from poundlock.failpoints import SavepointFailpoint, hit
from poundlock.plan.plan import Plan
from poundlock.runtime.operators import operators, unnamed_note
from poundlock.savepoint.metadata import Metadata, new_name, read_metadata
from poundlock.savepoint.restore import check, restore
from poundlock.savepoint.take import Cut, take
from poundlock.storage import Storage, open_storage
from poundlock.values import Clock
from poundlock.versions import version_of

__all__ = ["Beginning", "begin", "cut", "leave", "left", "refuse_left"]

LEFT = "savepoint.json"
RESTORING = "restoring.json"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The savepoint a job begins with.

    Args:
        path: its folder.
        allow_non_restored: whether what the job has no operator for may be left behind.
        newer: what to do about output that was finished after it was taken.
        job_id: 32 hex digits that the job gets; None = new ones. Where a job of this id is in the checkpoint folder
            already, it has begun before, and goes on from its checkpoint.
    """

    path: str
    allow_non_restored: bool = False
    newer: NewerOutput = "refuse"
    job_id: str | None = None


def cut(
    plan: Plan,
    checkpoint: Storage,
    coordinator: Coordinator,
    identity: Identity,
    directory: str,
    *,
    spark: Mapping[str, Any],
    clock: Clock,
    retained: str | None = None,
) -> Cut:
    """Copy what a savepoint is made of into a new folder of a directory; call it at a checkpoint's border.

    `retained` is the name of a copy that stays with the checkpoint, None for a savepoint.

    Raises:
        DefinitionError: the directory cannot be used.
    """
    if coordinator.is_produced_again(coordinator.newest.checkpoint):
        raise DefinitionError(
            "part of the newest checkpoint is being produced again", next="take the savepoint when the job has gone on"
        )
    name = retained or new_name(identity.job_id)
    sinks = {n: bound(sink, job_id=identity.job_id, sink=n) for n, sink in plan.sinks.items()}
    stateful = next(iter(checkpoint.list("spark/state")), None) is not None
    metadata = Metadata(
        name=name,
        job=identity.name,
        job_id=identity.job_id,
        created_ms=clock.now_ms(),
        versions={package: version_of(package) for package in ("poundlock", "pyspark")},
        decision=replace(coordinator.newest, sources=coordinator.sources),
        operators=operators(plan, stateful=stateful),
        sinks={n: sink.describe_json() for n, sink in sinks.items() if isinstance(sink, Inspectable)},
        spark=dict(spark),
    )
    made = open_storage(f"{directory}/{name}")
    return take(checkpoint, made, metadata=metadata, sinks=sinks, linked=retained is not None)


def leave(storage: Storage, sinks: Mapping[str, Any], path: str, *, job_id: str, check: Callable[[], None]) -> None:
    """Note that a job ended with a savepoint, which has all of it, and remove what its sinks carried hidden.

    Args:
        storage: the job's checkpoint folder.
        job_id: of the job.
        sinks: as this job owns them.
        path: the savepoint.
        check: raises if a newer driver has taken over.
    """
    storage.create_exclusive(LEFT, json.dumps({"v": 1, "savepoint": path, "job_id": job_id}).encode() + b"\n")
    hit(SavepointFailpoint.LEFT)
    _sweep(sinks, check)


def _sweep(sinks: Mapping[str, Any], check: Callable[[], None]) -> None:
    """Remove what the sinks of a job carry hidden, all of it."""
    for sink in sinks.values():
        if isinstance(sink, Portable):
            sweep: Any = getattr(sink, "sweep")  # noqa: B009 - every participant has it
            sweep({}, remove=True, check=check)


def left(storage: Storage) -> str | None:
    """Return the savepoint with which the job of a checkpoint folder ended, None if it did not end with one."""
    found = _left(storage)
    return None if found is None else str(found["savepoint"])


def _left(storage: Storage) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = json.loads(storage.read(LEFT))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found


def refuse_left(storage: Storage) -> None:
    """Raise DefinitionError if a checkpoint folder's job ended with a savepoint, where its data went, or is half restored."""
    if (path := left(storage)) is not None:
        raise DefinitionError(
            f"the job of {storage.root} ended with the savepoint {path}",
            next=f"go on from it: poundlock run -s {path} JOB.PY; or begin anew in another checkpoint_dir",
        )
    if (interrupted := _interrupted(storage)) is not None:
        path = interrupted["savepoint"]
        raise DefinitionError(
            f"{storage.root} has half of a restore that was interrupted, of the savepoint {path}",
            next=f"restore it again: poundlock run -s {path} JOB.PY",
        )


def _interrupted(storage: Storage) -> Mapping[str, Any] | None:
    """Return what a restore that has not come to its end said when it began, None if there is none."""
    try:
        found: Mapping[str, Any] = json.loads(storage.read(RESTORING))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found


def _mark(plan: Plan, storage: Storage, path: str, job_id: str, interrupted: Mapping[str, Any] | None) -> bool:
    """Note that a restore begins, unless another process has begun something here; return whether it may.

    Args:
        plan: the job's.
        storage: the checkpoint folder, whose lock is held.
        path: the savepoint.
        job_id: of the job that goes on from it.
        interrupted: the restore that was known to have been interrupted here.
    """
    if _interrupted(storage) != interrupted:
        return False
    if interrupted is None and read_identity(storage) is not None and left(storage) is None:
        return False
    before = read_identity(storage)
    others = {None if before is None else before.job_id, None if interrupted is None else interrupted["job_id"]}
    for other in others - {None, job_id}:
        # It left all to a savepoint, or was never whole; if it was killed before it could tidy up, nobody else would.
        _sweep({n: bound(sink, job_id=str(other), sink=n) for n, sink in plan.sinks.items()}, lambda: None)
    if interrupted is not None:
        storage.delete(RESTORING)
    mark = {"v": 1, "savepoint": path, "job_id": job_id}
    return storage.create_exclusive(RESTORING, json.dumps(mark).encode() + b"\n")


def begin(plan: Plan, checkpoint: Storage, beginning: Beginning, *, clock: Clock, say: Callable[[str], None]) -> None:
    """Make a job's empty checkpoint folder that of one which goes on from a savepoint.

    Raises:
        DefinitionError: the savepoint is damaged or does not fit; nothing was touched.
    """
    if beginning.job_id is not None and _has_begun(checkpoint, beginning.job_id):
        say(f"Begun with savepoint {beginning.path} before; going on from the checkpoint")
        return
    savepoint = open_storage(beginning.path)
    stateful = any(o.kind == "stateful" for o in read_metadata(savepoint).operators.values())
    interrupted = _interrupted(checkpoint)
    # The id of a restore that was interrupted: what it left half done is this job's to remove.
    job_id = beginning.job_id or (new_job_id() if interrupted is None else str(interrupted["job_id"]))
    sinks = {name: bound(sink, job_id=job_id, sink=name) for name, sink in plan.sinks.items()}
    restoring = check(
        savepoint,
        checkpoint,
        job=plan.job.name,
        operators=operators(plan, stateful=stateful),
        sinks=sinks,
        allow_non_restored=beginning.allow_non_restored,
        newer=beginning.newer,
        replace=interrupted is not None or left(checkpoint) is not None,
    )
    lock = DriverLock.acquire(checkpoint, clock=clock)
    try:
        if not _mark(plan, checkpoint, beginning.path, job_id, interrupted):
            raise DefinitionError(
                f"another process has just begun a job in {checkpoint.root}",
                next="give this one another checkpoint_dir",
            )
        hit(SavepointFailpoint.RESTORE_BEGUN)
        restore(restoring, checkpoint, job_id=job_id, sinks=sinks, newer=beginning.newer, now_ms=clock.now_ms())
        open_identity(checkpoint, name=plan.job.name, clock=clock, job_id=job_id)
        hit(SavepointFailpoint.RESTORE_IDENTIFIED)
        checkpoint.delete(LEFT)
        checkpoint.delete(RESTORING)
    finally:
        lock.release()
    say(f"Restored from savepoint {beginning.path} (checkpoint {restoring.metadata.decision.checkpoint})")
    for name in restoring.dropped:
        say(f"Not restored: {restoring.metadata.operators[name].kind} {name}")
    if (note := unnamed_note(operators(plan, stateful=stateful))) is not None:
        say(f"Operators {note}")


def _has_begun(checkpoint: Storage, job_id: str) -> bool:
    """Return whether the restore that gives a job this id was done; mend what a kill just behind its last step left.

    Raises:
        DefinitionError: that job has ended with a savepoint since.
    """
    found = read_identity(checkpoint)
    if found is None or found.job_id != job_id:
        return False
    before = _left(checkpoint)
    if before is not None and before.get("job_id") == job_id:
        refuse_left(checkpoint)
    checkpoint.delete(RESTORING)
    checkpoint.delete(LEFT)  # of the job before, whose place the restore took
    return True
