"""What others ask of a running job, a checkpoint now or a savepoint, and when the next checkpoint may begin.

It is asked by any thread, and carried out by the driver. A trigger ends once, as completed or as failed, and never changes after that.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from poundlock.errors import PoundlockError
from poundlock.threads import has_ended

Kind = Literal["checkpoint", "savepoint", "stop"]
Then = Literal["go on", "stop", "cancel"]
Status = Literal["IN_PROGRESS", "COMPLETED", "FAILED"]

_KEPT = 100
_LOOK_S = 0.05  # at the least between two looks for data


@dataclass(eq=False, kw_only=True)
class Trigger:
    """One thing that was asked for."""

    kind: Kind  # a checkpoint, a savepoint, or a clean stop without a savepoint
    directory: str | None = None  # where a savepoint goes; None = as the job's settings say
    then: Then = "go on"  # what the job does after a savepoint
    drain: bool = False  # every window is fired and all pending files are finished first
    id: str = field(default_factory=lambda: secrets.token_hex(16))  # 32 hex digits
    _outcome: Future[str | int | None] = field(default_factory=Future, repr=False)

    @property
    def status(self) -> Status:
        """What became of it so far, in Flink's words."""
        if not self._outcome.done():
            return "IN_PROGRESS"
        return "COMPLETED" if self.failure is None else "FAILED"

    @property
    def location(self) -> str | int | None:
        """The savepoint's path, or the checkpoint's number; None unless it is completed."""
        return self._outcome.result() if self.status == "COMPLETED" else None

    @property
    def failure(self) -> PoundlockError | None:
        """Why it failed; None unless it did."""
        error = self._outcome.exception() if self._outcome.done() else None
        assert error is None or isinstance(error, PoundlockError)
        return error

    def complete(self, location: str | int | None = None) -> None:
        """End it well. Does nothing if it has ended."""
        with suppress(InvalidStateError):
            self._outcome.set_result(location)

    def fail(self, error: PoundlockError) -> None:
        """End it with an error. Does nothing if it has ended."""
        with suppress(InvalidStateError):
            self._outcome.set_exception(error)

    def when_ended(self, act: Callable[[], None]) -> None:
        """Have something done once it has ended, by whoever ends it; at once if it has."""
        self._outcome.add_done_callback(lambda _: act())

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, at most so long; return whether it has."""
        return has_ended(self._outcome, seconds)


class Requests:
    """What is asked of one job. The newest hundred triggers can be looked up; those that wait are never dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Trigger] = deque()
        self._known: OrderedDict[str, Trigger] = OrderedDict()
        self._closed: PoundlockError | None = None

    def trigger(
        self, kind: Kind, *, directory: str | None = None, then: Then = "go on", drain: bool = False
    ) -> Trigger:
        """Ask for something; returns at once. After `close`, or while a hundred wait, the trigger has failed already.

        Args:
            kind: "checkpoint" or "savepoint". A "stop" is only noted, so that it can be looked up: whoever asks for it tells
                the job by its StopRequest.
            directory, then, drain: see Trigger.
        """
        made = Trigger(kind=kind, directory=directory, then=then, drain=drain)
        with self._lock:
            self._forget()  # before: whoever asks has to learn what became of this one
            self._known[made.id] = made
            if self._closed is not None:
                made.fail(self._closed)
            elif kind != "stop" and len(self._waiting) >= _KEPT:
                made.fail(PoundlockError(f"{_KEPT} requests wait already", next="ask again when the job is running"))
            elif kind != "stop":
                self._waiting.append(made)
        return made

    def take(self) -> Trigger | None:
        """Driver: return the oldest trigger that nobody has taken, None if there is none."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def requeue(self, trigger: Trigger) -> None:
        """Driver: let the next life of the query take a trigger that this one could not end."""
        with self._lock:
            if trigger.status == "IN_PROGRESS" and self._closed is None:
                self._waiting.appendleft(trigger)
            elif self._closed is not None:
                trigger.fail(self._closed)

    def find(self, id: str, *kinds: Kind) -> Trigger | None:
        """Return a trigger by its id, None if it is not known or of another kind."""
        with self._lock:
            trigger = self._known.get(id)
        return trigger if trigger is not None and trigger.kind in kinds else None

    def close(self, error: PoundlockError | None = None) -> None:
        """Note that the job has ended: stops that were noted are completed, the rest fails. `error` = it failed."""
        why = error or PoundlockError("the job ended before this was done", next="start the job again, then ask again")
        with self._lock:
            self._closed = why
            self._waiting.clear()
            for trigger in self._known.values():
                if trigger.kind == "stop" and error is None:
                    trigger.complete()
                else:
                    trigger.fail(why)

    def _forget(self) -> None:
        """Make room for one more."""
        ended = [id for id, trigger in self._known.items() if trigger.status != "IN_PROGRESS"]
        for id in ended[: max(0, len(self._known) + 1 - _KEPT)]:
            del self._known[id]


@dataclass
class CheckpointScheduler:
    """Keeps the interval and the pause between checkpoints. Used by the driver's main thread alone."""

    interval: timedelta  # time between the beginnings of two checkpoints; also how often an idle job looks for data
    min_pause: timedelta  # least time between the end of a checkpoint and the beginning of the next
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
        self._served = [trigger for trigger in self._served if trigger not in served]
        for trigger in served:
            trigger.complete(checkpoint)

    def nothing_to_do(self) -> None:
        """Take note that there was nothing to take a checkpoint for; nobody waited for one."""
        self._due = self.now() + max(self.interval.total_seconds(), _LOOK_S)

    def release(self) -> None:
        """Leave what could not be served to the next attempt."""
        for trigger in reversed([*self._served, *self._pending]):
            self.requests.requeue(trigger)
        self._served, self._pending = [], []
