"""The names of files that a DeltaSink writes: each has job, sink, checkpoint and attempt in it, so nobody writes or removes another's."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

CHANGES = "_poundlock"
"""The folder of changes that wait to be merged. Delta's own vacuum leaves alone what begins with "_"."""
_NAME = re.compile(
    r"part-(?P<subtask>[0-9]+)-(?P<checkpoint>[0-9]+)-(?P<tag>[0-9a-f]{16})-(?P<attempt>[0-9a-f]{16})-[0-9]+\.parquet"
)


@dataclass(frozen=True, slots=True)
class FileName:
    """What the name of a file says."""

    checkpoint: int
    attempt: str


def app_of(job_id: str, sink: str) -> str:
    """Return by what a table knows one sink of one job, for ever."""
    return f"poundlock/{job_id}/{sink}"


def tag_of(app: str) -> str:
    """Return 16 hex digits that stand for a sink of a job in names."""
    return hashlib.sha256(app.encode()).hexdigest()[:16]


def attempt_of(attempt: str) -> str:
    """Return 16 hex digits that stand for an attempt of a task in names."""
    return hashlib.sha256(attempt.encode()).hexdigest()[:16]


def file_name(subtask: int, checkpoint: int, tag: str, attempt: str, number: int) -> str:
    """Return the name of the `number`-th file of an attempt."""
    return f"part-{subtask}-{checkpoint}-{tag}-{attempt}-{number}.parquet"


def changes_folder(tag: str) -> str:
    """Return the folder of a sink's changes, below the table's."""
    return f"{CHANGES}/{tag}"


def parsed(path: str, tag: str) -> FileName | None:
    """Return what the name of a file says; None if it is not this sink's."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    if match is None or match["tag"] != tag:
        return None
    return FileName(int(match["checkpoint"]), match["attempt"])
