"""Epochs: each life of a job's driver claims the next number, and whoever sees a higher one than its own stops.

On a local file system a lock held for the life of the process refuses a second driver before it touches anything; the
epochs fence what a lock cannot, a driver that went on elsewhere.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from poundlock.checkpoint.participant import JSON
from poundlock.errors import DefinitionError, FencedError, TerminalError, TransientError
from poundlock.storage.base import Storage
from poundlock.storage.json_record import parsed, read_record
from poundlock.storage.local import LocalStorage
from poundlock.storage.storage_errors import explained
from poundlock.values import Clock

FOLDER = "epochs"
LOCK = "driver.lock"
_NAME = re.compile(r"([0-9]{8})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life of a driver."""

    epoch: int  # its number, from 1
    host: str
    pid: int
    started_ms: int
    sinks: Mapping[str, JSON] = field(default_factory=dict)  # per sink name, what `Inspectable.describe_json` gave
    operators: Mapping[str, JSON] = field(default_factory=dict)  # per operator id, what the job was made of
    lease_ms: int | None = None  # how long its lease lasts, which it writes next; None = it keeps none


class EpochTaken(TransientError):
    """The one epoch that was asked for is another driver's: it was first."""


class DriverLock(AbstractContextManager["DriverLock"]):
    """A lock on a checkpoint folder, held until `release`, the end of a `with` block, or of the process, however it ends."""

    def __init__(self, handle: int | None) -> None:
        self._handle = handle

    @classmethod
    def acquire(cls, storage: Storage, *, clock: Clock) -> DriverLock:
        """Take the lock. On storages and mounts that have none the lock is empty (`held` is False).

        Raises:
            DefinitionError: another driver holds it; names the process and its host.
        """
        if not isinstance(storage, LocalStorage):
            return cls(None)
        os.makedirs(storage.root, exist_ok=True)
        handle = _locked(storage, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)
        if isinstance(handle, bytes):
            who, stop = _owner(handle)
            raise DefinitionError(
                f"two drivers on one checkpoint: {who} is running on {storage.root}",
                next=f"{stop} (it finishes its checkpoint), or give this job another checkpoint_dir",
            )
        if handle is not None:
            text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started_ms": clock.now_ms()})
            os.ftruncate(handle, 0)
            os.pwrite(handle, text.encode() + b"\n", 0)
        return cls(handle)

    @classmethod
    def keep_out(cls, storage: Storage) -> DriverLock:
        """Keep drivers away from a checkpoint that is only read; nothing in its folder is changed.

        Where nothing can be locked the lock is empty (`held` is False).

        Raises:
            DefinitionError: a driver is at work there; names the process and its host.
        """
        if not isinstance(storage, LocalStorage):
            return cls(None)
        try:
            handle = _locked(storage, os.O_RDONLY, fcntl.LOCK_SH)
        except OSError:  # a copy of a checkpoint has none, and nobody else can be at work there
            return cls(None)
        if isinstance(handle, bytes):
            raise DefinitionError(
                f"the job of {storage.root} is still running ({_owner(handle)[0]})",
                next="take a savepoint of it: poundlock savepoint JOB; or stop or cancel it first",
            )
        return cls(handle)

    @staticmethod
    def holder(storage: Storage) -> str | None:
        """Return who holds the lock, such as "process 4711 on host", without taking it; None if nobody does."""
        if not isinstance(storage, LocalStorage):
            return None
        try:
            handle = _locked(storage, os.O_RDONLY, fcntl.LOCK_SH)
        except FileNotFoundError:
            return None
        DriverLock(None if isinstance(handle, bytes) else handle).release()
        return _owner(handle)[0] if isinstance(handle, bytes) else None

    @property
    def held(self) -> bool:
        """Whether this lock keeps others out."""
        return self._handle is not None

    def stands(self, storage: Storage) -> bool:
        """Return whether it is still the lock of this folder, which nobody has removed or put another in place of."""
        if self._handle is None:
            return True
        try:
            return os.path.samestat(os.fstat(self._handle), os.stat(os.path.join(storage.root, LOCK)))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def release(self) -> None:
        """Let others in. Idempotent."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __exit__(self, *error: object) -> None:
        self.release()


def _locked(storage: LocalStorage, access: int, kind: int) -> int | bytes | None:
    """Return a handle that holds the lock, or what its owner wrote where another has it; None on a mount without locks."""
    handle = os.open(os.path.join(storage.root, LOCK), access, 0o644)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
        return handle
    except BlockingIOError:
        owner = os.pread(handle, 4096, 0)
    except OSError:  # epochs remain
        owner = None
    os.close(handle)
    return owner


class Epoch(AbstractContextManager["Epoch"]):
    """This driver's life. Use `claim`; `release`, or leave the `with` block, when the driver has stopped."""

    def __init__(self, storage: Storage, life: Life, lock: DriverLock) -> None:
        self._storage = storage
        self._lock = lock
        self.life = life

    @classmethod
    def claim(
        cls,
        storage: Storage,
        *,
        clock: Clock,
        sinks: Mapping[str, JSON] | None = None,
        operators: Mapping[str, JSON] | None = None,
        after: int | None = None,
        succeeds: int | None = None,
        lease_ms: int | None = None,
    ) -> Epoch:
        """Begin a new life: take the lock where there is one, then the next free number.

        Args:
            after: the number of the newest life, as far as it is known; None = it is looked for.
            succeeds: the number of a life that is taken for dead, 0 before the first: only the next number will do, so that of several
                drivers that wait for its end one goes on; and a lock that its process still holds, which may be stopped, keeps
                nobody out; see `take_lock`.
            sinks: per sink name, what `Inspectable.describe_json` says; kept for `fsck`.
            operators: per operator id, what the job is made of; kept for who restores the checkpoint.
            lease_ms: how long the lease lasts that this driver is about to write: who stands by goes by it from now on.

        Raises:
            DefinitionError: another driver is alive on this checkpoint, or its storage has no names that are given once.
            EpochTaken: another driver was first to succeed that life.
        """
        with explained(f"taking over {storage.root}", starting=True):
            try:
                lock = DriverLock.acquire(storage, clock=clock)
            except DefinitionError:
                if succeeds is None:
                    raise
                lock = DriverLock(None)
            try:
                before = after if succeeds is None else succeeds
                mine = Life(
                    epoch=0,
                    host=socket.gethostname(),
                    pid=os.getpid(),
                    started_ms=clock.now_ms(),
                    sinks=sinks or {},
                    operators=operators or {},
                    lease_ms=lease_ms,
                )
                life = _claim(storage, mine, before, only=succeeds is not None)
                return cls(storage, life, lock)
            except BaseException:
                lock.release()
                raise

    @property
    def number(self) -> int:
        """The number of this life."""
        return self.life.epoch

    def check(self) -> None:
        """Return if this is still the newest life; one look-up.

        Raises:
            FencedError: a newer driver has taken over; this one must touch nothing more.
            TerminalError: the folder is not the one that was claimed; in an empty one all would be written once more.
        """
        if not self._lock.stands(self._storage):
            raise TerminalError(
                f"{self._storage.root} was removed, moved or unmounted while its job ran",
                next="put the folder back in place of what is there now, and start the job again",
            )
        if self._storage.stat(_path(self.number + 1)) is None:
            return
        newer = newest_life(self._storage)
        who = "another process" if newer is None else f"process {newer.pid} on {newer.host}"
        raise FencedError(
            f"epoch {self.number} is over: {who} took over {self._storage.root} as epoch {_newest(self._storage)}",
            next="let the newer driver run; nothing is lost",
        )

    def take_lock(self, *, clock: Clock) -> None:
        """Take the lock where this life began without it, once the process that held it is gone; returns whether or not it is."""
        if not self._lock.held:
            with suppress(DefinitionError):
                self._lock = DriverLock.acquire(self._storage, clock=clock)

    def release(self) -> None:
        """Give up the lock. Idempotent."""
        self._lock.release()

    def __exit__(self, *error: object) -> None:
        self.release()


def _claim(storage: Storage, mine: Life, after: int | None, *, only: bool) -> Life:
    """Write a life down as the next one behind a number, or behind the newest there is; return it with its number."""
    number = _newest(storage) if after is None else after
    while True:
        number += 1
        life = replace(mine, epoch=number)
        omitted: Mapping[str, Any] = {"operators": {}, "lease_ms": None}  # as versions wrote it that did not know them
        value = {name: each for name, each in asdict(life).items() if name not in omitted or each != omitted[name]}
        path, data = _path(number), json.dumps({"v": 1, **value}, ensure_ascii=False).encode() + b"\n"
        if not storage.create_exclusive(path, data):
            if only:
                raise EpochTaken(
                    f"another driver began epoch {number} of {storage.root} first", next="wait for the end of that one"
                )
            continue
        # Where a name that is taken can be taken again, every decision would have two winners. A rename never does that.
        if storage.moves_by_copy and storage.create_exclusive(path, data):
            raise DefinitionError(
                f"{storage.root} replaces what is there although it is asked not to: two drivers could decide at once",
                next="keep the checkpoint on a store that honours If-None-Match: * when it puts an object",
            )
        return life


def newest_life(storage: Storage) -> Life | None:
    """Return the life of a driver that began last on a checkpoint; None before the first."""
    newest = _newest(storage)
    return _load(storage, newest) if newest else None


def described_operators(storage: Storage) -> Mapping[str, JSON]:
    """Return what the job was made of at its newest start, by operator id; {} where an older version started it."""
    life = newest_life(storage)
    return {} if life is None else life.operators


def described_sinks(storage: Storage, names: Collection[str] = ()) -> dict[str, JSON]:
    """Return what the sinks of the newest start gave as their descriptions, by name.

    Args:
        names: of further sinks, which may have been taken out since; what they gave last is looked up too.
    """
    result: dict[str, JSON] = {}
    newest = _newest(storage)
    for number in range(newest, 0, -1):
        if (life := _load(storage, number)) is None:  # somebody tidied up old starts
            break
        sinks = life.sinks
        result.update(
            {name: sinks[name] for name in sinks if name not in result and (number == newest or name in names)}
        )
        if result.keys() >= set(names):
            break
    return result


def _newest(storage: Storage) -> int:
    matches = (_NAME.fullmatch(name) for name in storage.names(FOLDER))
    return max((int(match[1]) for match in matches if match), default=0)


def _path(number: int) -> str:
    return f"{FOLDER}/{number:08d}.json"


def _load(storage: Storage, number: int) -> Life | None:
    next = "restore the file from a backup, or start the job once: it writes a new one"
    return read_record(storage, _path(number), parsed(Life), next=next)


def _owner(text: bytes) -> tuple[str, str]:
    """Return who wrote a lock file, and how to stop it."""
    try:
        value = json.loads(text)
        mine = (value["pid"], value["host"]) == (os.getpid(), socket.gethostname())
        stop = "stop the handle that runs it: handle.stop()" if mine else f"stop it with: kill {value['pid']}"
        return f"process {value['pid']} on {value['host']}", stop
    except (ValueError, KeyError, TypeError):  # it has the lock and has not yet written who it is
        return "another process", "stop it first"
