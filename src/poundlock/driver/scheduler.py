"""When the next checkpoint may begin, and who waits for one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from poundlock.driver.requests import Requests, Trigger
from poundlock.errors import PoundlockError

_LOOK_S = 0.05  # at the least between two looks for data


@dataclass
class CheckpointScheduler:
    """Keeps the interval and the pause between checkpoints. Used by the driver's main thread alone.

    Args:
        interval: time between the beginnings of two checkpoints; also how often an idle job looks for data.
        min_pause: least time between the end of a checkpoint and the beginning of the next.
    """

    interval: timedelta
    min_pause: timedelta
    requests: Requests
    now: Callable[[], float] = time.monotonic
    _due: float = 0.0
    _pending: list[Trigger] = field(default_factory=list)
    _served: list[Trigger] = field(default_factory=list)  # by checkpoints that are under way

    def request(self, trigger: Trigger) -> None:
        """Have the next checkpoint begin at once, and complete this trigger with it."""
        self._pending.append(trigger)

    @property
    def requested(self) -> bool:
        """Whether somebody waits for a checkpoint."""
        return bool(self._pending)

    @property
    def due(self) -> bool:
        """Whether the next checkpoint may begin now."""
        return self.requested or self.now() >= self._due

    @property
    def wait_s(self) -> float:
        """How long until the next may begin, seconds."""
        return 0.0 if self.requested else max(0.0, self._due - self.now())

    @property
    def pauses(self) -> bool:
        """Whether there is a pause between two checkpoints, so that none begins before the one before has ended."""
        return bool(self.min_pause)

    def take(self) -> Sequence[Trigger]:
        """Return who waits for the checkpoint that begins now."""
        taken, self._pending = tuple(self._pending), []
        self._served += taken
        return taken

    def put_back(self, taken: Sequence[Trigger]) -> None:
        """Have those who were to be served by a checkpoint that is not completed be served by the next."""
        self._served = [trigger for trigger in self._served if trigger not in taken]
        self._pending = [*taken, *self._pending]

    def decided(self, began: float) -> None:
        """Take note that a checkpoint is decided which began then, by `now`."""
        self._due = began + self.interval.total_seconds()

    def completed(self, began: float, served: Sequence[Trigger], checkpoint: int) -> None:
        """Take note of a checkpoint that was decided and committed."""
        end = self.now() + self.min_pause.total_seconds() if self.pauses else 0.0
        self._due = max(self._due, began + self.interval.total_seconds(), end)
        self._serve(served, checkpoint)

    def nothing_to_do(self, served: Sequence[Trigger], newest: int) -> None:
        """Take note that there was nothing to take a checkpoint for.

        Args:
            newest: the newest decided checkpoint, -1 if there is none.
        """
        self._due = self.now() + max(self.interval.total_seconds(), _LOOK_S)
        self._serve(served, newest)

    def _serve(self, served: Sequence[Trigger], checkpoint: int) -> None:
        self._served = [trigger for trigger in self._served if trigger not in served]
        for trigger in served:
            if checkpoint >= 0:
                trigger.complete(checkpoint)
            else:
                trigger.fail(PoundlockError("the job has read nothing yet", next="ask again when there is some input"))

    def release(self) -> None:
        """Leave what could not be served to the next attempt."""
        for trigger in reversed([*self._served, *self._pending]):
            self.requests.requeue(trigger)
        self._served, self._pending = [], []
