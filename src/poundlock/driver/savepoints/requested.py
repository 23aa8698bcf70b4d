"""The savepoints that one life of a job was asked for: cut at a checkpoint's border, made whole beside the job.

While one waits for its border, or is digested, the job can be stopped and cancelled as always; what goes wrong with a
savepoint fails that savepoint alone.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from poundlock.driver.requests import Requests, Trigger
from poundlock.errors import PoundlockError, TransientError
from poundlock.failpoints import SavepointFailpoint, hit
from poundlock.savepoint.take import Cut, finish
from poundlock.storage.storage_errors import storage_trouble
from poundlock.threads import has_ended, in_thread

_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Saved:
    """The savepoint with which a job ends."""

    trigger: Trigger  # who asked for it; completed when the job has ended
    path: str


@dataclass(slots=True)
class _Making:
    """A savepoint that is cut and being made whole by a thread of its own; `bytes` is its size once it is."""

    trigger: Trigger
    cut: Cut
    waited_s: float
    since: float
    bytes: Future[int] = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = in_thread(self._whole, "poundlock-savepoint")

    @property
    def ends(self) -> bool:
        """Whether the job is to end with it."""
        return self.trigger.then != "go on"

    def _whole(self) -> int:
        hit(SavepointFailpoint.CUT)
        size = sum(file.bytes for file in finish(self.cut).files.values())
        hit(SavepointFailpoint.FINISHED)
        return size


@dataclass
class Savepoints:
    """What is under way. Every method is for the driver's main thread."""

    # copies what one is made of into a directory, after all pending files were finished where that is asked for
    cut: Callable[[Trigger], Cut]
    # keeps checkpoints from beginning, since the job is to end; or lets them, since it does not end after all
    hold: Callable[[bool], None]
    say: Callable[[str], None]  # called with each that is whole
    _waiting: deque[Trigger] = field(default_factory=deque)
    _making: list[_Making] = field(default_factory=list)

    def want(self, trigger: Trigger) -> None:
        """Note that somebody asks for one."""
        self._waiting.append(trigger)

    def step(self) -> Saved | None:
        """Do what can be done now, between two checkpoints; return the savepoint with which the job is to end once it is whole.

        Raises:
            Exception: pending files could not be finished before one; half a decision may be carried out.
        """
        while self._waiting and not self.ending:
            self._cut(self._waiting.popleft())
        return self._settle()

    @property
    def ending(self) -> bool:
        """Whether one is cut with which the job is to end: from then on nothing may be decided any more."""
        return any(making.ends for making in self._making)

    @property
    def busy(self) -> bool:
        """Whether any is wanted or being made."""
        return bool(self._waiting or self._making)

    def finish(self, canceling: Callable[[], bool]) -> None:
        """Wait for those that the job does not end with, since it ends; not once it is cancelled."""
        for making in [m for m in self._making if not m.ends]:
            while not has_ended(making.bytes, _LOOK_S):
                if canceling():
                    return
            self._making.remove(making)
            self._tell(making)

    def requeue(self, requests: Requests) -> None:
        """Wait for those that were cut, and leave the others to the next life of the query, with those the job was to end with."""
        for trigger in reversed(self._waiting):
            requests.requeue(trigger)
        self._waiting.clear()
        for making in self._making:
            if making.bytes.exception() is not None or not making.ends:  # waits for it
                self._tell(making)
                continue
            making.cut.discard()  # the job goes on from its checkpoint, so nobody is to go on from this
            requests.requeue(making.trigger)
        self._making.clear()

    def _cut(self, trigger: Trigger) -> None:
        began = time.monotonic()
        try:
            made = self.cut(trigger)
        except NotDrained as failure:
            trigger.fail(_not_saved(failure.error))
            raise failure.error from None
        except Exception as error:  # whatever it is, the job is none the worse for it
            trigger.fail(_not_saved(error))
            return
        if trigger.then != "go on":
            self.hold(True)  # what came after the cut would be lost to who goes on from it
        self._making.append(_Making(trigger, made, time.monotonic() - began, began))

    def _settle(self) -> Saved | None:
        """Tell of those that are whole; return the one with which the job is to end."""
        for making in [m for m in self._making if m.bytes.done()]:
            whole = self._tell(making)
            if whole and making.ends:
                return Saved(making.trigger, making.cut.savepoint.root)  # it is kept in mind: the job has not ended yet
            self._making.remove(making)
            if not whole and making.ends:
                self.hold(False)
        return None

    def _tell(self, making: _Making) -> bool:
        """Tell whoever asked, unless the job has to end first; return whether the savepoint is whole."""
        if (error := making.bytes.exception()) is not None:
            making.trigger.fail(_not_saved(error))
            making.cut.discard()
            return False
        took, waited = time.monotonic() - making.since, making.waited_s
        self.say(
            f"Savepoint {making.cut.savepoint.root}: {making.bytes.result():,} bytes;"
            f" checkpoints waited {waited * 1000:.0f} ms of {took * 1000:.0f} ms"
        )
        if not making.ends:
            making.trigger.complete(making.cut.savepoint.root)
        return True


class NotDrained(Exception):
    """Raised when pending files could not be finished before a savepoint; holds why."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _not_saved(error: BaseException) -> PoundlockError:
    if isinstance(error, PoundlockError):
        return error
    if isinstance(error, OSError):
        return storage_trouble(error, doing="writing the savepoint")
    what = f"the savepoint could not be written: {error or type(error).__name__}"
    return TransientError(what, next="free the disk or give another folder; the job goes on")
