"""The savepoint that an INSERT begins with, as settings say, and whether it can go on from it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from poundlock.checkpoint.identity import read_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.portable import NewerOutput
from poundlock.config import Settings
from poundlock.driver.driver import checkpoint_dir
from poundlock.driver.savepoints.restore import Beginning
from poundlock.errors import DefinitionError
from poundlock.job import Job
from poundlock.plan.plan import make_plan
from poundlock.savepoint.metadata import METADATA, read_metadata
from poundlock.savepoint.operator_ids import WaysOut, compare, operators
from poundlock.sql.settings import CLAIM_MODE, IGNORE_UNCLAIMED, RECOVERY_PATH
from poundlock.storage import Storage, open_checkpoint, open_storage


def beginning_of(
    session: Mapping[str, Any], job: Job, settings: Settings, newer: NewerOutput = "refuse"
) -> Beginning | None:
    """Return the savepoint that a job begins with; None where settings name none.

    A job that has begun with it before goes on from its checkpoint: it is given the id that it has.

    Args:
        session: the settings of the script.
        newer: what becomes of output that was finished after the savepoint.

    Raises:
        DefinitionError: its folder cannot be one.
    """
    path = session.get(RECOVERY_PATH)
    if path is None:
        return None
    root = open_checkpoint(path, "savepoint").root
    return Beginning(
        root,
        allow_non_restored=session.get(IGNORE_UNCLAIMED, False),
        newer=newer,
        claim=session.get(CLAIM_MODE, "NO_CLAIM"),
        job_id=_begun_with(open_storage(checkpoint_dir(job, settings)), root),
    )


def _begun_with(checkpoint: Storage, savepoint: str) -> str | None:
    """Return the id of the job in a checkpoint folder if it began with a savepoint, by what its first record says."""
    identity = read_identity(checkpoint)
    if identity is None:
        return None
    ledger = Ledger(checkpoint)
    newest = ledger.newest()
    if newest is None:
        return None
    with suppress(DefinitionError, OSError):
        restored = ledger.read(ledger.first()).restored or {}
        of_checkpoint = read_identity(open_storage(savepoint))
        known = {restored.get("path"), restored.get("savepoint")}
        if savepoint in known or (of_checkpoint is not None and of_checkpoint.job_id == restored.get("job_id")):
            return identity.job_id
    return None


_WAYS = WaysOut(
    missing=f"write the statement as it was; or SET '{IGNORE_UNCLAIMED}' = 'true' to leave such state behind",
    changed=f"write the statement as it was, or RESET '{RECOVERY_PATH}' to begin without its state",
)


def refuse_unfit(job: Job, beginning: Beginning) -> None:
    """Refuse a savepoint that does not fit a job, before anything of its script runs; a checkpoint is compared when the job begins.

    Raises:
        DefinitionError: it is none, it is damaged, or the job has no operator for what it has, or one of another kind.
    """
    savepoint = open_storage(beginning.path)
    if savepoint.stat(METADATA) is None and read_identity(savepoint) is not None:
        return
    saved = read_metadata(savepoint)
    now = operators(make_plan(job))
    compare(savepoint.root, saved.operators, now, allow_non_restored=beginning.allow_non_restored, ways=_WAYS)
