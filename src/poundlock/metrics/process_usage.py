"""Memory and CPU of this process, of what a task takes of it, and of the processes below it."""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from poundlock.metrics.load import TaskUsage

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What processes of a kind take.

    Args:
        memory_bytes: resident memory.
        cpu_s: CPU time, user and system, since they began.
    """

    memory_bytes: int
    cpu_s: float

    def plus(self, other: ProcessUsage) -> ProcessUsage:
        """Return the sum of two."""
        return ProcessUsage(self.memory_bytes + other.memory_bytes, self.cpu_s + other.cpu_s)


@dataclass
class UsageMeter:
    """Measures what an attempt of a task takes, from its making on."""

    _began: float = field(default_factory=time.perf_counter)
    _cpu_began: float = field(default_factory=time.process_time)

    def usage(self) -> TaskUsage:
        """Return what it has taken up to now."""
        return TaskUsage(
            worker=f"{socket.gethostname()}:{os.getpid()}",
            took_ms=(time.perf_counter() - self._began) * 1000,
            cpu_ms=(time.process_time() - self._cpu_began) * 1000,
            memory_bytes=_peak_bytes(),
        )


def of_processes() -> dict[str, ProcessUsage]:
    """Return what this process takes, as "driver", and the JVMs below it, as "java"; on systems without /proc the first alone.

    Worker processes are below a JVM on one machine; they are measured by the tasks themselves, which may run anywhere.
    """
    times = os.times()
    usages = {"driver": ProcessUsage(_resident_bytes(), times.user + times.system)}
    for pid in _below(os.getpid()):
        with suppress(OSError, ValueError, IndexError):
            name, usage = _of(pid)
            if name == "java":
                usages["java"] = usages.get("java", ProcessUsage(0, 0.0)).plus(usage)
    return usages


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _resident_bytes() -> int:
    try:
        return int((_PROC / "self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return _peak_bytes()


def _below(pid: int) -> Iterator[int]:
    """Yield the processes that a process has begun, and those that they have."""
    with suppress(OSError):
        for thread in os.listdir(_PROC / str(pid) / "task"):
            with suppress(OSError):
                for child in (_PROC / str(pid) / "task" / thread / "children").read_text().split():
                    yield int(child)
                    yield from _below(int(child))


def _of(pid: int) -> tuple[str, ProcessUsage]:
    """Return the name of a process and what it takes; see proc(5) for the fields of its `stat`."""
    name, _, rest = (_PROC / str(pid) / "stat").read_text().partition("(")[2].rpartition(")")
    fields = rest.split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return name, ProcessUsage(int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), cpu)
