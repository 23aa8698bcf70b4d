"""The files by which a job is asked from anywhere, and says how it goes: in its checkpoint folder.

`control/driver.json` is the entry of the newest driver, written by that driver alone; a request and its answer are a file each.
Who may write there may ask. Beside it each application of a cluster has a file of its own, with the first and the last entry
of its newest driver, or why that one did not begin; and there are pieces of the driver's log.
"""

from __future__ import annotations

from contextlib import suppress

from poundlock.control.registry import JobEntry
from poundlock.errors import PoundlockError
from poundlock.storage import Storage

FOLDER = "control"
REQUESTS, ANSWERS = f"{FOLDER}/requests", f"{FOLDER}/answers"
DRIVER = f"{FOLDER}/driver.json"
SETUP = f"{FOLDER}/setup.json"  # how the newest driver's job is set up, as REST shows it

# A file system that does not answer for a moment must not end a job, nor the look at one.
TROUBLE = (OSError, ValueError, RuntimeError, PoundlockError)


def put(storage: Storage, path: str, data: bytes) -> None:
    """Give a file its content, whether it is there or not."""
    try:
        storage.replace(path, data)
    except FileNotFoundError:
        if not storage.create_exclusive(path, data):
            storage.replace(path, data)


def newest_entry(storage: Storage) -> JobEntry | None:
    """Return the entry of a job's newest driver; None if there is none that can be read."""
    try:
        return JobEntry.from_bytes(storage.read(DRIVER))
    except TROUBLE:
        return None


def entry_of(storage: Storage, application: str) -> JobEntry | None:
    """Return the newest entry of one application's drivers; None where it has none, or another one has written since."""
    for path in (DRIVER, _aside(application)):
        try:
            entry = JobEntry.from_bytes(storage.read(path))
        except TROUBLE:
            continue
        if entry.application == application:
            return entry
    return None


def last_entry(storage: Storage, application: str) -> JobEntry | None:
    """Return the last entry of an application that is over, else its newest; None where it has none.

    Raises OSError, RuntimeError, PoundlockError: the folder cannot be read, and there may be one.
    """
    entries = []
    for path in (DRIVER, _aside(application)):
        with suppress(FileNotFoundError):
            data = storage.read(path)
            with suppress(ValueError):
                entries.append(JobEntry.from_bytes(data))
    # An attempt that failed before it was a driver has noted it aside, where an earlier one's is the newest.
    its = [entry for entry in entries if entry.application == application]
    return max(its, key=lambda entry: (entry.attempt, entry.ended), default=None)


def put_entry(storage: Storage, entry: JobEntry) -> None:
    """Make the entry of a driver the newest. Raises OSError."""
    put(storage, DRIVER, entry.to_bytes())


def put_aside(storage: Storage, entry: JobEntry) -> None:
    """Leave the entry of an application's driver beside the newest, which may be another's: its first and its last, or why
    it did not begin. Raises OSError."""
    if entry.application is not None:
        put(storage, _aside(entry.application), entry.to_bytes())


def _aside(application: str) -> str:
    return f"{FOLDER}/{application}.json"
