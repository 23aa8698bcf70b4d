"""The way to a broker: its URL, the client, and what its refusals mean. Nothing of pika's leaves this package but a PoundlockError."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from poundlock.connectors.secrets import secret
from poundlock.errors import DefinitionError, PoundlockError, TerminalError, TransientError, required

_CONNECT_S = 5.0
_NO_ACCESS, _NOT_THERE, _IN_USE, _PRECONDITION = 403, 404, 405, 406


def load_pika() -> Any:
    """Return pika. Raises DefinitionError where it is not installed."""
    return required("pika", "RabbitMQ", "rabbitmq")


@dataclass(frozen=True)
class RabbitMQAddress:
    """A broker and how to log in.

    Args:
        url: "amqp://user:password@host:5672/vhost", "amqps://…" for TLS, or "env:NAME" or "file:PATH" where that stands.
        ca: file with the certificates by which the broker's is trusted; None = those of the system. Only for amqps.

    Raises:
        DefinitionError: it is no such URL.
    """

    url: str = field(repr=False)
    ca: str | None = None

    def __post_init__(self) -> None:
        if self.url.startswith(("env:", "file:")):
            return
        if urlsplit(self.url).scheme not in ("amqp", "amqps"):
            raise DefinitionError(
                "url of RabbitMQ does not begin with amqp:// or amqps://",
                next='write url="amqp://user@host:5672/%2F", or "env:NAME" where it stands',
            )
        if self.ca is not None and not self.url.startswith("amqps:"):
            raise DefinitionError("ca has no effect, because url does not begin with amqps://", next="leave ca out")

    @property
    def shown(self) -> str:
        """Host and port, for people."""
        parts = urlsplit(secret(self.url, "url of RabbitMQ"))
        return f"{parts.hostname}:{parts.port or (5671 if parts.scheme == 'amqps' else 5672)}"

    def parameters(self, heartbeat_s: int) -> Any:
        """Return pika's parameters. Raises DefinitionError for a URL that pika cannot read."""
        pika = load_pika()
        try:
            made = pika.URLParameters(secret(self.url, "url of RabbitMQ"))
        except ValueError as error:
            raise DefinitionError(f"url of RabbitMQ cannot be read: {error}", next="see docs/rabbitmq.md") from None
        made.heartbeat = heartbeat_s
        made.socket_timeout = made.stack_timeout = made.blocked_connection_timeout = _CONNECT_S * 2
        if self.ca is not None:
            made.ssl_options = pika.SSLOptions(ssl.create_default_context(cafile=self.ca), made.host)
        return made

    def open(self, heartbeat_s: int = 30) -> Any:
        """Return a blocking connection. Raises as `explained` does."""
        with self.explained("connecting"):
            return load_pika().BlockingConnection(self.parameters(heartbeat_s))

    @contextmanager
    def explained(self, doing: str) -> Iterator[None]:
        """Turn errors of pika, and of the network, into those of this package.

        Raises:
            DefinitionError: the broker refuses this user, or there is no such queue, exchange or virtual host.
            TransientError: it does not answer, or the connection broke.
            TerminalError: it refuses what is asked of it, and would again.
        """
        pika = load_pika()
        try:
            yield
        except (pika.exceptions.AMQPError, OSError) as error:
            raise self._explain(error, doing) from error

    def _explain(self, error: Exception, doing: str) -> PoundlockError:
        exceptions = load_pika().exceptions
        what = f"RabbitMQ at {self.shown}, {doing}"
        if isinstance(error, exceptions.ProbableAuthenticationError | exceptions.ProbableAccessDeniedError) or (
            isinstance(error, exceptions.ConnectionClosedByBroker) and error.reply_code in (_NO_ACCESS, 530)
        ):
            return DefinitionError(
                f"{what}: this user is refused: {error}", next="check user, password and virtual host in url"
            )
        if isinstance(error, exceptions.ChannelClosedByBroker):
            text = f"{what}: {error.reply_text}"
            if error.reply_code == _NOT_THERE:
                return DefinitionError(text, next="declare it first, or mend its name")
            if error.reply_code in (_NO_ACCESS, _PRECONDITION):
                return TerminalError(text, next="check this user's rights, and how the queue was declared")
            return TransientError(text)
        return TransientError(f"{what}: {str(error) or type(error).__name__}", next="see that the broker runs")
