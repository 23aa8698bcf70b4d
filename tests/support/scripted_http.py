"""An HTTP server that gives the answers it is told to, and keeps what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]


@dataclass
class ScriptedHttp:
    """Use it in a `with` block.

    Args:
        answer: gives status and body for a request; a status of 0 ends the connection instead.
    """

    answer: Callable[[Asked], tuple[int, bytes]]
    asked: list[Asked] = field(default_factory=list)

    def __enter__(self) -> ScriptedHttp:
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                asked = Asked(self.command, self.path, body, {k.lower(): v for k, v in self.headers.items()})
                scripted.asked.append(asked)
                status, data = scripted.answer(asked)
                if not status:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), name="scripted", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"
