"""A job that begins with a savepoint: what goes into the checkpoint folder and the sinks before it runs.

Everything is compared before anything is touched, and a beginning that was killed anywhere is begun again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.epoch import DriverLock
from poundlock.checkpoint.identity import new_job_id, open_identity, read_identity
from poundlock.checkpoint.portable import NewerOutput
from poundlock.driver.savepoints.handover import (
    interrupted_restore,
    left,
    left_by,
    mark_restore,
    refuse_left,
    settle_restore,
)
from poundlock.errors import DefinitionError
from poundlock.failpoints import SavepointFailpoint, hit
from poundlock.job import Job
from poundlock.plan.plan import Plan
from poundlock.savepoint.inspection import pending
from poundlock.savepoint.metadata import Metadata
from poundlock.savepoint.operator_ids import operators
from poundlock.savepoint.restore import ClaimMode, check, claim, restore
from poundlock.storage import Storage, open_storage
from poundlock.values import Clock


@dataclass(frozen=True, slots=True)
class Beginning:
    """The savepoint a job begins with."""

    path: str
    allow_non_restored: bool = False  # whether what the job has no operator for may be left behind
    newer: NewerOutput = "refuse"
    # whose it is afterwards: the user's, or the job's, which deletes it at its first checkpoint
    claim: ClaimMode = "NO_CLAIM"
    # 32 hex digits that the job gets; None = new ones. Where a job of this id is in the checkpoint folder already, it has
    # begun before, and goes on from its checkpoint.
    job_id: str | None = None
    named: str | None = None
    # the ids that operators with state have in the job, by those they have in it
    renamed: Mapping[str, str] = field(default_factory=dict)


def begin(plan: Plan, checkpoint: Storage, beginning: Beginning, *, clock: Clock, say: Callable[[str], None]) -> None:
    """Make a job's empty checkpoint folder that of one which goes on from a savepoint.

    Raises:
        DefinitionError: the savepoint is damaged or does not fit; nothing was touched.
        TransientError: a sink's system, which has to be asked for newer output, is away; nothing was touched.
    """
    if has_begun(checkpoint, beginning, plan.job, say=say):
        return
    savepoint = open_storage(beginning.path)
    interrupted = interrupted_restore(checkpoint)
    # The id of a restore that was interrupted: what it left half done is this job's to remove.
    job_id = beginning.job_id or (new_job_id() if interrupted is None else str(interrupted.job_id))
    sinks = {name: bound(sink, job_id=job_id, sink=name) for name, sink in plan.sinks.items()}
    restoring = check(
        savepoint,
        checkpoint,
        job=plan.job.name,
        operators=operators(plan),
        sinks=sinks,
        sources=plan.sources,
        allow_non_restored=beginning.allow_non_restored,
        newer=beginning.newer,
        renamed=beginning.renamed,
        replace=interrupted is not None or left(checkpoint) is not None,
    )
    with DriverLock.acquire(checkpoint, clock=clock):
        if not mark_restore(plan, checkpoint, beginning.named or beginning.path, job_id, interrupted):
            raise DefinitionError(
                f"another process has just begun a job in {checkpoint.root}",
                next="give this one another checkpoint_dir",
            )
        hit(SavepointFailpoint.RESTORE_BEGUN)
        restore(restoring, checkpoint, job_id=job_id, sinks=sinks, newer=beginning.newer, now_ms=clock.now_ms())
        if beginning.claim == "CLAIM":
            claim(checkpoint, savepoint.root)
        open_identity(checkpoint, name=plan.job.name, clock=clock, job_id=job_id)
        hit(SavepointFailpoint.RESTORE_IDENTIFIED)
        settle_restore(checkpoint)
    say(f"Restored from savepoint {beginning.path} (checkpoint {restoring.metadata.decision.checkpoint})")
    if restoring.metadata.job != plan.job.name:
        say(f"The job was called {restoring.metadata.job} in it and is {plan.job.name} now")
    for old, new in beginning.renamed.items():
        say(f"State of {old} is {new}'s")
    for name in restoring.dropped:
        say(f"Not restored: {restoring.metadata.operators[name].kind} {name}{_waited(restoring.metadata, name)}")
    for name, operator in operators(plan).items():
        if operator.kind == "source" and name not in restoring.metadata.operators:
            say(f"Not in the savepoint: source {name}; it begins where it is set to start")
    for line in restoring.unseen:
        say(f"Not looked at: {line}")


def _waited(metadata: Metadata, name: str) -> str:
    """Say how much data waited in a sink; it stays in the savepoint."""
    rows = sum(file.rows for file in pending(metadata).get(name, ()))
    return f", and {rows:,} rows that waited in it" if rows else ""


def has_begun(checkpoint: Storage, beginning: Beginning, job: Job, *, say: Callable[[str], None]) -> bool:
    """Return whether the job that is to begin has done so before; mend what a kill just behind its last step left.

    Raises:
        DefinitionError: that job has ended with a savepoint since.
    """
    identity = None if beginning.job_id is None else read_identity(checkpoint)
    if identity is None or identity.job_id != beginning.job_id:
        return False
    before = left_by(checkpoint)
    if before is not None and before.job_id == identity.job_id:
        refuse_left(checkpoint, job.script, job.command)
    settle_restore(checkpoint)
    say(f"Begun with savepoint {beginning.named or beginning.path} before; going on from the checkpoint")
    return True
