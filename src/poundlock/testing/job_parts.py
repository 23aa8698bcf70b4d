"""The processes of a running job by their part, and how one of them is killed: the driver, its JVM, a Python worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import psutil

from poundlock.spark.worker_daemon import MODULE as DAEMON
from poundlock.testing.job_process import JobProcess, alive

Victim = Literal["driver", "jvm", "worker"]


def parts(job: JobProcess) -> Iterator[tuple[Victim, psutil.Process]]:
    """Yield the living processes of the job with their part: the driver, its JVM, the Python workers of that."""
    with contextlib.suppress(psutil.Error):
        driver = psutil.Process(job.pid)
        if alive(driver):
            yield "driver", driver
        for child in driver.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                part = _part(child)
                if part is not None and alive(child):
                    yield part, child


def kill_part(
    job: JobProcess, victim: Victim, choose: Callable[[Sequence[psutil.Process]], psutil.Process] | None = None
) -> bool:
    """SIGKILL one process of this part; return False if there is none now."""
    candidates = [process for part, process in parts(job) if part == victim]
    if not candidates:
        return False
    chosen = choose(candidates) if choose else candidates[0]
    try:
        chosen.kill()
    except psutil.NoSuchProcess:
        return False
    return True


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
