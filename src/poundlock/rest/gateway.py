"""REST of a job that nobody reaches over the network: answered from its checkpoint folder, through which it is asked as well.

The figures are those of the ledger, and how the job goes is what its driver last wrote; a second or some old, never made up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.control.channel import ControlChannel, Forwarding
from poundlock.control.control_files import SETUP, TROUBLE
from poundlock.control.driver_status import in_folder
from poundlock.control.registry import JobEntry
from poundlock.driver.progress import StopRequest
from poundlock.driver.requests import Requests
from poundlock.errors import PoundlockError
from poundlock.rest.figures import Figures
from poundlock.rest.observed import JobSetup, Observed
from poundlock.storage import Storage

_LOOK_S = 1.0


class Gateway:
    """Follows the newest driver of a checkpoint folder."""

    def __init__(self, storage: Storage, entry: JobEntry, channel: Callable[[JobEntry], ControlChannel]) -> None:
        self._storage = storage
        self._channel = channel
        ledger = Ledger(storage)
        self.observed = Observed(
            entry=entry,
            setup=self._setup(),
            figures=Figures(ledger, entry.started_ms),
            stop=StopRequest(),
            requests=Requests(),
        )
        self._forwarding = self._begin(entry)

    def run(self, ended: threading.Event) -> None:
        """Follow until `ended` is set; a job that ended may begin again."""
        while not ended.wait(_LOOK_S):
            with suppress(*TROUBLE):
                self._look()
            self._forwarding.hand_on()

    def _look(self) -> None:
        now, job = in_folder(self._storage), self.observed
        if now is None:
            return
        if now.driver != job.entry.driver:
            job.requests.close()
            job.stop, job.requests = StopRequest(), Requests()
            job.setup, job.figures = self._setup(), Figures(Ledger(self._storage), now.started_ms)
            self._forwarding = self._begin(now)
        elif now.ended and not job.ended:
            job.requests.close(None if now.failure is None else PoundlockError(now.failure[0], next=now.failure[1]))
        job.entry = now

    def _begin(self, entry: JobEntry) -> Forwarding:
        return Forwarding(entry, self._channel(entry), self.observed.stop, self.observed.requests)

    def _setup(self) -> JobSetup:
        with suppress(*TROUBLE):
            return msgspec.json.decode(self._storage.read(SETUP), type=JobSetup)
        return JobSetup()
