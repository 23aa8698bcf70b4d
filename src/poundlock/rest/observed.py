"""A running job as REST sees it: its newest progress, when its state changed, why it was restarted, and how to ask it for things.

It is told by the driver's threads and looked at by the server's; what is handed out are values that do not change.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poundlock.control.registry import ENDED
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.rest.figures import Figures

_TROUBLES = 20


def now_ms() -> int:
    """Return ms since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a job was restarted: what, and when in ms since the epoch."""

    what: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """One source or sink of the job.

    Args:
        name: its operator id.
        kind: "source" or "sink".
        description: what it is, such as "FileSink".
    """

    name: str
    kind: str
    description: str


@dataclass(kw_only=True)
class Observed:
    """A job and its way of being asked.

    Args:
        job_id, name: which job.
        started_ms: when its process started, ms since the epoch.
        parallelism: number of tasks; None = the cores of the master.
        settings: what is set, without secrets.
        vertices: its sources and sinks.
        figures: its ledger; None before there is one.
        stop: how it is stopped.
        requests: how it is asked for checkpoints and savepoints.
        process_restarts: how often its supervisor has started the process again; None without a supervisor.
        earlier: why the processes before this one ended, the newest last.
    """

    job_id: str
    name: str
    started_ms: int
    parallelism: int | None
    settings: Mapping[str, Any]
    vertices: Sequence[Vertex]
    figures: Figures
    stop: StopRequest
    requests: Requests
    process_restarts: int | None = None
    earlier: Sequence[Trouble] = ()
    progress: Progress = field(default_factory=lambda: Progress("INITIALIZING"))
    _since: dict[str, int] = field(default_factory=dict)
    _troubles: deque[Trouble] = field(default_factory=lambda: deque(maxlen=_TROUBLES))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._troubles.extend(self.earlier)

    def update(self, progress: Progress) -> None:
        """Be told how the job goes."""
        with self._lock:
            if progress.state != self.progress.state or not self._since:
                self._since[progress.state] = now_ms()
            if progress.restarts > self.progress.restarts:
                self._troubles.append(Trouble(what=progress.message, at_ms=now_ms()))
            self.progress = progress
        if progress.checkpoint is not None and progress.last_ms is not None:
            self.figures.took(progress.checkpoint, progress.last_ms)

    @property
    def state(self) -> str:
        """Its state in Flink's words; one that was asked to end and has not yet is CANCELLING, or RUNNING still."""
        state = self.progress.state
        return "CANCELLING" if self.stop.canceling and state not in ENDED else state

    @property
    def ended(self) -> bool:
        """Whether it has ended, and only its server is left for a moment."""
        return self.progress.state in ENDED

    def since(self) -> Mapping[str, int]:
        """Return when each state was last entered, ms since the epoch."""
        with self._lock:
            return dict(self._since)

    def troubles(self) -> Sequence[Trouble]:
        """Return why it was restarted, the newest first."""
        with self._lock:
            return tuple(reversed(self._troubles))
