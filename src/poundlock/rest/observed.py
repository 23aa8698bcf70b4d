"""A running job as REST sees it: its entry, how it is set up, its ledger's figures, and how to ask it for things.

It is told by the driver's threads and looked at by the server's; what is handed out are values that do not change.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poundlock.control.registry import ENDED, JobEntry
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.rest.figures import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """One source or sink of the job: which of the two is its kind, and its description is such as "FileSink"."""

    name: str
    kind: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSetup:
    """What does not change while a job runs: settings without secrets; no parallelism means the cores of the master."""

    parallelism: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    vertices: Sequence[Vertex] = ()


@dataclass(kw_only=True)
class Observed:
    """A job and its way of being asked."""

    entry: JobEntry
    setup: JobSetup
    figures: Figures
    stop: StopRequest
    requests: Requests
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def update(self, progress: Progress) -> None:
        """Take how the job goes."""
        with self._lock:
            self.entry = self.entry.after(progress)
        if progress.checkpoint is not None and progress.last_ms is not None:
            self.figures.took(progress.checkpoint, progress.last_ms)

    @property
    def job_id(self) -> str:
        return self.entry.job_id

    @property
    def progress(self) -> Progress:
        """The newest; its state is that of the job."""
        known = {name: value for name, value in self.entry.progress.items() if name in Progress.__slots__}
        return Progress(**{**known, "state": self.entry.state})

    @property
    def state(self) -> str:
        """Its state in Flink's words; one that was asked to end and has not yet is CANCELLING, or RUNNING still."""
        state = self.entry.state
        return "CANCELLING" if self.stop.canceling and state not in ENDED else state

    @property
    def ended(self) -> bool:
        """Whether it has ended, and only its server is left for a moment."""
        return self.entry.ended
