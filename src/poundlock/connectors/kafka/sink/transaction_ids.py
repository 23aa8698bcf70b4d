"""Transactional ids: made of the user's prefix, the job, the sink, the host and a slot that one process owns at a time.

Neighbouring checkpoints never share one: while a checkpoint is committed, the tasks of the next may initialise ids already.

An id carries tags of its job and sink, so that a sweep never meets another's transactions, whatever prefixes are chosen.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TO_TOPIC = "__to_topic"  # the column in which the plan puts a computed topic
_TASK = "per_task"
_REALM = ".realm"
_KEPT_S = 24 * 3600.0
PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def tags(job_id: str, sink: str) -> tuple[str, str]:
    """Return 8 hex digits that stand for a job, and 8 for one of its sinks."""
    return job_id[:8], hashlib.sha256(sink.encode()).hexdigest()[:8]


def transaction_name(tid: str, pid: int, epoch: int) -> str:
    """Return the name of one transaction: what decisions say, and what a sweep finds."""
    return f"{tid}@{pid}:{epoch}"


@dataclass(frozen=True, slots=True)
class TransactionNames:
    """The transactional ids of one sink of one job: `<prefix>.<job>-<sink>.<host>.<slot>-<0 or 1, for even and odd checkpoints>`.

    Older versions left out the last part, and so do tasks that commit by themselves.

    An id is also the name of the consumer group that holds the marker of its newest committed transaction.
    """

    prefix: str
    job: str
    sink: str

    def at(self, host: str, slot: int, checkpoint: int | None = None) -> str:
        """Return the id of a slot, for a checkpoint or for all."""
        parity = "" if checkpoint is None else f"-{checkpoint % 2}"
        return f"{self.prefix}.{self.job}-{self.sink}.{host}.{slot}{parity}"

    def of_task(self, place: Mapping[str, Any], subtask: int) -> str:
        """Return the id of a task that commits by itself; no host's name has a "_" in it.

        Spark numbers the tasks that read Kafka otherwise on a replay, so their ids are made of the topic and partition that the first
        row is from. The task's number counts where rows come out of a shuffle.
        """
        if "partition" not in place:
            return self.at(_TASK, subtask)
        topic = hashlib.sha256(place["topic"].encode()).hexdigest()[:8]
        return self.at(f"{_TASK}_{topic}", place["partition"])

    def commits_itself(self, group: str) -> bool:
        """Return whether a group holds the marker of such a task."""
        return self.ours(group) and f".{_TASK}" in group

    def ours(self, tid: str) -> bool:
        """Return whether an id is this sink's."""
        return self._of(tid) == (self.job, self.sink)

    def foreign(self, tid: str) -> bool:
        """Return whether an id has this prefix and another job's tag."""
        parts = self._of(tid)
        return parts is not None and parts[0] != self.job

    def _of(self, tid: str) -> tuple[str, str] | None:
        # A host has no dot in it, so the prefix "a" does not match what the prefix "a.b" makes.
        match = re.fullmatch(
            rf"{re.escape(self.prefix)}\.([0-9a-f]{{8}})-([0-9a-f]{{8}})\.[A-Za-z0-9_-]+\.[0-9]+(?:-[01])?", tid
        )
        return (match[1], match[2]) if match else None


@dataclass(slots=True)
class Slot:
    """A transactional id that this process may use until `release`, or until it ends, however it ends."""

    tid: str
    _handle: int

    def release(self) -> None:
        """Let others have it. What was prepared under it is still protected: the broker says that it is ongoing."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _realm(folder: Path) -> str:
    """Return what tells those who share this folder's locks from others on hosts of the same name, such as containers."""
    path = folder / _REALM
    for _ in range(2):
        try:
            return path.read_text()
        except FileNotFoundError:
            made = folder / f".tmp-{secrets.token_hex(8)}"
            made.write_text(secrets.token_hex(4))
            with contextlib.suppress(FileExistsError):
                os.link(made, path)  # whole, and only by one
            made.unlink()
    return path.read_text()


def slots(names: TransactionNames, checkpoint: int) -> Iterator[Slot]:
    """Yield this host's slots for a checkpoint that no other process holds, lowest first, without end; the caller releases each."""
    folder = Path(tempfile.gettempdir()) / f"poundlock-{os.getuid()}" / "transactional-ids"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_old(folder)
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname())[:60] or "host"
    host = f"{host}-{_realm(folder)}"
    number = 0
    while True:
        tid = names.at(host, number, checkpoint)
        handle = _locked(folder / f"{tid}.lock")
        if handle is not None:
            yield Slot(tid, handle)
        number += 1


def _locked(path: Path) -> int | None:
    """Return a handle of a file that nobody else has locked, None if somebody has."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        if _is_at(path, handle):
            os.utime(handle)
            return handle
        os.close(handle)  # it was removed between being opened and being locked, and another may have its place


def _is_at(path: Path, handle: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(handle))
    return False


@cache
def _remove_old(folder: Path) -> None:
    """Remove the locks that nobody has held for a day, once in the life of a process: those of jobs that are no more."""
    before = time.time() - _KEPT_S
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another process removed it
                if entry.name == _REALM or entry.stat().st_mtime > before:
                    continue
                if entry.name.endswith(".lock"):
                    _remove_free(folder / entry.name)
                else:
                    os.unlink(entry.path)


def _remove_free(path: Path) -> None:
    """Remove a lock that nobody holds. Who opened it before sees, once it has locked it, that it is gone."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, handle):
            os.unlink(path)
    finally:
        os.close(handle)
