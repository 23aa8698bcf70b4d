"""The wait of a driver that stands by: it looks at the active one, keeps a Spark session warm, and returns when it is to go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import timedelta

from poundlock.checkpoint.epoch import Life
from poundlock.checkpoint.identity import Identity, read_identity
from poundlock.config import Settings
from poundlock.control.control_files import TROUBLE
from poundlock.driver.progress import Progress, StopRequest, Tracker
from poundlock.driver.standby.watch import ActiveDriver, Alive, JobEnded, Vacant
from poundlock.errors import DefinitionError, TerminalError, TransientError
from poundlock.job import Job
from poundlock.storage import LocalStorage, Storage
from poundlock.threads import has_ended, in_thread

_LOOK_S = 0.25
_STORE_LOOK_S = 1.0  # a store counts every look
_WARM_AGAIN_S = 5.0


@dataclass(frozen=True, kw_only=True)
class StandbyMode:
    """How a driver that was started to stand by is asked and seen.

    Args:
        on_waiting: called once, with whose checkpoint it is, when another driver runs the job.
        hands_over: whether the driver was asked to end itself, and not the job: then another one goes on; asked when it ends.
    """

    on_waiting: Callable[[Identity], None] = lambda identity: None
    hands_over: Callable[[], bool] = lambda: False


def refuse_standby(job: Job, settings: Settings) -> None:
    """Raise DefinitionError if no other driver could stand by for a job."""
    if settings.checkpoint_dir is None and job.checkpoint_dir is None:
        raise DefinitionError(
            f"--standby: job {job.name} has no checkpoint folder of its own, and another driver could not know where to go on",
            next="name one that all its drivers reach: -D checkpoint_dir=s3://bucket/job, or a folder of this machine",
            job=job.name,
        )


def ended_elsewhere(turn: JobEnded | None, tracker: Tracker) -> Progress:
    """Return how a driver ends that never ran the job: with it, or before it; None = it was asked to wait no longer.

    Raises:
        TerminalError: the job failed.
    """
    if turn is None:
        tracker.state("CANCELED", "Stands by no longer")
        return replace(tracker.progress, state="CANCELED")
    where = f"process {turn.life.pid} on {turn.life.host}"
    if turn.state == "FAILED":
        tracker.state("FAILED")
        what, next = turn.failure or ("nobody noted why", "read its log there")
        raise TerminalError(f"the job failed in {where}: {what}", next=next)
    tracker.state("CANCELED" if turn.state == "CANCELED" else "FINISHED", f"The job has ended in {where}")
    return tracker.progress


@dataclass(kw_only=True, eq=False)
class Standby:
    """Waits. Used by one thread; the session is warmed in another.

    Args:
        active: the driver that is waited for.
        lasts: how long the lease of this driver will last; nobody is looked at less often than twice in it.
        warm: starts Spark, or sees that it is still there; its thread is the only one that calls it.
    """

    storage: Storage
    active: ActiveDriver
    stop: StopRequest
    lasts: timedelta
    warm: Callable[[], None]
    say: Callable[[str], None]
    on_waiting: Callable[[Identity], None]
    _warming: Future[None] | None = field(default=None, init=False)
    _warm_again: float = field(default=0.0, init=False)  # by the monotonic clock
    _is_warm: bool = field(default=False, init=False)
    _waits_for: Life | None = field(default=None, init=False)
    _listed: bool = field(default=False, init=False)
    _unseen: bool = field(default=False, init=False)

    def wait(self) -> Vacant | JobEnded | None:
        """Return when nobody runs the job, or it has ended; None if this driver was asked to end.

        Raises:
            PoundlockError: Spark does not start here, so that this driver could not go on; or a file cannot be understood.
        """
        look_s = _LOOK_S if isinstance(self.storage, LocalStorage) else _STORE_LOOK_S
        look_s = min(look_s, self.lasts.total_seconds() / 8)
        while True:
            sight = self._look()
            if isinstance(sight, JobEnded):
                return sight
            if isinstance(sight, Vacant):
                return self._takes_over(sight)
            if isinstance(sight, Alive):
                self._waiting(sight.life)
            if self._listed:
                self._keep_warm()
            if self.stop.wait(look_s):
                return None

    def _look(self) -> Alive | Vacant | JobEnded | None:
        """Look once; None where nothing could be seen."""
        try:
            sight = self.active.look()
        except TerminalError:
            raise
        except TROUBLE as error:
            self.active.unseen()
            if not self._unseen:
                self.say(f"{self.storage.root} cannot be looked at: {error}; nobody is taken for dead meanwhile")
            self._unseen = True
            return None
        if self._unseen:
            self.say(f"{self.storage.root} can be looked at again")
        self._unseen = False
        return sight

    def _waiting(self, life: Life) -> None:
        if self._waits_for != life:
            self._waits_for = life
            self.say(f"Standing by: process {life.pid} on {life.host} runs the job, as epoch {life.epoch}")
        if not self._listed and (identity := read_identity(self.storage)) is not None:
            self._listed = True
            self.on_waiting(identity)

    def _takes_over(self, sight: Vacant) -> Vacant:
        before = self._waits_for
        if before is not None:
            self.say(f"Taking over from process {before.pid} on {before.host}: {sight.why}")
        elif sight.why:
            self.say(f"Nobody runs the job: {sight.why}")
        if self._warming is not None:
            self._warming.result()
        return sight

    def _keep_warm(self) -> None:
        """Have Spark started, or looked after every few seconds, beside the looks."""
        if self._warming is not None and has_ended(self._warming, 0):
            self._warming.result()
            self._warming, self._warm_again = None, time.monotonic() + _WARM_AGAIN_S
        elif self._warming is None and time.monotonic() >= self._warm_again:
            self._warming = in_thread(self._warm, "poundlock-warm")

    def _warm(self) -> None:
        try:
            self.warm()
        except TransientError as error:
            self._is_warm = False
            self.say(f"{error.what}; tried again in {_WARM_AGAIN_S:g} s")
        else:
            if not self._is_warm:
                self.say("Spark runs here, and waits for the job")
            self._is_warm = True
