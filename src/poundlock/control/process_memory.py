"""How much memory the processes of a job take on this machine: the driver, its JVM and what the two have started.

Of memory that processes share, each has its part (the kernel's proportional set size), so that the sum is what the job takes. Where
the system does not tell, nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_PARENT = 1  # field of /proc/<pid>/stat behind the name


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """One process: its program is such as "java"."""

    pid: int
    program: str
    bytes: int


def memory_of(process: int) -> list[ProcessMemory]:
    """Return the memory of a process and of all that it has started, itself first; nothing where that is not known."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    measured, todo = [], [process]
    while todo:
        pid = todo.pop(0)
        todo += sorted(children.get(pid, []))
        with suppress(OSError, ValueError):  # it has ended meanwhile, or is another user's
            program = (_PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
            measured.append(ProcessMemory(pid=pid, program=program, bytes=_share(pid)))
    return measured


def _parents() -> Iterator[tuple[int, int]]:
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            yield int(folder.name), int(stat.rpartition(")")[2].split()[_PARENT])


def _share(pid: int) -> int:
    """Return a process's proportional set size, bytes. Raises OSError or ValueError where it is not known."""
    for line in (_PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "Pss":
            return int(value.split()[0]) * 1024
    raise ValueError(f"nothing is known of the memory of process {pid}")
