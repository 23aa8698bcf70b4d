"""The jobs that have ended, read from their checkpoint folders: what a history server shows. Nothing is written, and no job is asked.

A driver leaves its last entry in `control/driver.json`, with its last figures; the ledger beside it has the checkpoints. A folder has the
newest driver's end alone. A checkpoint that was deleted when its job was cancelled keeps the entry, and has no ledger any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from poundlock.control.control_files import DRIVER, TROUBLE
from poundlock.control.driver_status import in_folder
from poundlock.control.registry import JobEntry
from poundlock.driver.failure_record import Failures, read_failures
from poundlock.driver.progress import Progress
from poundlock.errors import PoundlockError
from poundlock.storage import Storage, open_storage


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job that has ended.

    Args:
        folder: its checkpoint folder.
        entry: how it ended: state, times, failure, settings of its start.
        progress: its last figures.
        failures: what went wrong in its whole life.
    """

    folder: str
    entry: JobEntry
    progress: Progress
    failures: Failures

    @property
    def ended_ms(self) -> int:
        """When it ended, ms since the epoch; of one that left no last word, when it last wrote how it goes."""
        return self.entry.ended_ms or self.entry.written_ms or self.entry.started_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """What a checkpoint root has.

    Args:
        jobs: those that have ended, the newest end first.
        running: how many others have a driver.
        unreadable: why a folder cannot be read, by the folder.
    """

    jobs: tuple[EndedJob, ...] = ()
    running: int = 0
    unreadable: Mapping[str, str] = field(default_factory=dict)


def read_history(root: str) -> JobHistory:
    """Return the ended jobs of a checkpoint folder, or of a folder with checkpoint folders in it.

    Raises:
        DefinitionError: it is on a store that is not known, or cannot be opened.
        TransientError, OSError: it cannot be listed.
    """
    storage = open_storage(root)
    jobs: list[EndedJob] = []
    running = 0
    unreadable: dict[str, str] = {}
    own = _is_checkpoint(storage)
    folders = [storage.root] if own else [f"{storage.root}/{name}" for name in sorted(storage.names("."))]
    for folder in folders:
        try:
            inner = open_storage(folder)
            if not _is_checkpoint(inner):
                continue
            entry = in_folder(inner)
            if entry is None:
                unreadable[folder] = f"{DRIVER} is damaged, or of a version that is not known"
            elif entry.ended:
                jobs.append(_ended(inner, entry))
            else:
                running += 1
        except TROUBLE as error:
            unreadable[folder] = error.what if isinstance(error, PoundlockError) else str(error)
    jobs.sort(key=lambda job: job.ended_ms, reverse=True)
    return JobHistory(jobs=tuple(jobs), running=running, unreadable=unreadable)


def _is_checkpoint(storage: Storage) -> bool:
    """Return whether a driver has written how it goes into a folder."""
    return "driver.json" in storage.names("control")


def _ended(storage: Storage, entry: JobEntry) -> EndedJob:
    return EndedJob(
        folder=storage.root,
        entry=entry,
        progress=Progress.of({**entry.progress, "state": entry.state}),
        failures=read_failures(storage, entry.job_id),
    )
