"""The line between a job's process and its supervisor: what each tells the other, in lines of JSON over a socket.

The process ends with its supervisor, however that one ends, so there are never two of them on one job.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from poundlock.driver.progress import StopRequest

VARIABLE = "POUNDLOCK_SUPERVISED"
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a process is told by its supervisor when it starts.

    Args:
        pid, process_start: the supervisor; see `process_id.process_start`.
        started_ms: when the supervisor started, ms since the epoch.
        job_id: 32 hex digits that the job gets if it begins with a savepoint; the same for every process of one supervisor.
        troubles: why the processes before this one ended, as (what, ms since the epoch), the newest last.
    """

    pid: int
    process_start: str
    started_ms: int
    job_id: str
    restarts: int = 0
    troubles: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ending:
    """A process's last word.

    Args:
        final: whether the job itself decided so: it was stopped, or its restart strategy has given up.
        failure: the two lines it failed with, as (what, next).
    """

    state: str
    exit_code: int
    final: bool
    failure: tuple[str, str] | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)


class LineBuffer:
    """Takes bytes as they come and gives the whole lines in them, each a JSON value."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[Any]:
        """Return the values that are whole with these bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines if line]


class Supervised:
    """The job's end of the line."""

    def __init__(self, line: socket.socket, situation: Situation) -> None:
        self.situation = situation
        self._line = line
        self._lock = threading.Lock()
        self._checkpointed = False

    def tell(self, **message: Any) -> None:
        """Tell the supervisor something; returns whether or not it hears."""
        with self._lock, suppress(OSError):
            self._line.sendall(json.dumps(message, default=str).encode() + b"\n")

    def checkpointed(self) -> None:
        """Tell that this process got somewhere; once is enough."""
        if not self._checkpointed:
            self._checkpointed = True
            self.tell(checkpoint=True)

    def end(self, ending: Ending) -> None:
        self.tell(ended=asdict(ending))

    def listen(self, ask: Callable[[int], None], stop: StopRequest) -> None:
        """Hand on the signals that the supervisor gets, tell it of a stop that others ask for, and end when it is gone."""
        threading.Thread(target=self._forward, args=(ask,), name="poundlock-supervised", daemon=True).start()
        threading.Thread(target=self._watch, args=(stop,), name="poundlock-stop", daemon=True).start()

    def _forward(self, ask: Callable[[int], None]) -> None:
        lines = LineBuffer()
        while data := self._received():
            for number in lines.take(data):
                ask(int(number))
        os.kill(os.getpid(), signal.SIGKILL)

    def _received(self) -> bytes:
        try:
            return self._line.recv(4096)
        except OSError:
            return b""

    def _watch(self, stop: StopRequest) -> None:
        while not stop.wait(3600.0):
            pass
        self.tell(stopping=True)


def supervised() -> Supervised | None:
    """Return this process's line to its supervisor, None if it has none. To be called once, and early.

    Whoever this process starts is not supervised by that supervisor.
    """
    text = os.environ.pop(VARIABLE, None)
    if text is None:
        return None
    handle, situation = msgspec.json.decode(text, type=tuple[int, Situation])
    os.set_inheritable(handle, False)
    _die_with(situation.pid)
    return Supervised(socket.socket(fileno=handle), situation)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process with its parent, where it can; elsewhere the end of the line does it."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before it could be asked for
        os.kill(os.getpid(), signal.SIGKILL)
