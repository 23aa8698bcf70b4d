"""The Kafka clients, loaded where one is first asked for, both are extras, and kafka-python's admin client made tidy."""

from __future__ import annotations

from functools import cache
from typing import Any

from poundlock.errors import required

_SCHEME = "poundlock-direct"


def confluent(module: str = "") -> Any:
    """Return the package confluent_kafka or a module of it. Raises DefinitionError if it is not installed."""
    return required(f"confluent_kafka.{module}".rstrip("."), "Kafka", "kafka")


def kafka_python(module: str = "") -> Any:
    """Return the package kafka (kafka-python) or a module of it. Raises DefinitionError if it is not installed."""
    return required(f"kafka.{module}".rstrip("."), "Kafka", "kafka", "kafka-python")


def google_crc32c() -> Any:
    """Return the package google_crc32c. Raises DefinitionError if it is not installed."""
    return required("google_crc32c", "Kafka", "kafka")


def admin_client(**settings: Any) -> Any:
    """Return a connected KafkaAdminClient, which leaves nothing behind when it cannot connect: no open socket, no thread.

    By itself it leaves a socket for each try to the garbage collector, which in a process that only waits does not come by, and a
    client that never came up goes on trying: a driver that waits an hour for a broker would run out of files that `select` knows.

    Raises:
        kafka.errors.KafkaError: there is no connection within `bootstrap_timeout_ms`.
    """
    return _client_class()(**{"proxy_url": direct(), **settings})


@cache
def direct() -> str:
    """Return the proxy_url that stands for a direct connection whose socket is closed when it fails."""
    base: Any = kafka_python("net.inet").KafkaNetSocket

    class _Direct(base):  # type: ignore[misc] # kafka-python knows it by its scheme as soon as it is defined
        SCHEMES = (_SCHEME,)

        async def sock_connect(self, net: Any, sock: Any, sockaddr: Any, timeout_at: float | None = None) -> Any:
            try:
                return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
            except BaseException:
                sock.close()
                raise

    return f"{_SCHEME}://"


@cache
def _client_class() -> Any:
    base: Any = kafka_python().KafkaAdminClient

    class _Client(base):  # type: ignore[misc]
        def __init__(self, **settings: Any) -> None:
            try:
                super().__init__(**settings)
            except BaseException:
                if "_net" in vars(self):
                    self._closed = False  # it does not close what has never come up
                    self.close()
                raise

    return _Client
