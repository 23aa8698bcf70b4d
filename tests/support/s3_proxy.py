"""Stands between a client and an S3 server: answers some requests with 503 SlowDown, and loses the answers of others that were carried out.

It is a process of its own, for a client may hold Python's lock while it waits for an answer. Requests go on with the Host that the client
signed, so the server takes their signatures.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

__all__ = ["S3Proxy"]

_RULES = "/-rules"
_SLOW_DOWN = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message><RequestId>1</RequestId></Error>"""
_KEPT = ("content-type", "etag", "last-modified", "content-range", "accept-ranges", "x-amz-version-id")
_HOP = ("connection", "transfer-encoding", "content-length", "expect")


class S3Proxy:
    """The proxy, to use in a `with` block. Patterns are searched for in "METHOD path".

    Args:
        endpoint: the server's URL.
        environment: what leads a program to the server; see `environment`.
    """

    def __init__(self, endpoint: str, environment: Mapping[str, str]) -> None:
        self._server = endpoint.removeprefix("http://")
        self._environment = dict(environment)
        self._port = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._server],
            stdin=subprocess.PIPE,  # it ends when this process does
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def endpoint(self) -> str:
        """URL for clients."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead a program here."""
        return {**self._environment, "AWS_ENDPOINT_URL": self.endpoint}

    def throttle(self, pattern: str) -> None:
        """Answer requests that have a match with 503 SlowDown, from now on."""
        self._tell({"throttle": pattern})

    def throttle_first(self) -> None:
        """Answer the first request of each kind to each object with 503 SlowDown, from now on."""
        self._tell({"first": True})

    def lose(self, pattern: str) -> None:
        """Lose the answer to the next request that has a match, once it is carried out."""
        self._tell({"lose": pattern})

    def calm(self) -> None:
        """Answer every request again."""
        self._tell({})

    @property
    def throttled(self) -> int:
        """How many requests were answered with 503."""
        return int(self._tell(None)["throttled"])

    @property
    def lost(self) -> int:
        """How many answers were lost."""
        return int(self._tell(None)["lost"])

    def _tell(self, rules: Mapping[str, Any] | None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("POST", _RULES, json.dumps(rules))
        counts: dict[str, Any] = json.loads(connection.getresponse().read())
        connection.close()
        return counts


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = server
        self.rules: dict[str, Any] = {}
        self.counts = {"throttled": 0, "lost": 0}
        self._seen = set[str]()
        self._lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing where a client did not wait for its answer."""

    def take(self, rules: dict[str, Any] | None) -> dict[str, int]:
        with self._lock:
            if rules is not None:
                self.rules, self._seen = rules, set()
            return dict(self.counts)

    def refuses(self, request: str) -> bool:
        with self._lock:
            pattern, whole = self.rules.get("throttle"), request.partition("?")[0]
            refused = pattern is not None and re.search(pattern, request) is not None
            refused |= bool(self.rules.get("first")) and whole not in self._seen
            self._seen.add(whole)
            self.counts["throttled"] += refused
            return refused

    def loses(self, request: str) -> bool:
        with self._lock:
            pattern = self.rules.get("lose")
            lost = pattern is not None and re.search(pattern, request) is not None
            if lost:
                del self.rules["lose"]
            self.counts["lost"] += lost
            return lost


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def _pass_on(self) -> None:
        body, request = self._body(), f"{self.command} {self.path}"
        if self.path == _RULES:
            self._answer(200, {}, json.dumps(self.server.take(json.loads(body))).encode())
            return
        if self.server.refuses(request):
            self._answer(503, {"content-type": "application/xml"}, _SLOW_DOWN)
            return
        behind = http.client.HTTPConnection(self.server.behind, timeout=60)
        behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP:
                behind.putheader(name, value)
        if body or self.command in ("PUT", "POST"):
            behind.putheader("Content-Length", str(len(body)))
        behind.endheaders(body or None)
        answer = behind.getresponse()
        content, length = answer.read(), answer.getheader("Content-Length")
        headers = {name.lower(): value for name, value in answer.getheaders()}
        behind.close()
        if answer.status < 300 and self.server.loses(request):
            self.close_connection = True
            return
        kept = {name: value for name, value in headers.items() if name in _KEPT or name.startswith("x-amz-meta")}
        self._answer(answer.status, kept, content, length)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

    def _body(self) -> bytes:
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes, length: str | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""


if __name__ == "__main__":
    _running = _Proxy(sys.argv[1])
    print(_running.server_address[1], flush=True)
    threading.Thread(target=_running.serve_forever, daemon=True).start()
    sys.stdin.read()
