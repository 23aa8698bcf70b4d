"""The lease of an epoch: a small file that its driver changes again and again, by which a driver that stands by sees that it lives.

A lease is a hint and no more. Who may decide is settled by the epoch and the ledger, which give each name once: a driver that slept
through its lease is fenced there, whatever any lease says. No time of any clock is in it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta

from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.outcome import Log, StandardLog
from poundlock.control.control_files import TROUBLE, put
from poundlock.control.process_id import process_start
from poundlock.driver.progress import State, Tracker
from poundlock.errors import PoundlockError, TerminalError
from poundlock.storage import Storage
from poundlock.storage.json_record import of_format, read_record, typed
from poundlock.values import Clock, SystemClock

FOLDER = "leases"
HELD, RELEASED = "HELD", "RELEASED"
_BEATS = 3  # so often a lease is changed while it lasts
_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What a driver says of itself.

    Args:
        process_start: see `process_id.process_start`.
        lasts_ms: who sees no change for so long takes the driver for dead.
        beat: counts the changes.
        state: HELD; RELEASED = this driver ended, and the job goes on with another; else the state in which the job ended.
        failure: the two lines it failed with, as (what, next).
    """

    epoch: int
    host: str
    pid: int
    process_start: str
    lasts_ms: int
    beat: int = 0
    state: str = HELD
    failure: tuple[str, str] | None = None


def read_lease(storage: Storage, epoch: int) -> Lease | None:
    """Return the lease of an epoch; None where its driver has none, or what is there is damaged: a hint that says nothing.

    Raises:
        TerminalError: it is of another version.
    """
    return read_record(storage, _path(epoch), _lease, next="run the version of poundlock that wrote it, or a newer one")


def _lease(content: bytes) -> Lease | None:
    """Return a lease, None where it is none. Raises ValueError where it is of another version."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("v"), int):
        return None
    known = of_format(value)
    try:
        return typed(known, Lease)
    except ValueError:
        return None


def _path(epoch: int) -> str:
    return f"{FOLDER}/{epoch:08d}.json"


@dataclass(kw_only=True, eq=False)
class LeaseKeeper:
    """Keeps the lease of one life of a driver, in a thread of its own, and notices when another driver has taken over.

    A file is written by the driver of its epoch alone, and each change replaces it as a whole.

    Args:
        lasts: how long a standby waits without a change; it is changed three times in that time.
        hands_over: whether the driver that ends leaves the job to another one; asked at its end.
    """

    storage: Storage
    epoch: Epoch
    lasts: timedelta
    hands_over: Callable[[], bool] = lambda: False
    clock: Clock = field(default_factory=SystemClock)
    log: Log = field(default_factory=StandardLog)
    _lease: Lease = field(init=False)
    _over: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _error: TerminalError | None = field(default=None, init=False)
    _silent: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        pid = os.getpid()
        self._lease = Lease(
            epoch=self.epoch.number,
            host=socket.gethostname(),
            pid=pid,
            process_start=process_start(pid) or "",
            lasts_ms=round(self.lasts.total_seconds() * 1000),
        )

    def start(self) -> None:
        """Write the lease, remove those of earlier lives, and begin to renew it."""
        self._write()
        with suppress(*TROUBLE):
            older = [name for name in self.storage.names(FOLDER) if name < _path(self.epoch.number).rpartition("/")[2]]
            for name in older:
                self.storage.delete(f"{FOLDER}/{name}")
        self._thread = threading.Thread(target=self._run, name="poundlock-lease", daemon=True)
        self._thread.start()

    @contextmanager
    def keeping(self, tracker: Tracker) -> Iterator[LeaseKeeper]:
        """Keep it meanwhile, and leave a last word behind it, by how the tracker says the job stands."""
        self.start()
        try:
            yield self
            self.end(tracker.progress.state)
        except PoundlockError as error:
            # What ended this process before its job could fail may be of this machine alone.
            self.end("FAILED" if tracker.progress.state == "FAILED" else None, error)
            raise
        finally:
            self.close()

    def check(self) -> None:
        """Raise if the life is over: FencedError where another driver has taken over, TerminalError where its folder is gone."""
        if self._error is not None:
            raise self._error

    def end(self, state: State | None, error: PoundlockError | None = None) -> None:
        """Renew no more, and leave a last word for who stands by: in which state the job has ended, or that this driver leaves it to others.

        Where it cannot be written the lease expires, and the standby goes on as after a crash.

        Args:
            state: of the job; None = it has not ended.
            error: what the driver ends with.
        """
        self.close()
        released = state is None or self.hands_over()
        failure = None if error is None or released else (error.what, error.next)
        self._lease = replace(self._lease, state=RELEASED if released else str(state), failure=failure)
        deadline = time.monotonic() + self.lasts.total_seconds()
        while time.monotonic() < deadline:
            try:
                self.epoch.check()
            except TerminalError:
                return  # another driver has taken over, or the folder is gone: nothing is written there
            except TROUBLE as error:
                self._note(error)
            else:
                if self._write():
                    return
            time.sleep(_AGAIN_S)

    def close(self) -> None:
        """Renew no more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(self.lasts.total_seconds())

    def renew(self) -> bool:
        """Change the lease once, and take the lock where another process held it; return False where the life is over."""
        try:
            self.epoch.check()
            self.epoch.take_lock(clock=self.clock)
        except TerminalError as error:
            self._error = error
            return False
        except TROUBLE as error:
            self._note(error)
            return True
        self._write()
        return True

    def _run(self) -> None:
        while not self._over.wait(self.lasts.total_seconds() / _BEATS) and self.renew():
            pass

    def _write(self) -> bool:
        self._lease = replace(self._lease, beat=self._lease.beat + 1)
        try:
            put(self.storage, _path(self.epoch.number), json.dumps({"v": 1, **asdict(self._lease)}).encode() + b"\n")
        except TROUBLE as error:
            self._note(error)
            return False
        self._silent = False
        return True

    def _note(self, error: Exception) -> None:
        """Log why a lease was not renewed, once until it is again."""
        if not self._silent:
            self.log.warning("the lease was not renewed", epoch=self.epoch.number, why=str(error))
        self._silent = True
