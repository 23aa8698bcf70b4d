"""Commands that stop and start the servers of a test, for a program that is given such commands: they ask the process that has the servers."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from poundlock.testing.servers import ServerProcess

_ASK = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=280)"


class Commands:
    """What was asked for so far, and the commands.

    Args:
        port: where the process with the servers listens, on the loopback.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.asked: list[str] = []

    def command(self, name: str, what: str) -> str:
        """Return the command that kills a server ("stop"), or starts it and waits until it answers ("start")."""
        return shlex.join([sys.executable, "-c", _ASK, f"http://127.0.0.1:{self._port}/{name}/{what}"])


@contextmanager
def commands_of(servers: Mapping[str, ServerProcess]) -> Iterator[Commands]:
    """Carry out commands about some servers, by name, for as long as the block lasts. A stop is a crash of the server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, what = self.path.strip("/").split("/")
            commands.asked.append(f"{name} {what}")
            if what == "stop":
                servers[name].kill()
            else:
                servers[name].start()
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *values: object) -> None:
            """Print nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    commands = Commands(listener.server_port)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    try:
        yield commands
    finally:
        listener.shutdown()
        listener.server_close()
