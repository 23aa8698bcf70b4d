"""How a job goes by its checkpoint folder: what its driver wrote there, and where that is silent, what the cluster or a lock says."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from poundlock.checkpoint.epoch import DriverLock
from poundlock.control import yarn
from poundlock.control.cluster_driver import ANOTHER_ATTEMPT, NOT_INSTALLED, OTHER_PYTHON
from poundlock.control.control_files import DRIVER, TROUBLE, entry_of, last_entry, newest_entry
from poundlock.control.process_id import is_alive, same_boot
from poundlock.control.registry import JobEntry, now_ms
from poundlock.errors import FencedError, PoundlockError, TransientError
from poundlock.storage import LocalStorage, Storage, open_storage

_FRESH_MS = 30_000
_LOST_MS = 300_000  # a driver writes every 25 s, and waits for a store that does not answer
_LONGEST = 300
_MINORS = range(50)


def last_of(application: str, checkpoint: str) -> JobEntry | None:
    """Return the last entry of an application that is over; see `control_files.last_entry`.

    Raises:
        TransientError: the folder cannot be read, and there may be one.
    """
    try:
        return last_entry(open_storage(checkpoint), application)
    except (OSError, RuntimeError, ValueError, PoundlockError) as error:
        why = error.what if isinstance(error, PoundlockError) else str(error)
        raise TransientError(
            f"{application} is over, and how it ended cannot be read in {checkpoint}: {why}",
            next=f"see that {checkpoint} can be reached, then type: poundlock list -a",
        ) from error


def lost(application: yarn.Application) -> PoundlockError:
    """Return why an application is over whose driver has left no last word."""
    for code in map(int, re.findall(r"(?:exitCode: |exited with status )([0-9]+)", application.why)):
        if code - OTHER_PYTHON in _MINORS:
            return PoundlockError(
                f"the Python of the cluster's containers is 3.{code - OTHER_PYTHON}, and the job was submitted by another",
                next="send this one along with --archives env.tar.gz#env, or name one of the same version there: "
                "--conf spark.pyspark.python=/path/to/python",
            )
        if code == NOT_INSTALLED:
            return PoundlockError(
                "the Python of the cluster's containers lacks a package that poundlock needs",
                next=f"see which: yarn logs -applicationId {application.id}; or send an environment along: "
                "--archives env.tar.gz#env",
            )
        if code == FencedError.exit_code:
            return FencedError(
                f"another driver has taken over the checkpoint of {application.id}",
                next="let that one run; nothing is lost",
            )
        if code == ANOTHER_ATTEMPT:
            return PoundlockError(
                f"{application.id} has had all attempts that the cluster allows, and each lost its executors or its Spark",
                next=f"read yarn logs -applicationId {application.id}, then start the job again; nothing is lost",
            )
    if (program := re.search(r'Cannot run program "([^"]+)"', application.why)) is not None:
        return PoundlockError(
            f"the cluster's containers have no {program[1]}",
            next="send an environment along with --archives env.tar.gz#env, or name the Python there: "
            "--conf spark.pyspark.python=/path/to/python",
        )
    why = f": {application.why[:_LONGEST]}" if application.why else ""
    return PoundlockError(
        f"{application.id} is over ({application.state}), without a last word of its driver{why}",
        next=f"read yarn logs -applicationId {application.id}, then start the job again; nothing is lost",
    )


def in_folder(storage: Storage) -> JobEntry | None:
    """Return the entry of the newest driver on a checkpoint as it stands now; None where none has written one."""
    newest = newest_entry(storage)
    if newest is None:
        return None
    # It is a copy, whatever the file says of itself.
    entry = replace(newest, checkpoint_dir=storage.root, written_ms=newest.written_ms or 0)
    if entry.application is not None or entry.ended:
        return polled(entry)
    if (entry.here and is_alive(entry.pid, entry.process_start)) or _is_held(storage, entry):
        return entry
    return entry if newest_entry(storage) != newest else gone(entry)


def _is_held(storage: Storage, entry: JobEntry) -> bool:
    """Return whether a driver whose process is not seen here may be at work: it holds the lock, or, where a store has none, it wrote of late."""
    if isinstance(storage, LocalStorage):
        return DriverLock.holder(storage) is not None
    if entry.here and same_boot(entry.process_start):
        return False
    if now_ms() - (entry.written_ms or 0) < _LOST_MS:
        return True
    status = storage.stat(DRIVER)  # by the store's clock: that of the other machine may be slow
    return status is not None and now_ms() - status.modified_ms < _LOST_MS


def elsewhere(entry: JobEntry) -> JobEntry:
    """Return the entry of a process of another machine, or of this one when it had another name, as its checkpoint folder has it.

    A folder that is not reached from here leaves it as it was.
    """
    try:
        now = in_folder(open_storage(entry.checkpoint_dir))
    except TROUBLE:
        return entry
    if now is None or entry.between:
        return entry
    if (now.host, now.process) == (entry.host, entry.process):
        return gone(entry) if now.gone else _with(entry, now)
    return gone(entry) if now.started_ms > entry.started_ms else entry


def ended_with(entry: JobEntry) -> str | None:
    """Return the savepoint with which a job ended; None if it did not, or that is not known from here."""
    from poundlock.driver.savepoints.handover import left_by

    if not entry.ended:
        return None
    try:
        note = left_by(open_storage(entry.checkpoint_dir))
    except (OSError, PoundlockError):
        return None
    return note.savepoint if note is not None and note.job_id == entry.job_id else None


def start_command(entry: JobEntry) -> str:
    """Return how a job that has ended is started again: from the savepoint that it ended with, as anything else is refused."""
    saved = ended_with(entry)
    target = [entry.job_file] if entry.command == "run" else entry.arguments
    return shlex.join(["poundlock", entry.command, *(() if saved is None else ("-s", saved)), *target])


def gone(entry: JobEntry) -> JobEntry:
    """Return the entry of a process that ended without a last word."""
    where = "" if entry.here or entry.application is not None else f" on {entry.host}"
    why = (f"process {entry.pid}{where} is gone, without a last word", f"read {entry.log}, then start the job again")
    return replace(entry, state="FAILED", failure=why, progress={**entry.progress, "state": "FAILED"})


def polled(entry: JobEntry, *, ask: bool | None = None) -> JobEntry:
    """Return the entry of a job whose driver runs on a cluster as it stands now; any other as it is.

    Args:
        ask: whether the cluster is asked, too; None = where the driver is silent.

    Raises:
        TransientError: the cluster says that it is over, and how it ended cannot be read.
    """
    if entry.application is None:
        return entry
    try:
        newest = entry_of(open_storage(entry.checkpoint_dir), entry.application)
    except PoundlockError:
        newest = None
    now = _with(entry, newest)
    silent = newest is None or abs(now_ms() - (newest.written_ms or 0)) >= _FRESH_MS
    known = yarn.ask(entry.application) if not now.ended and (silent if ask is None else ask) else None
    if known is None or not known.over:
        return now
    # It may have written its last entry between the reading and the asking.
    now = _with(now, last_of(entry.application, entry.checkpoint_dir))
    if now.ended:
        return now
    error = lost(known)
    return replace(gone(now), exit_code=error.exit_code, failure=(error.what, error.next), failure_code=error.code)


def _with(entry: JobEntry, newest: JobEntry | None) -> JobEntry:
    if newest is None:
        return entry
    names = ("state", "ended_ms", "exit_code", "failure", "failure_code", "progress", "since", "troubles", "written_ms")
    known = {name: getattr(newest, name) for name in names}
    return replace(entry, job_id=entry.job_id or newest.job_id, **known)
