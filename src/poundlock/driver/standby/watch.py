"""What a driver that stands by sees of the one that runs the job: whether it lives, is gone, or the job has ended.

All of it is a hint: a wrong one costs a healthy driver its life, and no decision. Who is to go on is settled by claiming the epoch.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from poundlock.checkpoint.epoch import DriverLock, Life, newest_life
from poundlock.control.control_files import newest_entry
from poundlock.control.process_id import is_alive, process_start
from poundlock.control.registry import ENDED, JobEntry
from poundlock.driver.standby.lease import RELEASED, Lease, read_lease
from poundlock.driver.standby.liveness import Liveness
from poundlock.storage import LocalStorage, Storage

# A driver without a lease writes its entry every 5 s, into a store every 25 s, and waits for one that does not answer.
_LOCAL_S, _STORE_S = 30.0, 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """The job is run by another driver."""

    life: Life


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacant:
    """Nobody runs the job: the next life succeeds this one, 0 before the first; `why` in a few words, "" where it never ran."""

    succeeds: int
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """The job has ended while this driver stood by."""

    life: Life
    state: str
    failure: tuple[str, str] | None = None


Sight = Alive | Vacant | JobEnded


@dataclass(kw_only=True, eq=False)
class ActiveDriver:
    """The newest driver on a checkpoint folder, as another one sees it. Used by one thread.

    Args:
        holder: who holds the folder's lock; see `DriverLock.holder`.
    """

    storage: Storage
    liveness: Callable[[], Liveness] = Liveness
    holder: Callable[[Storage], str | None] = DriverLock.holder
    _life: Life | None = field(default=None, init=False)
    _waited: bool = field(default=False, init=False)
    _clock: Liveness = field(init=False)

    def __post_init__(self) -> None:
        self._clock = self.liveness()

    def look(self) -> Sight:
        """Look once.

        Raises:
            OSError, RuntimeError, PoundlockError: it cannot be seen; see `unseen`.
        """
        if self._life is None:
            self._life = newest_life(self.storage)
            if self._life is None:
                return Vacant(succeeds=0)
        sight = self._judge(self._life)
        if not isinstance(sight, Alive):
            newest = newest_life(self.storage)
            if newest is not None and newest.epoch != self._life.epoch:  # a third one was faster
                self._life, self._clock = newest, self.liveness()
                sight = Alive(life=newest)
        self._waited = self._waited or isinstance(sight, Alive)
        return sight

    def unseen(self) -> None:
        """Take note that a look has failed: nobody is taken for dead whom only this process cannot see."""
        self._clock.unseen()

    def _judge(self, life: Life) -> Sight:
        looked = self._clock.now()
        lease = read_lease(self.storage, life.epoch)
        if lease is None:
            return self._without_lease(life, looked)
        if lease.state in ENDED:
            return self._over(life, lease.state, lease.failure)
        if lease.state == RELEASED:
            return Vacant(succeeds=life.epoch, why="it has left the job to others")
        if self._is_gone(lease):
            return Vacant(succeeds=life.epoch, why="its process is gone")
        lasts_s = lease.lasts_ms / 1000
        if self._clock.has_expired((life.epoch, lease.beat), lasts_s, looked=looked):
            return Vacant(succeeds=life.epoch, why=f"its lease has not changed for {lasts_s:g} s")
        return Alive(life=life)

    def _is_gone(self, lease: Lease) -> bool:
        """Whether its process is known to have ended: it was one of this machine, and its lock is free."""
        return (
            lease.host == socket.gethostname()
            and isinstance(self.storage, LocalStorage)
            and not is_alive(lease.pid, lease.process_start)
            and self.holder(self.storage) is None
        )

    def _without_lease(self, life: Life, looked: float) -> Sight:
        """Judge a driver that has no lease by its lock and what it writes for `list`.

        One that was not started with --standby keeps none. One that was is about to write its first, or somebody removed it or damaged it: it has
        as long as the lease would last, also where it holds no lock, since another one held it when this one claimed its epoch; and no longer,
        also where it holds the lock, since it may be stopped.
        """
        local, promised = isinstance(self.storage, LocalStorage), life.lease_ms is not None
        held = local and self.holder(self.storage) is not None
        if held and not promised:
            return Alive(life=life)
        newest = newest_entry(self.storage)
        entry = newest if newest is not None and (newest.host, newest.process) == (life.host, life.pid) else None
        if entry is not None and entry.ended:
            return self._over(life, entry.state, entry.failure)
        if local and not held and (_has_no_process(life) if promised else entry is None or _is_dead(entry)):
            return Vacant(succeeds=life.epoch, why="its process is gone")
        lasts_s = life.lease_ms / 1000 if life.lease_ms is not None else _LOCAL_S if local else _STORE_S
        if self._clock.has_expired((life.epoch, entry), lasts_s, looked=looked):
            return Vacant(succeeds=life.epoch, why=f"it has written nothing for {lasts_s:g} s")
        return Alive(life=life)

    def _over(self, life: Life, state: str, failure: tuple[str, str] | None) -> Sight:
        if self._waited:
            return JobEnded(life=life, state=state, failure=failure)
        return Vacant(succeeds=life.epoch, why=f"the job had ended ({state})")


def _is_dead(entry: JobEntry) -> bool:
    return entry.here and not is_alive(entry.pid, entry.process_start)


def _has_no_process(life: Life) -> bool:
    """Whether nothing of this machine has the number of a driver's process; where something has, that may be another one."""
    return life.host == socket.gethostname() and process_start(life.pid) is None
