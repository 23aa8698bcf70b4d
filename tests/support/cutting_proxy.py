"""A proxy between a client and a server that takes a request to the server and cuts the client off before the answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class CuttingProxy:
    """Forwards connections of the loopback to a port. Use it in a `with` block.

    Args:
        port: of the server.
    """

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._cuts = 0
        self._needle = b""
        self._lock = threading.Lock()
        self.done = 0
        """How many answers were cut off."""

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def cut(self, times: int, needle: bytes = b"") -> None:
        """Cut off the answers to the next requests that contain some bytes."""
        with self._lock:
            self._cuts, self._needle = times, needle

    def __enter__(self) -> CuttingProxy:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for each in list(self._open):
            _end(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                self._open |= {client, server}
                doomed = threading.Event()
                for source, target, is_request in ((client, server, True), (server, client, False)):
                    threading.Thread(
                        target=self._carry, args=(source, target, is_request, doomed), name="proxy", daemon=True
                    ).start()

    def _carry(self, source: socket.socket, target: socket.socket, is_request: bool, doomed: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if is_request:
                    with self._lock:
                        if self._cuts and self._needle in data:
                            self._cuts -= 1
                            doomed.set()
                elif doomed.is_set():  # the server has done it, and says so to nobody
                    self.done += 1
                    break
                target.sendall(data)
        _end(source)
        _end(target)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
