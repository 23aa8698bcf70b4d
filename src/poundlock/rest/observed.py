"""A job as REST sees it: its entry, how it is set up, its ledger's figures, and how to ask it for things; and REST of a job that nobody
reaches over the network, answered from its checkpoint folder, through which it is asked as well.

It is updated by the driver's threads and read by the server's; what is handed out are values that do not change. What comes from a
folder is what its driver last wrote; a second or some old, never made up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.control.channel import ControlChannel, Forwarding
from poundlock.control.control_files import SETUP, TROUBLE
from poundlock.control.driver_status import in_folder
from poundlock.control.registry import ENDED, JobEntry, now_ms
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.errors import PoundlockError
from poundlock.plan.graph import JobGraph
from poundlock.rest.figures import Figures
from poundlock.rest.trend import Trend
from poundlock.storage import Storage
from poundlock.storage.json_record import ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """One source or sink of the job: which of the two is its kind, and its description is such as "FileSink"."""

    name: str
    kind: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSetup:
    """What does not change while a job runs: settings without secrets; no parallelism means the cores of the master.

    Args:
        restart_strategy: the name of the one that holds, by the settings or the job; None in what earlier versions wrote.
    """

    parallelism: int | None = None
    restart_strategy: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    vertices: Sequence[Vertex] = ()
    graph: JobGraph = field(default_factory=JobGraph)


@dataclass(kw_only=True)
class Observed:
    """A job and its way of being asked."""

    entry: JobEntry
    setup: JobSetup
    figures: Figures
    stop: StopRequest
    requests: Requests
    trend: Trend = field(default_factory=Trend)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def update(self, progress: Progress) -> None:
        """Take how the job goes."""
        self.trend.add(progress, now_ms())
        with self._lock:
            self.entry = self.entry.after(progress)
        if progress.checkpoint is not None and progress.last_ms is not None:
            self.figures.took(progress.checkpoint, progress.last_ms)
        if progress.timeline is not None and progress.timeline.failure is None:
            self.figures.went(progress.timeline)

    @property
    def job_id(self) -> str:
        return self.entry.job_id

    @property
    def progress(self) -> Progress:
        """The newest; its state is that of the job."""
        return Progress.of({**self.entry.progress, "state": self.entry.state})

    @property
    def state(self) -> str:
        """Its state in Flink's words; one that was asked to end and has not yet is CANCELLING, or RUNNING still."""
        state = self.entry.state
        return "CANCELLING" if self.stop.canceling and state not in ENDED else state

    @property
    def ended(self) -> bool:
        """Whether it has ended, and only its server is left for a moment."""
        return self.entry.ended


_LOOK_S = 1.0


class Gateway:
    """Follows the newest driver of a checkpoint folder."""

    def __init__(self, storage: Storage, entry: JobEntry, channel: Callable[[JobEntry], ControlChannel]) -> None:
        self._storage = storage
        self._channel = channel
        self.observed = observed_in(storage, entry)
        self._forwarding = self._begin(entry)

    def run(self, ended: threading.Event) -> None:
        """Follow until `ended` is set; a job that ended may begin again."""
        while not ended.wait(_LOOK_S):
            with suppress(*TROUBLE):
                self.look()
            self.hand_on()

    def hand_on(self) -> None:
        """Hand on to the driver what is new of what was asked; returns at once."""
        self._forwarding.hand_on()

    def look(self) -> None:
        """Take how the job goes from its folder. Raises one of TROUBLE where it cannot be read."""
        now, job = in_folder(self._storage), self.observed
        if now is None:
            return
        if now.driver != job.entry.driver:
            job.requests.close()
            job.trend.began_again()
            job.stop, job.requests = StopRequest(), Requests()
            job.setup, job.figures = _setup(self._storage), Figures(Ledger(self._storage), now.started_ms)
            self._forwarding = self._begin(now)
        elif now.ended and not job.ended:
            failed = now.failure
            job.requests.close(
                None if failed is None else PoundlockError(failed[0], next=failed[1], code=now.failure_code)
            )
        job.entry = now
        if not now.ended:
            job.trend.add(job.progress, now_ms())

    def _begin(self, entry: JobEntry) -> Forwarding:
        return Forwarding(entry, self._channel(entry), self.observed.stop, self.observed.requests)


def observed_in(storage: Storage, entry: JobEntry) -> Observed:
    """Return a job as its checkpoint folder shows it; of one that has ended, as it was at its end."""
    return Observed(
        entry=entry,
        setup=_setup(storage),
        figures=Figures(Ledger(storage), entry.started_ms),
        stop=StopRequest(),
        requests=Requests(),
    )


def _setup(storage: Storage) -> JobSetup:
    with suppress(*TROUBLE):
        return msgspec.json.decode(storage.read(SETUP), type=ready(JobSetup))
    return JobSetup()
