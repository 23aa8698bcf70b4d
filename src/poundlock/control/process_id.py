"""Whether a process that was noted down is still that process: its id together with when it started.

A number that the system has given to another process since is never taken for the first one, nor sent a signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

CANCEL = signal.SIGUSR2
"""Asks a job's process, or its supervisor, for an end at once. Two signals of a person's that mean it may come apart, and the job may have
ended cleanly behind the first."""

_STATE, _START = 0, 19  # fields of /proc/<pid>/stat behind the name, which may hold blanks and brackets


def process_start(pid: int) -> str | None:
    """Return when a process started, as text that no other process of this id will have; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _asked(pid)
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[_STATE] in ("Z", "X"):
        return None  # it has ended, and nobody has asked how
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot}/{fields[_START]}"
    return fields[_START]


def is_alive(pid: int, start: str) -> bool:
    """Return whether the process that started then is still there."""
    return process_start(pid) == start


def same_boot(start: str) -> bool:
    """Return whether a process was started since this machine was, as far as the system tells."""
    mine = process_start(os.getpid())
    return mine is not None and "/" in mine and mine.partition("/")[0] == start.partition("/")[0]


def send_signal(pid: int, start: str, number: signal.Signals) -> bool:
    """Send a signal to the process that started then; return False if it is gone."""
    try:
        handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        return False
    try:
        # The handle stands for one process, whoever has the number by the time the signal is sent.
        if not is_alive(pid, start):
            return False
        if handle is not None:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True


def _asked(pid: int) -> str | None:
    """Return what `ps` says, where there is no /proc."""
    try:
        done = subprocess.run(
            ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    state, _, start = done.stdout.strip().partition(" ")
    return None if not start or state.startswith("Z") else start.strip()
