"""What went wrong in a job's whole life: how many checkpoints failed and how often it was restarted, kept in its checkpoint folder.

Each driver writes a file of its own, named by its epoch, with the sums up to then; the newest counts, so a driver that was taken over
changes nothing. A restart that nobody could write down, as of a process that was killed, is counted by the epochs: each is one start.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from poundlock.control.control_files import FOLDER, TROUBLE, put
from poundlock.metrics.timeline import FailedCheckpoint
from poundlock.storage import Storage
from poundlock.storage.json_record import parsed

_FILE = re.compile(r"failures-([0-9]+)\.json")
_FORMAT = 1
_KEPT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The failures of a job.

    Args:
        checkpoints: how many checkpoints failed.
        restarts: how often a driver restarted the job.
        newest: the checkpoints that failed last, the newest last.
    """

    job_id: str
    checkpoints: int = 0
    restarts: int = 0
    newest: tuple[FailedCheckpoint, ...] = ()


def read_failures(storage: Storage, job_id: str) -> Failures:
    """Return the failures of a job's whole life; none where nothing is written down, or it cannot be read."""
    with suppress(*TROUBLE):
        epochs = sorted((_epoch(name) for name in storage.names(FOLDER) if _FILE.fullmatch(name)), reverse=True)
        for epoch in epochs:
            with suppress(*TROUBLE):
                known = parsed(Failures)(storage.read(_path(epoch)))
                if known.job_id == job_id:
                    return known
    return Failures(job_id=job_id)


@dataclass(eq=False)
class FailureRecord:
    """Counts the failures in the life of one driver, and writes them down.

    Args:
        epoch: the driver's, which nobody else has.
        warn: takes what is in the way of writing; the job goes on.
    """

    storage: Storage
    epoch: int
    job_id: str
    warn: Callable[[str], None]
    failures: Failures = field(init=False)

    def __post_init__(self) -> None:
        self.failures = read_failures(self.storage, self.job_id)

    def failed(self, checkpoint: FailedCheckpoint) -> None:
        """Count a checkpoint that failed."""
        was = self.failures
        newest = (*was.newest, checkpoint)[-_KEPT:]
        self._write(replace(was, checkpoints=was.checkpoints + 1, newest=newest))

    def restarted(self) -> None:
        """Count a restart."""
        self._write(replace(self.failures, restarts=self.failures.restarts + 1))

    def _write(self, failures: Failures) -> None:
        """Write the sums; idempotent by the epoch in the file's name. Files of earlier drivers are no longer needed then."""
        self.failures = failures
        try:
            put(self.storage, _path(self.epoch), msgspec.json.encode({"v": _FORMAT, **msgspec.to_builtins(failures)}))
            for name in self.storage.names(FOLDER):
                if _FILE.fullmatch(name) and _epoch(name) < self.epoch:
                    self.storage.delete(f"{FOLDER}/{name}")
        except TROUBLE as error:
            self.warn(f"failures cannot be written to {self.storage.root}/{_path(self.epoch)}: {error}")


def _path(epoch: int) -> str:
    return f"{FOLDER}/failures-{epoch}.json"


def _epoch(name: str) -> int:
    known = _FILE.fullmatch(name)
    return int(known[1]) if known else -1
