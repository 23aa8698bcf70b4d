"""EmbeddedRedis: a real Redis for tests, on the loopback alone; Debian's packages, unpacked without root."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

from poundlock.testing.servers import ServerProcess
from support.debian import REDIS, unpacked


class EmbeddedRedis(ServerProcess):
    """A server that keeps every write, to use in a `with` block, or by `start()` and `close()`. Its data survives `kill` and `start`."""

    title = "the Redis server"

    def __init__(self, **settings: str) -> None:
        super().__init__(None, "poundlock-redis-")
        self._settings = {"appendonly": "yes", "appendfsync": "always", "save": "", "maxmemory": "256mb", **settings}

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> Any:
        """Return a client of the package redis, which gives texts."""
        import redis

        return redis.Redis.from_url(self.url, decode_responses=True)

    def _command(self) -> list[str]:
        settings = [word for name, value in self._settings.items() for word in (f"--{name}", value)]
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.home)]
        return [str(unpacked(REDIS) / "usr/bin/redis-server"), *where, *settings]

    def _environment(self) -> Mapping[str, str]:
        root = unpacked(REDIS)
        return {"LD_LIBRARY_PATH": f"{root}/usr/lib/x86_64-linux-gnu", "PATH": f"{root}/usr/bin"}

    def _answers(self) -> bool:
        with suppress(Exception), closing(self.client()) as client:  # whatever it fails with: it does not answer yet
            return bool(client.ping())
        return False
