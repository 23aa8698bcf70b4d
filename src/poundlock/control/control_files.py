"""The files by which a job that runs on a machine nobody can reach is asked, and tells how it goes: in its checkpoint folder.

`control/driver.json` is written by the driver alone; a request and its answer are a file each. Who may write there may ask.
Beside it each application has a file of its own, with the first and the last word of its newest driver, or why that one did
not begin.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from poundlock.errors import PoundlockError
from poundlock.storage import Storage

FOLDER = "control"
ASKED, ANSWERED = f"{FOLDER}/requests", f"{FOLDER}/answers"
DRIVER = f"{FOLDER}/driver.json"  # its newest word
_FORMAT = 1

# A file system that does not answer for a moment must not end a job, nor the look at one.
TROUBLE = (OSError, ValueError, RuntimeError, PoundlockError)


@dataclass(frozen=True, kw_only=True)
class Word:
    """The driver's newest word.

    Args:
        job_id, name: which job.
        application: the cluster's id of it.
        attempt: which of the cluster's attempts, from 1.
        host, pid: the driver's process, as its epoch names it.
        state: of the job.
        started_ms: when this driver started, ms since the epoch.
        said_ms: when it said this.
        ended_ms: when it ended; None while it runs.
        exit_code: how it ended.
        failure: the two lines it failed with.
        progress: as fields of Progress.
    """

    job_id: str
    name: str
    application: str
    state: str
    started_ms: int
    said_ms: int
    ended_ms: int | None = None
    exit_code: int | None = None
    failure: tuple[str, str] | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 1
    host: str = ""
    pid: int = 0

    @property
    def ended(self) -> bool:
        """Whether it is a driver's last word."""
        return self.ended_ms is not None

    @property
    def driver(self) -> tuple[str, int, int]:
        """Whose word it is: another driver's is different."""
        return self.application, self.attempt, self.started_ms

    def to_bytes(self) -> bytes:
        """Return it as it is kept."""
        return json.dumps({"v": _FORMAT, **dataclasses.asdict(self)}, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def of(cls, data: bytes) -> Word:
        """Return what was kept. Raises ValueError, KeyError or TypeError if it is something else."""
        value = json.loads(data)
        if value.pop("v") != _FORMAT:
            raise ValueError("of another version")
        value["failure"] = tuple(value["failure"]) if value.get("failure") else None
        return cls(**{each.name: value[each.name] for each in dataclasses.fields(cls) if each.name in value})


def newest_word(storage: Storage) -> Word | None:
    """Return the newest word of a job's driver; None if there is none that can be read.

    Args:
        storage: the job's checkpoint folder.
    """
    try:
        return Word.of(storage.read(DRIVER))
    except (*TROUBLE, KeyError, TypeError):
        return None


def put(storage: Storage, path: str, data: bytes) -> None:
    """Give a file its content, whether it is there or not."""
    if not storage.create_exclusive(path, data):
        storage.replace(path, data)


def word_of(storage: Storage, application: str) -> Word | None:
    """Return the newest word of one application's drivers; None where it has said none, or another one has spoken since."""
    for path in (DRIVER, f"{FOLDER}/{application}.json"):
        try:
            word = Word.of(storage.read(path))
        except (*TROUBLE, KeyError, TypeError):
            continue
        if word.application == application:
            return word
    return None


def last_word(storage: Storage, application: str) -> Word | None:
    """Return the last word of an application that is over, else its newest; None where it has said none.

    Args:
        storage: the job's checkpoint folder.
        application: the cluster's id of it.

    Raises:
        OSError, RuntimeError, PoundlockError: the folder cannot be read, and there may be one.
    """
    found = []
    for path in (DRIVER, f"{FOLDER}/{application}.json"):
        with suppress(FileNotFoundError):
            data = storage.read(path)
            with suppress(ValueError, KeyError, TypeError):
                found.append(Word.of(data))
    # An attempt that failed before it was a driver has said so aside, where an earlier one's is the newest.
    its = [word for word in found if word.application == application]
    return max(its, key=lambda word: (word.attempt, word.ended), default=None)


def say(storage: Storage, word: Word) -> None:
    """Make a word of a driver the newest. Raises OSError."""
    put(storage, DRIVER, word.to_bytes())


def say_aside(storage: Storage, word: Word) -> None:
    """Leave a word of a driver beside the newest, which may be another's: its first and its last, or why it did not
    begin. Raises OSError."""
    put(storage, f"{FOLDER}/{word.application}.json", word.to_bytes())
