"""A running job's savepoints, and a job that begins with one: what of the plan, the checkpoint and Spark goes in and comes out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.identity import Identity, new_job_id, open_identity
from poundlock.checkpoint.participant import Inspectable, bound
from poundlock.checkpoint.portable import NewerOutput, Portable
from poundlock.errors import DefinitionError
from poundlock.plan.plan import Plan
from poundlock.runtime.partitions import Rescaling, plan_rescaling, state_partitions
from poundlock.savepoint.claim import ClaimMode, claim
from poundlock.savepoint.metadata import Metadata, Operator, new_name, read_metadata
from poundlock.savepoint.restore import check, restore
from poundlock.savepoint.take import Cut, take
from poundlock.storage import Storage, open_storage
from poundlock.stream.nodes import ApplyNode, WindowNode, walk
from poundlock.values import Clock
from poundlock.versions import version_of

__all__ = ["Beginning", "begin", "cut", "leave", "left", "operators", "refuse_left"]

LEFT = "savepoint.json"


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


def operators(plan: Plan, *, stateful: bool) -> dict[str, Operator]:
    """Return the operators a savepoint can hold something of, by id.

    Args:
        plan: the job's.
        stateful: whether Spark keeps state for it; only then can a DataFrame function be known to have some.
    """
    found = {name: Operator("source") for name in plan.sources}
    found |= {name: Operator("sink") for name in plan.sinks}
    for node in walk(list(plan.job.graph())):
        if isinstance(node, WindowNode) or (stateful and isinstance(node, ApplyNode)):
            found[node.id] = Operator("stateful")
    return found


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
        spark={**spark, "named": plan.named, "shuffle_partitions": state_partitions(checkpoint)},
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
    carrying = [sink for sink in sinks.values() if isinstance(sink, Portable)]
    for sink in carrying:
        sweep: Any = getattr(sink, "sweep")  # noqa: B009 - every participant has it
        sweep({}, remove=True, check=check)


def left(storage: Storage) -> str | None:
    """Return the savepoint with which the job of a checkpoint folder ended, None if it did not end with one."""
    try:
        return str(json.loads(storage.read(LEFT))["savepoint"])
    except (FileNotFoundError, NotADirectoryError):
        return None


def refuse_left(storage: Storage) -> None:
    """Raise DefinitionError if the job of a checkpoint folder ended with a savepoint: its data went there."""
    if (path := left(storage)) is not None:
        raise DefinitionError(
            f"the job of {storage.root} ended with the savepoint {path}",
            next=f"go on from it: poundlock run -s {path} JOB.PY; or begin anew in another checkpoint_dir",
        )


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
    job_id = new_job_id()
    sinks = {name: bound(sink, job_id=job_id, sink=name) for name, sink in plan.sinks.items()}
    restoring = check(
        savepoint,
        checkpoint,
        job=plan.job.name,
        operators=operators(plan, stateful=stateful),
        sinks=sinks,
        allow_non_restored=beginning.allow_non_restored,
        newer=beginning.newer,
        replace=left(checkpoint) is not None,
    )
    if restoring.metadata.spark.get("named", plan.named) != plan.named:
        raise DefinitionError(
            f"the savepoint {savepoint.root} was taken of a job in which {'no' if plan.named else 'a'} source is read once only",
            next="read each source once in the query, as when it was taken",
        )
    rescaling = None if rescale is None else plan_rescaling(savepoint, partitions)
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
    checkpoint.delete(LEFT)
    say(f"Restored from savepoint {beginning.path} (checkpoint {restoring.metadata.decision.checkpoint})")
    for name in restoring.dropped:
        say(f"Not restored: {restoring.metadata.operators[name].kind} {name}")
    return restoring.metadata
