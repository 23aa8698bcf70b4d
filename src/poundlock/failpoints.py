"""Named points of the checkpoint protocol at which a test can make a process die or fail.

One member per line of the protocol tables in docs/concepts.md and docs/savepoints.md; the crash tests iterate over the enums,
so a new step cannot go untested. Nothing happens unless the environment variable POUNDLOCK_FAILPOINTS asks for it.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from enum import Enum
from pathlib import Path

ENVIRONMENT = "POUNDLOCK_FAILPOINTS"


class Failpoint(Enum):
    """A step of one checkpoint. The value is the name used in POUNDLOCK_FAILPOINTS. A job without keyed state writes none."""

    CHECKPOINT_PLANNED = "checkpoint.planned"
    CHECKPOINT_ENTERED = "checkpoint.entered"
    TASKS_READING = "tasks.reading"
    SINK_WRITING = "sink.writing"
    STATE_WRITING = "state.writing"
    SINK_PREPARED = "sink.prepared"
    PREPARE_VERIFIED = "prepare.verified"
    DECISION_RECORDED = "decision.recorded"
    SINK_COMMITTING = "sink.committing"
    SINK_COMMITTED = "sink.committed"
    CHECKPOINT_DONE = "checkpoint.done"


class DeletionPoint(Enum):
    """A step of the deletion of a cancelled job's checkpoint, which is no part of any checkpoint."""

    COMMITTED = "deletion.carried-out"
    MARKED = "deletion.marked"
    SWEPT = "deletion.swept"
    FILE_DELETED = "deletion.file-deleted"


class StreamFailpoint(Enum):
    """A step of a batch that a query of Spark's stages for a job. The value is the name used in POUNDLOCK_FAILPOINTS."""

    WRITING = "stream.writing"
    WRITTEN = "stream.written"
    STAGED = "stream.staged"


class SavepointFailpoint(Enum):
    """A step of a savepoint that is taken, or of one that is restored. The value is the name used in POUNDLOCK_FAILPOINTS."""

    CUT = "savepoint.cut"
    FINISHED = "savepoint.finished"
    LEFT = "savepoint.left"
    RESTORE_BEGUN = "restore.begun"
    RESTORE_COPIED = "restore.copied"
    RESTORE_IDENTIFIED = "restore.identified"


class InjectedFailure(RuntimeError):
    """Raised by a failpoint set to `raise`."""


_seen: dict[str, int] = {}


def hit(point: Failpoint | SavepointFailpoint | StreamFailpoint | DeletionPoint) -> None:
    """Do what POUNDLOCK_FAILPOINTS says for this point; nothing if it is not set.

    The variable is a comma-separated list of `name:action[@times]`: the action happens at the `times`-th pass of this
    process (default 1). Actions: `kill` (SIGKILL this process), `kill-parent` (SIGKILL the parent process),
    `stop` (SIGSTOP this process, until somebody sends SIGCONT), `raise` (InjectedFailure), `enospc` (OSError as from a full
    disk), `sleep` (10 s). A further `once=PATH` after a
    semicolon creates PATH before acting and does nothing where it exists, so that a restarted process goes on.
    """
    setting = os.environ.get(ENVIRONMENT)
    if not setting:
        return
    for entry in setting.split(","):
        spec, _, once = entry.partition(";once=")
        name, _, action = spec.strip().partition(":")
        action, _, times = action.partition("@")
        if name != point.value:
            continue
        _seen[entry] = _seen.get(entry, 0) + 1
        if _seen[entry] != int(times or 1):
            continue
        if once:
            try:
                os.close(os.open(once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
        _act(action, point)


def _act(action: str, point: Failpoint | SavepointFailpoint | StreamFailpoint | DeletionPoint) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "kill-parent":
        os.kill(os.getppid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "enospc":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(Path("injected") / point.value))
    elif action == "sleep":
        time.sleep(10)
    elif action == "raise":
        raise InjectedFailure(f"failpoint {point.value}")
    else:
        raise ValueError(f"unknown failpoint action {action!r}")
