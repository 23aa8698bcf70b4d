"""Servers that a test starts: their processes, which do not outlive the one that started them (on Linux), and their ports.

Ports are below those that outgoing connections get, so that one is still free when its server is started again.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from poundlock.errors import DefinitionError

__all__ = ["free_port", "is_free", "launch"]

# Run in the new process before the server takes its place: the kernel then kills it when its starting thread ends.
_BOUND_TO_PARENT = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"
    "os.getppid() == int(sys.argv[1]) or os._exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


def launch(
    command: Sequence[str], output: Path, *, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own.

    Args:
        command: its program, by its whole path, and arguments.
        output: file to which all it says is appended.
        environment: its environment; default: this process's.

    Raises:
        OSError: it could not be started.
    """
    command = list(command)
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", "-c", _BOUND_TO_PARENT, str(os.getpid()), *command]
    started: list[subprocess.Popen[bytes] | OSError] = []
    ready = threading.Event()

    def live() -> None:
        # The thread stays as long as the server, because the kernel looks at the thread and not at the process.
        try:
            with output.open("ab") as out:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env=environment
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
        raise started[0]
    return started[0]


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port of the loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
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
