"""A job as a child process: start it as a user would, watch its progress lines, kill its driver, see that nothing stays.

Every process that descends from a `JobProcess` carries a tag in its environment, so that what a killed driver leaves behind
is looked up, and ended, without ever touching a process somebody else started.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

TAG = "POUNDLOCK_PROCESS_TAG"

_PIPE_GRACE_S = 5.0  # a JVM that outlives its driver holds the other end of the pipe until it ends too


def new_tag() -> str:
    """Return a tag no other process carries."""
    return uuid.uuid4().hex


def completed(value: Mapping[str, Any]) -> int:
    """Return the number of the newest checkpoint that this life of the job completed, by a progress line; -1 before the first."""
    checkpoint = value.get("checkpoint")
    return checkpoint if isinstance(checkpoint, int) and value.get("last_ms") is not None else -1


def tagged(tag: str) -> list[psutil.Process]:
    """Return the living processes that carry a tag in their environment, except this one."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(TAG) == tag:
                processes.append(process)
    return [p for p in processes if alive(p)]


def alive(process: psutil.Process) -> bool:
    """Return whether a process is there, and more than an entry that its parent has yet to read."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def end_tagged(tag: str, *, patience_s: float = 20.0) -> list[str]:
    """Wait for the tagged processes to end by themselves, then SIGKILL the rest; return the command lines of those."""
    deadline = time.monotonic() + patience_s
    while (left := tagged(tag)) and time.monotonic() < deadline:
        time.sleep(0.1)
    stayed = []
    for process in left:
        with contextlib.suppress(psutil.Error):
            stayed.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
            process.kill()
    deadline = time.monotonic() + 5
    while any(alive(process) for process in left) and time.monotonic() < deadline:
        time.sleep(0.05)  # not psutil.wait_procs: it would take a child's exit code from whoever started it
    return stayed


@dataclass(frozen=True, slots=True)
class Line:
    """One progress line: what the job printed and when it arrived (`time.monotonic()`)."""

    at: float
    value: Mapping[str, Any]


class JobProcess:
    """One life of a job, started by `poundlock run … --json`, or of a script of SQL.

    Args:
        job: the job file, with `:name` where it holds several.
        arguments: further arguments of `poundlock run`.
        environment: variables added to this process's own.
        tag: carried by the whole process tree; see `tagged`.
        log: file that everything else the process prints is appended to.
        command: that runs it: "run", or "sql" for a script, which prints no progress.
    """

    def __init__(
        self,
        job: str | Path,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        tag: str,
        log: Path,
        command: Literal["run", "sql"] = "run",
    ) -> None:
        self._lines: list[Line] = []
        self._changed = threading.Condition()
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self.started = time.monotonic()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "poundlock.cli.main", command, str(job), "--json", *arguments],
                env={**os.environ, **(environment or {}), TAG: tag},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name="job-progress", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Return the driver's process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Return how the driver ended, negative for a signal; None while it lives."""
        return self._process.poll()

    def lines(self) -> Sequence[Line]:
        """Return the progress lines so far."""
        with self._changed:
            return tuple(self._lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as out, self.log.open("ab") as rest:
            for raw in out:
                rest.write(raw)
                rest.flush()
                with contextlib.suppress(ValueError):
                    value = json.loads(raw)
                    if isinstance(value, dict):
                        with self._changed:
                            self._lines.append(Line(time.monotonic(), value))
                            self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_line(self, wanted: Callable[[Mapping[str, Any]], bool], *, seconds: float, after: int = 0) -> Line | None:
        """Return the first progress line from place `after` on that is wanted; None if the job ended or the time is up first."""
        deadline = time.monotonic() + seconds
        place = after
        ended: float | None = None
        with self._changed:
            while True:
                while place < len(self._lines):
                    if wanted(self._lines[place].value):
                        return self._lines[place]
                    place += 1
                now = time.monotonic()
                left = deadline - now
                if self._process.poll() is not None:
                    ended = ended or now
                    if not self._reader.is_alive() or now - ended > _PIPE_GRACE_S:
                        return None
                if left <= 0:
                    return None
                self._changed.wait(min(left, 0.5))

    def kill(self) -> bool:
        """SIGKILL the driver and wait for its own end; return False if it has ended already."""
        if self._process.poll() is not None:
            return False
        self._process.kill()
        self._process.wait(30)
        return True

    def terminate(self) -> None:
        """Ask for a clean stop (SIGTERM to the driver)."""
        if self._process.poll() is None:
            self._process.terminate()

    def wait(self, seconds: float) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired."""
        code = self._process.wait(seconds)
        self._reader.join(5)
        return code

    def log_tail(self, characters: int = 3000) -> str:
        """Return the end of what the process printed besides progress."""
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""
