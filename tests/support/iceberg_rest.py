"""Apache Iceberg's own REST catalog, the one that its project tests clients with, as a server of a test; and a proxy that loses its answers."""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from poundlock.spark.launch.jars import jar_set
from poundlock.spark.launch.java import find_java
from poundlock.testing.servers import ServerProcess

__all__ = ["IcebergRest", "LosingProxy"]


class IcebergRest(ServerProcess):
    """The catalog, to use in a `with` block. Its tables survive `kill` and `start`, not `close`.

    It listens on every address of the machine: its main program has none to set.
    """

    title, start_s, log_name = "Iceberg's REST catalog", 300, "catalog.log"

    def __init__(self, home: Path | None = None) -> None:
        super().__init__(home, "poundlock-iceberg-")

    @property
    def uri(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """What a client is given."""
        return {"type": "rest", "uri": self.uri}

    def _command(self) -> Sequence[str]:
        jars = ":".join(jar_set("iceberg-rest"))
        flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [find_java().path, *flags, "-cp", jars, "org.apache.iceberg.rest.RESTCatalogServer"]

    def _environment(self) -> Mapping[str, str]:
        return {
            "CATALOG_REST_PORT": str(self.port),
            "CATALOG_URI": f"jdbc:sqlite:{self.home}/catalog.db",
            "CATALOG_WAREHOUSE": f"file://{self.home}/warehouse",
        }

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/v1/config", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError, http.client.HTTPException):
            return False


class LosingProxy:
    """Stands before a catalog, and loses the answers of commits while it is asked to: the connection breaks when the catalog has answered."""

    def __init__(self, server: IcebergRest) -> None:
        self.lose = 0
        self.lost: list[int] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def _pass_on(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else None
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "accept-encoding")}
                behind = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                behind.request(self.command, self.path, body, headers)
                answer = behind.getresponse()
                content = answer.read()
                behind.close()
                if proxy.lose and self.command == "POST" and "/tables/" in self.path:
                    proxy.lose -= 1
                    proxy.lost.append(answer.status)
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.getheader("Content-Type") or "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_POST = do_HEAD = do_DELETE = _pass_on

            def log_message(self, format: str, *arguments: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.properties = {"type": "rest", "uri": f"http://127.0.0.1:{self._server.server_address[1]}"}

    def __enter__(self) -> LosingProxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
