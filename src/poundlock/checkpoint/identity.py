"""Whose checkpoint this is: `job.json`, written when a job first runs, and once more where its name has changed.

The job id is ours and random, so that forks and restores of a Spark checkpoint are never mistaken for their origin.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import asdict, dataclass, replace

from poundlock.errors import DefinitionError, TerminalError
from poundlock.storage.base import Storage
from poundlock.storage.json_record import parsed, read_record
from poundlock.storage.storage_errors import explained
from poundlock.values import Clock

PATH = "job.json"
_JOB_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a checkpoint belongs to."""

    job_id: str  # 32 hex digits
    name: str
    created_ms: int


def new_job_id() -> str:
    """Return a new job id: 32 random hex digits."""
    return secrets.token_hex(16)


def open_identity(
    storage: Storage, *, name: str, clock: Clock, job_id: str | None = None, kept: Identity | None = None
) -> Identity:
    """Return the identity kept in a checkpoint folder; write it if the folder is new.

    Args:
        name: the name of a first run; one that is kept may be another, see `rename`.
        kept: what is known to be there, so that it is not read; None = it is looked for.
        job_id: 32 hex digits for a first run; random if not given. On a later run it must be the kept one.

    Raises:
        DefinitionError: the checkpoint is of a job with another id, or job_id is not an id.
        TerminalError: the file is damaged.
    """
    if job_id is not None and not _JOB_ID.fullmatch(job_id):
        raise DefinitionError(f"{job_id!r} is not a job id", next="give 32 lower-case hex digits", job=name)
    kept = kept or read_identity(storage)
    if kept is None:
        mine = Identity(job_id=job_id or new_job_id(), name=name, created_ms=clock.now_ms())
        with explained(f"beginning a checkpoint in {storage.root}", job=name, starting=True):
            storage.create_exclusive(PATH, _dump(mine))
        kept = read_identity(storage)
        if kept is None:
            raise TerminalError(f"{storage.root}/{PATH} was written and is gone", next="check who deletes files there")
    if job_id is not None and kept.job_id != job_id:
        raise DefinitionError(
            f"{storage.root} is the checkpoint of job {kept.name!r} with id {kept.job_id}, not {job_id}",
            next=f'give this job another folder: Job({name!r}, checkpoint_dir="…")',
            job=name,
        )
    return kept


def rename(storage: Storage, identity: Identity, name: str) -> Identity:
    """Let a job have another name; its id stays. Call it when no other driver can run there. Raises OSError."""
    if identity.name != name:
        identity = replace(identity, name=name)
        storage.replace(PATH, _dump(identity))
    return identity


def read_identity(storage: Storage) -> Identity | None:
    """Return the identity kept in a checkpoint folder, or None if no job ran there.

    Raises:
        TerminalError: the file is damaged.
    """
    return read_record(storage, PATH, parsed(Identity), next="restore the file from a backup")


def _dump(identity: Identity) -> bytes:
    return json.dumps({"v": 1, **asdict(identity)}).encode() + b"\n"
