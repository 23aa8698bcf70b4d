"""What of a running job goes into a savepoint: its plan, its decision and its checkpoint.

Called at a checkpoint's border, so that all of it is of one moment.
"""

from __future__ import annotations

import os
from dataclasses import replace

from poundlock.checkpoint.capabilities import Inspectable, bound
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.identity import Identity
from poundlock.errors import DefinitionError
from poundlock.plan.plan import Plan
from poundlock.savepoint.metadata import metadata_of, new_name
from poundlock.savepoint.operator_ids import operators
from poundlock.savepoint.take import Cut, take
from poundlock.storage import LocalStorage, Storage, open_checkpoint, open_storage
from poundlock.values import Clock


def _within(storage: Storage, directory: str) -> bool:
    given, own = open_checkpoint(directory, "savepoint"), storage.root
    if type(given) is not type(storage):
        return False
    inner = given.root
    if isinstance(storage, LocalStorage):
        inner, own = os.path.realpath(inner), os.path.realpath(own)
    return os.path.join(inner, "").startswith(os.path.join(own, ""))


def cut(
    plan: Plan,
    checkpoint: Storage,
    coordinator: Coordinator,
    identity: Identity,
    directory: str,
    *,
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
    if retained is None and _within(checkpoint, directory):
        raise DefinitionError(
            f"{directory} is in the job's own checkpoint folder {checkpoint.root}, where a restore or a cancel removes things",
            next="give a folder outside it",
        )
    name = retained or new_name(identity.job_id)
    sinks = {n: bound(sink, job_id=identity.job_id, sink=n) for n, sink in plan.sinks.items()}
    c = coordinator
    metadata = metadata_of(
        identity,
        name,
        replace(
            c.newest, sources=c.sources, watermarks=c.watermarks, state=None if c.state is None else c.state.snapshot()
        ),
        operators=operators(plan),
        sinks={n: sink.describe_json() for n, sink in sinks.items() if isinstance(sink, Inspectable)},
        clock=clock,
    )
    made = open_storage(f"{directory}/{name}")
    return take(checkpoint, made, metadata=metadata, sinks=sinks, linked=retained is not None)
