"""A command in a terminal of its own, as a person has it: keys go in, the screen's text comes out, Ctrl-C is a signal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07|\r")
_ROWS, _COLUMNS = 40, 120


class PseudoTerminal:
    """Runs a command in a pseudo terminal until it ends."""

    def __init__(self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        given = {"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", "LINES": str(_ROWS), "COLUMNS": str(_COLUMNS)}
        self.process = subprocess.Popen(
            arguments,
            cwd=folder,
            env={**environment, **given},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._seen = ""
        self._at = 0

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._master)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def await_text(self, text: str, seconds: float = 300.0) -> str:
        """Wait until a text comes up behind what was awaited before; return what stands before it.

        Raises:
            TimeoutError: it does not; the error has what came instead.
        """
        deadline = time.monotonic() + seconds
        while True:
            screen = self._screen()
            place = screen.find(text, self._at)
            if place >= 0:
                before, self._at = screen[self._at : place], place + len(text)
                return before
            if not self._read(deadline):
                raise TimeoutError(f"no {text!r} in {screen[self._at :][-3000:]!r}")

    def await_end(self, seconds: float = 300.0) -> int:
        """Wait until the command has ended; return its exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        return self.process.wait(max(deadline - time.monotonic(), 0.1))

    @property
    def rest(self) -> str:
        """What has come up behind what was awaited."""
        return self._screen()[self._at :]

    def _screen(self) -> str:
        return _ESCAPES.sub("", self._seen)

    def _read(self, deadline: float) -> bool:
        """Read what comes; return whether something has, before the end and the deadline."""
        ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # nobody has the other end any more
            return False
        self._seen += data.decode(errors="replace")
        return bool(data)
