"""What SIGINT and SIGTERM ask of a job that `run` shows, wherever its driver is.

The first finishes the checkpoint and all pending files, the second stops hard and loses nothing, the third ends the process. CANCEL, which
`poundlock cancel` sends, stands for the first two.
In a container of a cluster nobody asks by signals: there they mean that the container is taken away, and the job goes on in another.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from poundlock.control.cluster_driver import container
from poundlock.control.process_id import CANCEL
from poundlock.driver.progress import StopRequest
from poundlock.job import Job

_STOPS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class Signals:
    """Which signal came last, how many came, and what each of them means."""

    stop: StopRequest
    tell: Callable[[str], None]
    deletes: bool = False
    newest: int | None = None
    count: int = 0

    def ask(self, number: int) -> None:
        """Take a signal, from the system or from the supervisor."""
        cancel = number == CANCEL
        self.newest = number = signal.SIGINT if cancel else number
        self.count = max(self.count + 1, 2) if cancel else self.count + 1
        if self.count == 1:
            self.stop.stop()
            self.tell("stopping: finishing the checkpoint and all pending files; once more to stop hard")
        elif self.count == 2:
            self.stop.cancel()
            self.tell(
                "stopping hard: the checkpoint and pending data are deleted, as checkpoint_retention says"
                if self.deletes
                else "stopping hard: pending data stays hidden for the next start, nothing is lost"
            )
        else:
            os._exit(128 + number)


@contextmanager
def signals_asking(stop: StopRequest, say: Callable[[str], None], job: Job | None = None) -> Iterator[Signals]:
    """Turn signals into requests; put the old handlers back afterwards."""

    def tell(text: str) -> None:
        # A handler interrupts whatever its thread is doing, perhaps printing, which cannot be entered twice.
        threading.Thread(target=say, args=(text,), name="poundlock-signal").start()

    signals = Signals(stop, tell, job is not None and job.checkpoint_retention == "DELETE_ON_CANCELLATION")

    taken_away = container() is not None

    def ask(number: int, _frame: FrameType | None) -> None:
        if taken_away:
            os._exit(128 + number)
        signals.ask(number)

    before = {number: signal.signal(number, ask) for number in (*_STOPS, CANCEL)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            # One that comes too late must not end the process before the job's last word.
            late = number == CANCEL and handler == signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if late else handler)
