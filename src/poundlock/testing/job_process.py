"""A job as a child process: start it as a user would, watch its progress lines, kill any part of it, see that nothing stays.

Every process that descends from a `JobProcess` carries a tag in its environment, so that what a killed driver leaves behind
is found, and ended, without ever touching a process somebody else started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from poundlock.spark.worker_daemon import MODULE as DAEMON

TAG = "POUNDLOCK_PROCESS_TAG"

Victim = Literal["driver", "jvm", "worker"]

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
    return [p for p in processes if _alive(p)]


def _alive(process: psutil.Process) -> bool:
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
    while any(_alive(process) for process in left) and time.monotonic() < deadline:
        time.sleep(0.05)  # not psutil.wait_procs: it would take a child's exit code from whoever started it
    return stayed


@dataclass(frozen=True, slots=True)
class Line:
    """One progress line: what the job said and when it arrived (`time.monotonic()`)."""

    at: float
    value: Mapping[str, Any]


class JobProcess:
    """One life of a job, started by `poundlock run … --json`.

    Args:
        job: the job file, with `:name` where it holds several.
        arguments: further arguments of `poundlock run`.
        environment: variables added to this process's own.
        tag: carried by the whole process tree; see `tagged`.
        log: file that everything else the process prints is appended to.
        on_line: called with each progress line, in the reading thread.
    """

    def __init__(
        self,
        job: str | Path,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        tag: str,
        log: Path,
        on_line: Callable[[Line], None] | None = None,
    ) -> None:
        self._lines: list[Line] = []
        self._changed = threading.Condition()
        self._on_line = on_line
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self.started = time.monotonic()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "poundlock.cli.main", "run", str(job), "--json", *arguments],
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
                        self._note(Line(time.monotonic(), value))
        with self._changed:
            self._changed.notify_all()

    def _note(self, line: Line) -> None:
        with self._changed:
            self._lines.append(line)
            self._changed.notify_all()
        if self._on_line is not None:
            self._on_line(line)

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

    def tree(self) -> Iterator[tuple[Victim, psutil.Process]]:
        """Yield the living processes of the job with their part: the driver, its JVM, the Python workers of that."""
        with contextlib.suppress(psutil.Error):
            driver = psutil.Process(self.pid)
            if _alive(driver):
                yield "driver", driver
            for child in driver.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    part = _part(child)
                    if part is not None and _alive(child):
                        yield part, child

    def kill(
        self, victim: Victim = "driver", choose: Callable[[Sequence[psutil.Process]], psutil.Process] | None = None
    ) -> bool:
        """SIGKILL one process of this part; return False if there is none now. The driver is not waited for beyond its own end."""
        candidates = [process for part, process in self.tree() if part == victim]
        if not candidates:
            return False
        chosen = choose(candidates) if choose else candidates[0]
        try:
            chosen.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            return False
        if victim == "driver":
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


def _part(process: psutil.Process) -> Victim | None:
    command = process.cmdline()
    if command and Path(command[0]).name == "java":
        return "jvm"
    # The daemon only forks; its children are the workers that hold a task's open files.
    if _forks_workers(command):
        parent = process.parent()
        if parent is not None and _forks_workers(parent.cmdline()):
            return "worker"
    return None


def _forks_workers(command: Sequence[str]) -> bool:
    return any(word in ("pyspark.daemon", DAEMON) for word in command) and "pyspark.worker" in command
