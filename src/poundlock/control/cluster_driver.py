"""A driver that was submitted: what it knows of the container it runs in, and how it ends with it.

Its JVM is its parent, and carries one session: where another one is needed, the driver leaves, and the cluster starts the
next attempt, which goes on from the checkpoint.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from poundlock.errors import FencedError

VARIABLE = "POUNDLOCK_SUBMITTED"

# Exit codes that say more than those of the command line: all that the cluster tells of a driver which could not write a word.
OTHER_PYTHON = 200  # and the minor version of that Python; 128 and more are signals
NOT_INSTALLED = 70
ANOTHER_ATTEMPT = 75

_POLL_S = 0.5
_CONTAINER = re.compile(r"container_(?:e[0-9]+_)?([0-9]+)_([0-9]+)_([0-9]+)_[0-9]+")

_given_up = threading.Event()
_parent = os.getppid()


@dataclass(frozen=True, kw_only=True)
class Container:
    """Where a submitted driver runs: the cluster's attempts count from 1, and the job's id is what it gets if it begins with a savepoint,
    32 hex digits that are the same for every attempt."""

    application: str
    attempt: int
    checkpoint: str
    job_id: str

    @classmethod
    def of(cls, id: str, *, checkpoint: str, job_id: str) -> Container:
        """Return what YARN's id of a container says. Raises ValueError if it is none."""
        match = _CONTAINER.fullmatch(id)
        if match is None:
            raise ValueError(f"{id!r} is no container of YARN's")
        return cls(
            application=f"application_{match[1]}_{match[2]}",
            attempt=int(match[3]),
            checkpoint=checkpoint,
            job_id=job_id,
        )

    def to_environment(self) -> str:
        """Return it as it is kept in this process's environment."""
        return json.dumps(asdict(self))


def container(environment: Mapping[str, str] | None = None) -> Container | None:
    """Return where this driver was submitted to; None if it is a process that a user started."""
    text = (os.environ if environment is None else environment).get(VARIABLE)
    return Container(**json.loads(text)) if text else None


def end_with_parent() -> None:
    """End this process as soon as its parent is gone: a container may be taken away process by process."""

    def watch() -> None:
        while os.getppid() == _parent:
            time.sleep(_POLL_S)
        os._exit(1)

    threading.Thread(target=watch, name="poundlock-parent", daemon=True).start()


def jvm_alive() -> bool:
    """Return whether the container's JVM is there and this driver still uses it."""
    return os.getppid() == _parent and not _given_up.is_set()


def give_up() -> None:
    """Use the JVM no more: it cannot be killed from here, and ends when this process does."""
    _given_up.set()


def end_fenced() -> None:
    """End this process: another driver has taken over, and this one may have nothing to decide at which it would notice."""
    logging.shutdown()
    os._exit(FencedError.exit_code)


def leave() -> None:
    """End this attempt as a crash would, so that the cluster starts the next one. Does nothing outside a container."""
    if container() is not None:
        logging.shutdown()
        os._exit(ANOTHER_ATTEMPT)
