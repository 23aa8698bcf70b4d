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
from typing import Any

from poundlock.control.operations_log import OperationsLog
from poundlock.errors import DefinitionError, missing_package
from poundlock.rest.access.access import Access, Admission, is_loopback
from poundlock.rest.access.certificate import ServedCertificate
from poundlock.rest.access.tokens import TokenStore
from poundlock.rest.observed import Observed

_END_S = 2.0
_FOLLOW_S = 5.0
_log = logging.getLogger("poundlock.rest")

MakeApp = Callable[[Admission], Any]
"""Makes the application of a server."""


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


@dataclass
class RestServer:
    """A server that listens already and answers from `start` on.

    Args:
        token: of this process, which may do everything.
        access: further tokens, and TLS.
        operations: gets a line for each operation.
    """

    listening: socket.socket
    token: str
    access: Access = field(default_factory=Access)
    operations: OperationsLog | None = None
    _server: Any = None
    _certificate: ServedCertificate | None = None
    _thread: threading.Thread | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _wake: tuple[socket.socket, socket.socket] = field(default_factory=socket.socketpair)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listening.getsockname()[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """The address as it is typed."""
        return http_address(*self.address, tls=self.access.certificate is not None)

    def start(self, job: Observed) -> None:
        """Begin to answer; returns at once. The server is loaded for the first request: a job that nobody asks pays nothing."""

        def app(admission: Admission) -> Any:
            from poundlock.rest.app import make_app

            return make_app(job, admission)

        # Records are added up as they come, so that the first look after a day does not read a day of them.
        self.serve(app, job.figures.refresh)

    def serve(self, app: MakeApp, refresh: Callable[[], object] = lambda: None) -> None:
        """Begin to answer with an ASGI application; returns at once.

        Args:
            app: makes it, for the first request.
            refresh: is called every few seconds.
        """
        if self.access.certificate is not None:
            self._certificate = ServedCertificate(self.access.certificate)
        self._thread = threading.Thread(target=self._run, args=(app,), name="poundlock-rest", daemon=True)
        self._thread.start()
        threading.Thread(target=self._follow, args=(refresh,), name="poundlock-rest-figures", daemon=True).start()

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

    def _run(self, app: MakeApp) -> None:
        try:
            select.select([self.listening, self._wake[1]], [], [])  # the other end is closed at the end
            if self._ended.is_set():
                return
            import uvicorn

            config = uvicorn.Config(
                self._made(app),
                log_config=None,
                proxy_headers=False,  # who asked is in the log of operations: only the connection knows
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=1,
            )
            # What it has to say of bad requests must not reach the job's terminal.
            logging.getLogger("uvicorn").propagate = False
            logging.getLogger("uvicorn").addHandler(logging.NullHandler())
            config.load()
            config.ssl = None if self._certificate is None else self._certificate.context
            self._server = uvicorn.Server(config)
            if not self._ended.is_set():
                self._server.run(sockets=[self.listening])
        except BaseException:
            _log.warning("REST is off: the server failed; the job goes on", exc_info=True)

    def _made(self, app: MakeApp) -> Any:
        # On the loopback, a name of the network in a request is one that somebody has led here.
        hosts = self.access.hosts if is_loopback(self.address[0]) else None
        tokens = TokenStore(self.token, self.access.token_file)
        return app(Admission(tokens=tokens, hosts=hosts, operations=self.operations))

    def _follow(self, refresh: Callable[[], object]) -> None:
        while not self._ended.wait(_FOLLOW_S):
            refresh()
            if self._certificate is not None:
                self._certificate.look()


def http_address(host: str, port: int, *, tls: bool = False) -> str:
    """Return the address of a server as it is typed."""
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
