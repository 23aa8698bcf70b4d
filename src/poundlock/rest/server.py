"""The server of one job: a socket that is taken before the job starts, and a thread that answers once there is a job.

The server never ends or slows the job: what goes wrong in it is logged, and the job goes on without.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from poundlock.errors import DefinitionError, missing_package
from poundlock.rest.observed import Observed

_END_S = 2.0
_FOLLOW_S = 5.0
_SHORTEST_TOKEN = 16
_log = logging.getLogger("poundlock.rest")


def not_installed() -> DefinitionError | None:
    """Return what to install where the extra `rest` is not."""
    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client") if find_spec(name) is None]
    return missing_package("REST", " and ".join(missing), "rest") if missing else None


def take_port(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 = any free one.

    Raises:
        DefinitionError: the port is taken, or the address is none of this machine's.
    """
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = places[0]
        dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=64, dualstack_ipv6=dual)
    except (OSError, UnicodeError) as error:
        next = f"rest.bind-address={host!r} is no address of this machine: set it to 127.0.0.1, or to 0.0.0.0 for all"
        if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
            next = "give another port with -D rest.port=8082, any free one with -D rest.port=0, or --no-rest"
        raise DefinitionError(f"REST cannot listen on {host}:{port}: {error.args[-1]}", next=next) from error


def read_token(path: Path | None) -> str | None:
    """Return the token that a file has, None without a file.

    Raises:
        DefinitionError: it cannot be read, or has no token that is worth the name.
    """
    if path is None:
        return None
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        what = "it is not ASCII" if isinstance(error, ValueError) else error.strerror or error
        raise DefinitionError(
            f"the REST token of rest.token-file cannot be read: {path}: {what}",
            next="name a file with a token in it, or leave rest.token-file out and one is made",
        ) from error
    if len(token) < _SHORTEST_TOKEN or not all("!" <= letter <= "~" for letter in token):
        raise DefinitionError(
            f"{path} has no token of at least {_SHORTEST_TOKEN} letters without blanks",
            next=f"make one: python -c 'import secrets; print(secrets.token_urlsafe(32))' > {path}",
        )
    return token


@dataclass
class RestServer:
    """A server that listens already and answers from `start` on."""

    listening: socket.socket
    token: str
    _server: Any = None
    _thread: threading.Thread | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _wake: tuple[socket.socket, socket.socket] = field(default_factory=socket.socketpair)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listening.getsockname()[:2]
        return str(host), int(port)

    def start(self, job: Observed) -> None:
        """Begin to answer; returns at once. The server is loaded for the first request: a job that nobody asks pays nothing."""

        def app() -> Any:
            from poundlock.rest.app import make_app

            return make_app(job, self.token)

        self.serve(app)
        # Records are added up as they come, so that the first look after a day does not read a day of them.
        threading.Thread(target=self._follow, args=(job,), name="poundlock-rest-figures", daemon=True).start()

    def serve(self, app: Callable[[], Any]) -> None:
        """Begin to answer with an ASGI application, which is made for the first request; returns at once."""
        self._thread = threading.Thread(target=self._run, args=(app,), name="poundlock-rest", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer what has been asked, then release the port."""
        self._ended.set()
        self._wake[0].close()
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_END_S)
        self.listening.close()
        self._wake[1].close()

    def _run(self, app: Callable[[], Any]) -> None:
        try:
            select.select([self.listening, self._wake[1]], [], [])  # the other end is closed at the end
            if self._ended.is_set():
                return
            import uvicorn

            config = uvicorn.Config(
                app(),
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=1,
            )
            # What it has to say of bad requests must not reach the job's terminal.
            logging.getLogger("uvicorn").propagate = False
            logging.getLogger("uvicorn").addHandler(logging.NullHandler())
            self._server = uvicorn.Server(config)
            if not self._ended.is_set():
                self._server.run(sockets=[self.listening])
        except BaseException:
            _log.warning("REST is off: the server failed; the job goes on", exc_info=True)

    def _follow(self, job: Observed) -> None:
        while not self._ended.wait(_FOLLOW_S):
            job.figures.refresh()
