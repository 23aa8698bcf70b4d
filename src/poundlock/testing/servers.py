"""Servers that a test starts: the life of each, its processes, which do not outlive the one that started them (on Linux), and its ports.

Ports are below those that outgoing connections get, so that one is still free when its server is started again.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from poundlock.errors import DefinitionError, TransientError

# Run in the new process before the server takes its place: the kernel then kills it when its starting thread ends.
_CHILD = (
    "import ctypes, os, signal, sys\n"
    "parent, user, program = int(sys.argv[1]), sys.argv[2], sys.argv[3:]\n"
    "if user:\n"
    "    import pwd\n"
    "    who = pwd.getpwnam(user)\n"
    "    os.setgroups([]); os.setgid(who.pw_gid); os.setuid(who.pw_uid)\n"
    "    os.environ['HOME'] = '/'\n"
    "if parent:\n"
    "    ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"
    "    os.getppid() == parent or os._exit(1)\n"
    "os.execv(program[0], program)\n"
)
_LAST_OUTPUT_CHARS = 1500  # so much of what a server printed last stands in an error


class Servers(ABC):
    """One or more servers over one folder, to use in a `with` block, or by `start()` and `close()`.

    Args:
        home: the folder; it stays afterwards. None = a temporary one.
        prefix: what the name of a temporary folder begins with.
    """

    def __init__(self, home: str | os.PathLike[str] | None, prefix: str) -> None:
        self._temporary = home is None
        self.home = Path(home) if home is not None else Path(tempfile.mkdtemp(prefix=prefix))

    @abstractmethod
    def start(self) -> Self:
        """Start them and wait until they answer."""

    @abstractmethod
    def close(self) -> None:
        """Stop them and remove their folder, if that was a temporary one."""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()


class ServerProcess(Servers):
    """A server that is one process, with what it logs in one file. A subclass says what is run, and when it answers.

    Args:
        home, prefix: see `Servers`.
        port: TCP port on 127.0.0.1; None = any free one. It stays the same over `kill`, `stop` and `start`.
    """

    title: ClassVar[str] = "the server"  # as errors call it
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    start_s: ClassVar[float] = 240
    log_name: ClassVar[str] = "server.log"
    _process: subprocess.Popen[bytes] | None = None

    def __init__(self, home: str | os.PathLike[str] | None, prefix: str, port: int | None = None) -> None:
        super().__init__(home, prefix)
        self._port = port

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Its process id, None while it does not run."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def port(self) -> int:
        """TCP port on 127.0.0.1. Raises RuntimeError before the first start."""
        if self._port is None:
            raise RuntimeError(f"{self.title} was not started yet")
        return self._port

    @property
    def log_file(self) -> Path:
        """Where it logs."""
        return self.home / self.log_name

    def start(self, timeout: float | None = None) -> Self:
        """Start it, on the port and data of an earlier start if there was one, and wait until it answers.

        Args:
            timeout: most seconds to wait; default: `start_s`.

        Raises:
            DefinitionError: something it needs is not installed, or its port is taken.
            TransientError: it did not come up; the text ends with what it logged last.
        """
        if not self.running:
            self._port = port_to_use(self._port)
            self._start(self.start_s if timeout is None else timeout)
        return self

    def _start(self, timeout: float) -> None:
        # The time begins here: what the command needs may have to be fetched or built, which takes minutes.
        self._process = launch(self._command(), self.log_file, title=self.title, environment=self._environment())
        self._wait(self._answers, time.monotonic() + timeout)

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Return the program, by its whole path, and its arguments."""

    def _environment(self) -> Mapping[str, str] | None:
        """Return its environment, None for this process's."""
        return None

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether it can be used by now."""

    def stop(self, timeout: float = 15) -> None:
        """Stop it in order; kill it where it takes longer than `timeout` seconds. The data stays."""
        if self._process is not None and self.running:
            self._process.send_signal(self.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """Kill it as a crash would. `start()` brings it back on the same port and data."""
        end(self._process)
        self._process = None

    def restart(self, timeout: float | None = None) -> Self:
        """Kill and start it again."""
        self.kill()
        return self.start(timeout)

    def close(self) -> None:
        """Stop it and remove its folder, if that was a temporary one."""
        if self._temporary:
            self.kill()  # nothing is kept, so there is nothing to put in order
            shutil.rmtree(self.home, ignore_errors=True)
        else:
            self.stop()

    def _wait(self, answers: Callable[[], bool], end: float) -> None:
        """Wait until it answers. Raises TransientError where it has ended, or the time is up."""
        while True:
            if not self.running or time.monotonic() > end:
                self.kill()
                raise TransientError(f"{self.title} in {self.home} did not come up: {self._last_output()}")
            if answers():
                return
            time.sleep(0.05)

    def _last_output(self) -> str:
        return self.log_file.read_text(errors="replace")[-_LAST_OUTPUT_CHARS:] if self.log_file.exists() else ""


def launch(
    command: Sequence[str],
    output: Path,
    *,
    title: str = "the server",
    environment: Mapping[str, str] | None = None,
    user: str = "",
    cwd: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own.

    Args:
        command: its program, by its whole path, and arguments.
        output: file to which all it says is appended.
        user: who it runs as; "" = the one who runs this.

    Raises:
        TransientError: it could not be started.
    """
    command = as_user(command, user, bound=sys.platform == "linux")
    started: list[subprocess.Popen[bytes] | OSError] = []
    ready = threading.Event()

    def live() -> None:
        # The thread stays as long as the server, because the kernel looks at the thread and not at the process.
        try:
            with output.open("ab") as out:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                    env=environment,
                    cwd=cwd,
                )
        except OSError as error:
            started.append(error)
            return ready.set()
        started.append(process)
        ready.set()
        process.wait()

    threading.Thread(target=live, name=f"server {output.stem}", daemon=True).start()
    ready.wait()
    if isinstance(started[0], OSError):
        raise TransientError(f"{title} could not be started: {started[0]}") from started[0]
    return started[0]


def as_user(command: Sequence[str], user: str, *, bound: bool = False) -> list[str]:
    """Return the command that runs one as another user, and bound to this process where that is asked for."""
    if not user and not bound:
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _CHILD, str(os.getpid() if bound else 0), user, *command]


def end(process: subprocess.Popen[bytes] | None) -> None:
    """Kill a process, where there is one, and wait until it is gone."""
    if process is not None:
        process.kill()
        process.wait()


def end_with_children(process: subprocess.Popen[bytes] | None) -> None:
    """Kill a process with all it has started, where there is one, and wait until they are gone."""
    if process is None:
        return
    import psutil

    children: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()
    process.wait()
    psutil.wait_procs(children, timeout=10)


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port of the loopback."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def free_port(taken: Collection[int] = ()) -> int:
    """Return a free port, other than those given.

    Raises:
        DefinitionError: there is none.
    """
    chance = random.SystemRandom()
    for _ in range(1000):
        port = chance.randrange(15000, 32000)
        if port not in taken and is_free(port):
            return port
    raise DefinitionError("no free port between 15000 and 32000 on 127.0.0.1", next="stop something that listens")


def port_to_use(port: int | None, taken: Collection[int] = ()) -> int:
    """Return the port of an earlier start, or one that was asked for; else a free one other than those given.

    Raises:
        DefinitionError: somebody else listens on it.
    """
    if not port:
        return free_port(taken)
    if not is_free(port):
        raise DefinitionError(f"port {port} on 127.0.0.1 is taken", next="give another port, or stop what uses it")
    return port
