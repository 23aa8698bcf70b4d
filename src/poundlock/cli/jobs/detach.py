"""`poundlock run -d`: the job as a process in a session of its own, which goes on when the terminal is closed.

Whoever started it is told the job's id once it runs, or the two lines it failed with.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from poundlock.cli.output import Output
from poundlock.control.logs import stamped
from poundlock.errors import DefinitionError, PoundlockError

if TYPE_CHECKING:
    from poundlock.config import Settings
    from poundlock.control.registry import JobEntry


_POLL_S = 0.1
_UNDER_WAY = ("RUNNING", "RESTARTING", "FINISHED")


@dataclass(frozen=True, kw_only=True)
class _Started:
    """A process that was started, and where its output goes."""

    process: subprocess.Popen[bytes]
    output: Path
    since_ms: int


def detach(target: str, arguments: Sequence[str], settings: Settings, output: Output) -> int:
    """Start a job as a process of its own and wait until it runs or has failed; return the exit code.

    Raises DefinitionError: the folder of logs cannot be written.
    """
    started = _start(target, arguments, settings)
    entry = _wait(started, settings)
    if entry is not None and entry.state in _UNDER_WAY:
        for line in _restored(started.output):
            output.note(line)
        if entry.state == "RESTARTING" and entry.failure is not None:
            output.note(f"the job is restarting: {entry.failure[0]}")
        data = {name: getattr(entry, name) for name in ("job_id", "name", "pid", "state", "log")}
        output.show(f"Job has been submitted with JobID {entry.job_id}", {**data, "output": str(started.output)})
        return 0
    code = started.process.wait()
    error = failure_in(started.output)
    if error is None and entry is not None and entry.failure is not None:
        error = PoundlockError(entry.failure[0], next=entry.failure[1])
    if error is None:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        error = PoundlockError(f"the job ended before it ran ({how})", next=f"read {started.output}")
    output.error(error)
    return 128 - code if code < 0 else code or error.exit_code


def _restored(path: Path) -> Sequence[str]:
    """Return what the process said of the savepoint it began with."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    return re.findall(
        r"^[A-Z]+  ((?:Restored from|Rescaling|Not restored|Not in the savepoint|Not looked at).*)$", text, re.M
    )


def failure_in(path: Path) -> PoundlockError | None:
    """Return the error that a process printed last, None if it printed none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    errors = re.findall(r"^error: (.*)\nNext: (.*)$", text, re.MULTILINE)
    return PoundlockError(errors[-1][0], next=errors[-1][1]) if errors else None


def _start(target: str, arguments: Sequence[str], settings: Settings) -> _Started:
    path = settings.logs / stamped(Path(target.partition(":")[0]).stem, ".out")
    since = time.time_ns() // 1_000_000
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "poundlock", "run", target, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise DefinitionError(
            f"{path.parent} cannot be written: {error.strerror or error}",
            next="set log_dir to a folder of yours: -D log_dir=…",
        ) from error
    return _Started(process=process, output=path, since_ms=since)


def _wait(started: _Started, settings: Settings) -> JobEntry | None:
    """Return the job's entry once it is under way or has ended; None if it ended before it had one."""
    from poundlock.control.registry import Registry

    registry = Registry(settings.state_dir)
    while True:
        over = started.process.poll() is not None
        entry = registry.of_process(started.process.pid)
        if entry is not None and entry.started_ms >= started.since_ms:
            if entry.ended or entry.state in _UNDER_WAY:
                return entry
        elif over:
            return None
        time.sleep(_POLL_S)
