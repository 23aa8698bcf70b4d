"""A running job's savepoints, and a job that begins with one: what of the plan, the checkpoint and Spark goes in and comes out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
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
from poundlock.runtime.partitions import Rescaling, plan_rescaling, state_partitions
from poundlock.savepoint.claim import ClaimMode, claim
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
        claim: whose it is afterwards: the user's, or the job's, which deletes it at its first checkpoint.
    """

    path: str
    allow_non_restored: bool = False
    newer: NewerOutput = "refuse"
    claim: ClaimMode = "NO_CLAIM"


def cut(
    plan: Plan,
    checkpoint: Storage,
    coordinator: Coordinator,
    identity: Identity,
    directory: str,
    *,
    spark: Mapping[str, Any],
    clock: Clock,
) -> Cut:
    """Copy what a savepoint is made of into a new folder of a directory; call it at a checkpoint's border.

    Raises:
        DefinitionError: the directory cannot be used.
    """
    if coordinator.is_produced_again(coordinator.newest.checkpoint):
        raise DefinitionError(
            "part of the newest checkpoint is being produced again", next="take the savepoint when the job has gone on"
        )
    name = new_name(identity.job_id)
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
        spark={**spark, "shuffle_partitions": state_partitions(checkpoint)},
    )
    return take(checkpoint, open_storage(f"{directory}/{name}"), metadata=metadata, sinks=sinks)


def leave(storage: Storage, sinks: Mapping[str, Any], path: str, *, check: Callable[[], None]) -> None:
    """Note that a job ended with a savepoint, which has all of it, and remove what its sinks carried hidden.

    Args:
        storage: the job's checkpoint folder.
        sinks: as this job owns them.
        path: the savepoint.
        check: raises if a newer driver has taken over.
    """
    storage.create_exclusive(LEFT, json.dumps({"v": 1, "savepoint": path}).encode() + b"\n")
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
    try:
        return str(json.loads(storage.read(LEFT))["savepoint"])
    except (FileNotFoundError, NotADirectoryError):
        return None


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


def _mark(storage: Storage, mark: Mapping[str, Any]) -> bool:
    """Note that a restore begins, unless a job has begun here; return whether it may."""
    if read_identity(storage) is not None and left(storage) is None:
        return False
    return storage.create_exclusive(RESTORING, json.dumps(mark).encode() + b"\n")


def begin(
    plan: Plan,
    checkpoint: Storage,
    beginning: Beginning,
    *,
    clock: Clock,
    say: Callable[[str], None],
    partitions: int | None = None,
    rescale: Callable[[Rescaling], int] | None = None,
) -> Metadata:
    """Make a job's empty checkpoint folder that of one which goes on from a savepoint.

    Args:
        plan: the job's.
        checkpoint: the folder.
        beginning: the savepoint, and how to take it.
        clock: the time.
        say: told what was restored.
        partitions: in how many partitions state is wanted; None = as it is.
        rescale: brings the state in the folder there and returns Spark's newest batch.

    Raises:
        DefinitionError: the savepoint is damaged or does not fit; nothing was touched.
    """
    savepoint = open_storage(beginning.path)
    stateful = any(o.kind == "stateful" for o in read_metadata(savepoint).operators.values())
    interrupted = _interrupted(checkpoint)
    # The id of a restore that was interrupted: what it left half done is this job's to remove.
    job_id = new_job_id() if interrupted is None else str(interrupted["job_id"])
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
    rescaling = None if rescale is None else plan_rescaling(savepoint, partitions)
    lock = DriverLock.acquire(checkpoint, clock=clock)
    try:
        mark = {"v": 1, "savepoint": beginning.path, "job_id": job_id}
        if _interrupted(checkpoint) != interrupted or (interrupted is None and not _mark(checkpoint, mark)):
            raise DefinitionError(
                f"another process has just begun a job in {checkpoint.root}",
                next="give this one another checkpoint_dir",
            )
        hit(SavepointFailpoint.RESTORE_BEGUN)
        if (before := read_identity(checkpoint)) is not None and before.job_id != job_id:
            # It left all to a savepoint; if it was killed before it could tidy up, nobody else would.
            of_it = {n: bound(sink, job_id=before.job_id, sink=n) for n, sink in plan.sinks.items()}
            _sweep(of_it, lambda: None)
        restore(
            restoring,
            checkpoint,
            job_id=job_id,
            sinks=sinks,
            newer=beginning.newer,
            now_ms=clock.now_ms(),
            rescale=None if rescale is None or rescaling is None else partial(rescale, rescaling),
        )
        if beginning.claim == "CLAIM":
            claim(checkpoint, savepoint.root)
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
    return restoring.metadata
