"""EmbeddedS3: an S3 server for trials and tests: moto's, which holds objects in memory and answers one request at a time.

One at a time is what makes its conditional puts exclusive. A client that stops in the middle of a request loses its connection after 5 s, as
S3 does it too, so that others are answered. It listens on the loopback, and does not outlive its starter.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Self

from poundlock.errors import DefinitionError, pip_install
from poundlock.storage.s3 import S3Storage
from poundlock.storage.s3_client import S3Address, client
from poundlock.testing.servers import ServerProcess

_MOTO = """
import logging, sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
logging.getLogger("werkzeug").setLevel(logging.ERROR)
WSGIRequestHandler.protocol_version = "HTTP/1.0"
WSGIRequestHandler.timeout = 5
make_server("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False).serve_forever()
"""


class EmbeddedS3(ServerProcess):
    """An S3 server to use in a `with` block, or by `start()` and `close()`. Its objects are gone when it stops.

    Args:
        port: of the loopback; None = any free one. It stays the same over `kill` and `start`.
    """

    title, log_name, start_s = "the S3 server", "server.out", 120
    access_key, secret_key, region = "poundlock-test", "poundlock-test-secret", "us-east-1"

    def __init__(self, *, port: int | None = None) -> None:
        super().__init__(None, "poundlock-s3-", port)

    @property
    def endpoint(self) -> str:
        """URL for clients. Raises RuntimeError before the first start."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead a program here."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @contextmanager
    def in_environment(self) -> Iterator[Self]:
        """Let this process find the server for as long as the block lasts."""
        before = dict(os.environ)
        os.environ.update(self.environment)
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            os.environ.pop(name, None)
        try:
            yield self
        finally:
            for name in (*self.environment, "AWS_PROFILE", "AWS_SESSION_TOKEN"):
                os.environ.pop(name, None)
                os.environ.update({name: before[name]} if name in before else {})

    def _start(self, timeout: float) -> None:
        with self.in_environment():
            super()._start(timeout)

    def bucket(self, name: str) -> str:
        """Make a bucket and return its URL."""
        with self.in_environment():
            self._ask("create_bucket", Bucket=name)
        return f"s3://{name}"

    def storage(self, bucket: str, prefix: str = "") -> S3Storage:
        """Return a folder of a bucket as a storage; use it while `in_environment`."""
        return S3Storage(bucket, prefix, self.address)

    @property
    def address(self) -> S3Address:
        """Where it is."""
        return S3Address(self.endpoint, self.region, path_style=True)

    def _ask(self, method: str, **arguments: Any) -> Any:
        return getattr(client(self.address), method)(**arguments)

    def _answers(self) -> bool:
        with suppress(Exception):  # whatever it fails with: it does not answer yet
            self._ask("list_buckets")
            return True
        return False

    def _last_output(self) -> str:
        return (super()._last_output().strip().splitlines() or ["it printed nothing"])[-1]

    def _command(self) -> list[str]:
        if importlib.util.find_spec("moto") is None:
            raise DefinitionError("the S3 server for tests needs moto", next=pip_install("moto[server]"))
        return [sys.executable, "-c", _MOTO, str(self.port)]

    def _environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {**kept, "MOTO_S3_DEFAULT_MAX_KEYS": "1000"}
