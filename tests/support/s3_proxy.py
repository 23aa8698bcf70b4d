"""Stands between a client and an S3 server: answers some requests with 503 SlowDown, and loses the answers of others that were carried out.

Requests go on with the Host that the client signed, so the server takes their signatures.
"""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

__all__ = ["S3Proxy"]

_SLOW_DOWN = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message><RequestId>1</RequestId></Error>"""
_KEPT = ("content-type", "etag", "last-modified", "content-range", "accept-ranges", "x-amz-version-id")


class S3Proxy:
    """The proxy, to use in a `with` block.

    Args:
        endpoint: the server's URL.
        environment: what leads a program to the server; see `environment`.
    """

    def __init__(self, endpoint: str, environment: Mapping[str, str]) -> None:
        self._server = endpoint.removeprefix("http://")
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._throttle: Callable[[str, str], bool] = lambda method, path: False
        self._losses, self._lost = 0, re.compile("$.")
        self.throttled = 0
        """How many requests were answered with 503."""
        self.lost = 0
        """How many answers were lost."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                body = self._body()
                if proxy._refuses(self.command, self.path):
                    self._answer(503, {"content-type": "application/xml"}, _SLOW_DOWN)
                    return
                behind = http.client.HTTPConnection(proxy._server, timeout=60)
                behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length", "expect"):
                        behind.putheader(name, value)
                if body or self.command in ("PUT", "POST"):
                    behind.putheader("Content-Length", str(len(body)))
                behind.endheaders(body or None)
                answer = behind.getresponse()
                content = answer.read()
                length = answer.getheader("Content-Length")
                behind.close()
                if answer.status < 300 and proxy._loses(self.command, self.path):
                    self.close_connection = True
                    return
                headers = {name.lower(): value for name, value in answer.getheaders()}
                kept = {
                    name: value for name, value in headers.items() if name in _KEPT or name.startswith("x-amz-meta")
                }
                self._answer(answer.status, kept, content, length)

            def _body(self) -> bytes:
                if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                pieces = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    pieces.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(pieces)

            def _answer(
                self, status: int, headers: Mapping[str, str], content: bytes, length: str | None = None
            ) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

            def log_message(self, format: str, *arguments: Any) -> None:
                """Print nothing."""

        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._listener.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._listener.serve_forever, args=(0.05,), name="s3-proxy", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown()
        self._listener.server_close()

    @property
    def endpoint(self) -> str:
        """URL for clients."""
        return f"http://127.0.0.1:{self._listener.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead a program here."""
        return {**self._environment, "AWS_ENDPOINT_URL": self.endpoint}

    def throttle(self, when: Callable[[str, str], bool]) -> None:
        """Answer with 503 SlowDown where a function of method and path says so, from now on."""
        with self._lock:
            self._throttle = when

    def calm(self) -> None:
        """Answer every request again."""
        self.throttle(lambda method, path: False)

    def lose(self, times: int, pattern: str) -> None:
        """Lose the next answers to requests whose "METHOD path" has a match of a pattern, once they are carried out."""
        with self._lock:
            self._losses, self._lost = times, re.compile(pattern)

    def _refuses(self, method: str, path: str) -> bool:
        with self._lock:
            refused = self._throttle(method, path)
            self.throttled += refused
            return refused

    def _loses(self, method: str, path: str) -> bool:
        with self._lock:
            lost = self._losses > 0 and self._lost.search(f"{method} {path}") is not None
            self._losses -= lost
            self.lost += lost
            return lost
