"""How a query serves what is asked of it: who waits for the next checkpoint, and when it may begin at once.

A trigger is completed only after a checkpoint that began later than it was asked for is decided and committed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from poundlock.errors import PoundlockError
from poundlock.runtime.requests import Requests, Trigger

__all__ = ["Serving"]


class Serving:
    """The triggers that one life of the query has taken.

    Args:
        requests: where they come from.
        ended: set when the query is to end; nobody is kept waiting after that.
    """

    def __init__(self, requests: Requests, ended: threading.Event) -> None:
        self.nudged = False
        """Whether Spark was made to look for data since the newest trigger."""
        self._requests = requests
        self._ended = ended
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._asked: list[Trigger] = []

    @property
    def asked(self) -> bool:
        """Whether a checkpoint is wanted now."""
        return bool(self._asked)

    def take(self) -> Trigger | None:
        """Return the next trigger nobody has taken, None if there is none."""
        return self._requests.take()

    def checkpoint_wanted(self, trigger: Trigger) -> None:
        """Have the next checkpoint begin at once, and complete this trigger."""
        with self._lock:
            self._asked.append(trigger)
        self.nudged = False
        self._wake.set()

    def begin(self) -> Sequence[Trigger]:
        """Return who waits for the checkpoint that begins now."""
        self._wake.clear()
        with self._lock:
            return tuple(self._asked)

    def done(self, served: Sequence[Trigger], checkpoint: int) -> None:
        """Complete those a checkpoint was for; -1 = the job has read nothing yet, so there is none to name."""
        with self._lock:
            self._asked = [trigger for trigger in self._asked if trigger not in served]
        for trigger in served:
            if checkpoint >= 0:
                trigger.complete(checkpoint)
            else:
                trigger.fail(PoundlockError("the job has read nothing yet", next="ask again when there is some input"))

    def pause(self, seconds: float) -> None:
        """Wait until a checkpoint is wanted or the query is to end, at most so long."""
        if not self._ended.is_set():
            self._wake.wait(seconds)

    def wake(self) -> None:
        """End a pause: the query is to end."""
        self._wake.set()

    def requeue(self) -> None:
        """Leave what could not be served to the next life of the query."""
        with self._lock:
            left, self._asked = self._asked, []
        for trigger in reversed(left):
            self._requests.requeue(trigger)
