"""`poundlock list --root`: the jobs whose checkpoint folders lie below one folder, whoever runs them and wherever.

What is shown is what they wrote there: their newest decision, and the word that a driver writes every few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poundlock.errors import DefinitionError, PoundlockError

if TYPE_CHECKING:
    from poundlock.checkpoint.identity import Identity
    from poundlock.control.checkpoint_root import CheckpointFolder
    from poundlock.control.registry import JobEntry
    from poundlock.storage import Storage

UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, kw_only=True)
class FolderJob:
    """A job as its checkpoint folder has it.

    Args:
        entry: of its newest driver; None = none has written one.
        checkpoint: the newest; None = there is none, or it cannot be read.
        decided_ms: when its newest decision was made, of a start too.
        trouble: why something cannot be read, None if all can.
    """

    folder: str
    job_id: str
    name: str
    entry: JobEntry | None
    checkpoint: int | None
    decided_ms: int | None
    trouble: str | None

    @property
    def state(self) -> str:
        return UNKNOWN if self.entry is None else self.entry.state

    @property
    def ended(self) -> bool:
        return self.entry is None or self.entry.ended

    def to_json(self, now_ms: int) -> dict[str, Any]:
        """Return it as plain data: ages are in ms."""
        entry = self.entry
        written = None if entry is None else entry.written_ms
        return {
            "folder": self.folder,
            "job_id": self.job_id,
            "name": self.name,
            "state": self.state,
            "host": None if entry is None else entry.host,
            "application": None if entry is None else entry.application,
            "started_ms": None if entry is None else entry.started_ms,
            "checkpoint": self.checkpoint,
            "decided_ms": self.decided_ms,
            "decision_age_ms": None if self.decided_ms is None else max(0, now_ms - self.decided_ms),
            "written_ms": written,
            "written_age_ms": None if written is None else max(0, now_ms - written),
            "trouble": self.trouble,
        }

    def status_text(self, now_ms: int) -> str:
        """Return what stands behind its name: where it runs, its newest decision, and how old its driver's word is."""
        parts = []
        if self.entry is not None:
            parts.append(f"on {self.entry.application or self.entry.host}")
        if self.decided_ms is not None:
            newest = "no checkpoint yet, begun" if self.checkpoint is None else f"checkpoint {self.checkpoint} decided"
            parts.append(f"{newest} {_ago(now_ms - self.decided_ms)}")
        if self.entry is not None and self.entry.written_ms is not None:
            parts.append(f"its driver wrote {_ago(now_ms - self.entry.written_ms)}")
        if self.trouble is not None:
            parts.append(self.trouble)
        return ", ".join(parts)


def jobs_below(root: str) -> list[FolderJob]:
    """Return the jobs below a folder, by name.

    Raises:
        DefinitionError: there are none.
    """
    from poundlock.control.checkpoint_root import checkpoint_folders
    from poundlock.storage import open_storage

    jobs = [_job_in(folder) for folder in checkpoint_folders(open_storage(root))]
    if not jobs:
        raise DefinitionError(
            f"no job has a checkpoint folder in {root}", next="name the folder that the jobs' checkpoint folders lie in"
        )
    return sorted(jobs, key=lambda job: (job.name, job.folder))


def _job_in(folder: CheckpointFolder) -> FolderJob:
    if folder.identity is not None:
        return _job(folder.storage, folder.identity)
    root = folder.storage.root
    trouble = None if folder.trouble is None else _line(folder.trouble)
    return FolderJob(
        folder=root, job_id="", name=root.rpartition("/")[2], entry=None, checkpoint=None, decided_ms=None,
        trouble=trouble,
    )  # fmt: skip


def _job(storage: Storage, identity: Identity) -> FolderJob:
    from poundlock.checkpoint.ledger.ledger import Ledger
    from poundlock.control.control_files import TROUBLE
    from poundlock.control.driver_status import in_folder

    entry = decision = trouble = None
    try:
        entry = in_folder(storage)
        decision = Ledger(storage).newest()
    except TROUBLE as error:
        trouble = _line(error)
    return FolderJob(
        folder=storage.root,
        job_id=identity.job_id,
        name=identity.name,
        entry=entry,
        checkpoint=None if decision is None or decision.checkpoint < 0 else decision.checkpoint,
        decided_ms=None if decision is None else decision.time_ms,
        trouble=trouble,
    )


def _line(error: Exception) -> str:
    return error.what if isinstance(error, PoundlockError) else str(error)


def _ago(ms: int) -> str:
    """Return an age for people: "90 s ago", "3 min ago"."""
    seconds = max(0, ms) // 1000
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // divisor} {unit} ago"
    return f"{seconds // 86_400} d ago"
