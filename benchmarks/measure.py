"""A meter for a whole process tree: CPU seconds, peak memory and wall time of one command and everything it starts.

The figure misses no process: the meter is the reaper of the command's orphans, so what ended early is counted as well.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["Usage", "UsageLost", "process_cpu_s", "run"]

_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PSS = re.compile(r"^Pss: +(\d+) kB$", re.MULTILINE)


class UsageLost(Exception):
    """The command failed, was stopped at its time limit, or left processes behind that had to be killed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What one command cost.

    Args:
        code: exit code of the command, negative for a signal.
        wall_s: seconds from its start to its end.
        cpu_s: user + system seconds of the command and all its descendants, the ended ones included.
        peak_mb: largest sum over the tree of resident memory, sampled; a page that several processes have counts once.
        load: the machine's load average (1 minute) when the command ended.
        left_behind: processes that outlived the command and were killed.
        parts: CPU seconds by kind of process, as sampled: what ran between two samples only is missing.
    """

    code: int
    wall_s: float
    cpu_s: float
    peak_mb: float
    load: float
    left_behind: int = 0
    parts: Mapping[str, float] = field(default_factory=dict)


def process_cpu_s(pid: int) -> float:
    """Return user + system seconds of one live process with all its threads, children not included."""
    fields = _stat(pid)
    return 0.0 if fields is None else (int(fields[11]) + int(fields[12])) / _TICKS


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
    timeout_s: float = 1800.0,
    grace_s: float = 10.0,
) -> Usage:
    """Run a command under the meter, in a session of its own, and return what it cost.

    Args:
        command: program and arguments.
        env: its environment; default: this process's.
        cwd: its folder; default: this process's.
        log: file for its output and errors; default: they are dropped.
        timeout_s: seconds after which the tree is killed.
        grace_s: seconds that processes left behind get to end by themselves.

    Raises:
        UsageLost: it did not end with exit code 0, or processes had to be killed.
    """
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if log is not None else os.open(os.devnull, os.O_WRONLY)
    read_end, write_end = os.pipe()
    meter = [
        sys.executable,
        __file__,
        str(write_end),
        str(timeout_s),
        str(grace_s),
        *(os.fspath(word) for word in command),
    ]
    try:
        process = subprocess.Popen(
            meter,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            pass_fds=[write_end],
            start_new_session=True,
        )
    finally:
        os.close(write_end)
        os.close(sink)
    try:
        with os.fdopen(read_end, "rb") as pipe:
            answer = pipe.read()
        process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    name = " ".join(os.fspath(word) for word in command)[:200]
    tail = "" if log is None else "\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    if not answer:
        raise UsageLost(f"no figures for: {name}{tail}")
    usage = Usage(**json.loads(answer))
    if usage.code != 0 or usage.left_behind:
        raise UsageLost(f"exit code {usage.code}, {usage.left_behind} left behind: {name}{tail}")
    return usage


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split(" ")


def _memory(pid: int, resident: int) -> int:
    """Return the bytes of a process, of pages that others have as well its share; what is resident where that cannot be read."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return resident
    match = _PSS.search(text)
    return resident if match is None else int(match[1]) << 10


class _Tree:
    """Live descendants of this process, looked at now and then."""

    def __init__(self) -> None:
        self._cpu: dict[tuple[int, str], int] = {}
        self._labels: dict[tuple[int, str], str] = {}
        self.peak_bytes = 0

    def sample(self) -> list[int]:
        """Note memory and CPU of every live descendant; return their pids."""
        stats: dict[int, list[str]] = {}
        children: dict[int, list[int]] = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and (fields := _stat(int(entry))) is not None:
                stats[int(entry)] = fields
                children.setdefault(int(fields[1]), []).append(int(entry))
        found: list[int] = []
        todo = list(children.get(os.getpid(), ()))
        while todo:
            pid = todo.pop()
            found.append(pid)
            todo += children.get(pid, ())
        for pid in found:
            fields = stats[pid]
            key = (pid, fields[19])
            ticks = int(fields[11]) + int(fields[12])
            # A process may become another program after its first moments, so its name is read while it is young.
            if key not in self._labels or ticks < _TICKS // 5:
                self._labels[key] = _label(pid)
            self._cpu[key] = ticks
        self.peak_bytes = max(self.peak_bytes, sum(_memory(pid, int(stats[pid][21]) * _PAGE) for pid in found))
        return found

    @property
    def parts(self) -> dict[str, float]:
        parts: dict[str, float] = {}
        for key, ticks in self._cpu.items():
            label = self._labels[key]
            parts[label] = round(parts.get(label, 0.0) + ticks / _TICKS, 2)
        return dict(sorted(parts.items(), key=lambda item: -item[1]))

    @property
    def seen_cpu_s(self) -> float:
        return sum(self._cpu.values()) / _TICKS


def _label(pid: int) -> str:
    """Return a short name for what a process runs: "java", "python pyspark.worker", "python job.py"."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return "?"
    program = os.path.basename(words[0]).rstrip("0123456789.") or "?"
    if program != "python":
        return program
    what = [os.path.basename(word) for word in words[1:] if not word.startswith("-")]
    return " ".join([program, *what[: 2 if "-m" in words else 1]])


def _reap(block: bool) -> dict[int, int] | None:
    """Collect ended children; return their codes, or None when no child is left."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, 0 if block else os.WNOHANG)
        except ChildProcessError:
            return ended or None
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def _meter(command: list[str], timeout_s: float, grace_s: float) -> Usage:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")
    tree = _Tree()
    begin = time.monotonic()
    root = os.posix_spawnp(command[0], command, os.environ)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: _kill(tree))
    code: int | None = None
    wall = 0.0
    deadline = begin + timeout_s
    left_behind = 0
    while True:
        ended = _reap(block=False)
        if ended and root in ended:
            code, wall = ended[root], time.monotonic() - begin
            deadline = time.monotonic() + grace_s
        if ended is None:
            break
        live = tree.sample()
        if time.monotonic() > deadline:
            left_behind = max(left_behind, len(live))
            _kill(tree)
        time.sleep(0.25 if code is None else 0.05)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    # A parent that ignores SIGCHLD drops its children's times from the kernel's sum; what was sampled of them is a floor.
    cpu_s = max(used.ru_utime + used.ru_stime, tree.seen_cpu_s)
    return Usage(
        code=-1 if code is None else code,
        wall_s=wall,
        cpu_s=cpu_s,
        peak_mb=tree.peak_bytes / 2**20,
        load=os.getloadavg()[0],
        left_behind=left_behind,
        parts=tree.parts,
    )


def _kill(tree: _Tree) -> None:
    for pid in tree.sample():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _main() -> None:
    write_end, timeout_s, grace_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    os.set_inheritable(write_end, False)
    usage = _meter(sys.argv[4:], timeout_s, grace_s)
    with os.fdopen(write_end, "w") as pipe:
        json.dump(asdict(usage), pipe)


if __name__ == "__main__":
    _main()
