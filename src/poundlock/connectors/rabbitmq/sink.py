"""RMQSink: rows as messages of an exchange, each confirmed by the broker before the decision."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar

from poundlock.arguments import TEXT, check_kind
from poundlock.checkpoint.participant import WriterContext
from poundlock.connectors.messages.append import AppendSink, AppendWriter
from poundlock.connectors.messages.encoding import EncodedFormat, MessageFormat
from poundlock.connectors.rabbitmq.connection import RabbitMQAddress
from poundlock.connectors.rabbitmq.publisher import Publisher, Route
from poundlock.errors import DefinitionError
from poundlock.values import positive_number


@dataclass(frozen=True, init=False)
class RMQSink(AppendSink):
    """Publish each row as a persistent message. At-least-once: messages are visible at once, and come again when a checkpoint is repeated.

    Args:
        url: "amqp://user:password@host:5672/vhost", "amqps://…", or "env:NAME" or "file:PATH" where that stands.
        routing_key: of all messages; of the default exchange it is the name of a queue.
        exchange: its name; "" = the default exchange.
        routing_key_column: the column that has each message's routing key instead.
        format: "json", "csv", or "raw": one column as it is.
        value: the columns that are written; None = all, and with "raw" the column `value`.
        id_column: the column that becomes each message's id, by which whoever reads knows one that came twice.
        unconfirmed: most messages of a task that are sent and not confirmed.
        ca: file with the certificates by which the broker's is trusted, for amqps.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    task_modules: ClassVar[Sequence[str]] = ("pika",)

    address: RabbitMQAddress
    route: Route
    content: MessageFormat
    unconfirmed: int

    def __init__(
        self,
        url: str,
        routing_key: str | None = None,
        *,
        exchange: str = "",
        routing_key_column: str | None = None,
        format: EncodedFormat = "json",
        value: str | Sequence[str] | None = None,
        id_column: str | None = None,
        unconfirmed: int = 5_000,
        ca: str | None = None,
    ) -> None:
        check_kind("RMQSink", TEXT, {"url": url, "exchange": exchange})
        columns = {"routing_key": routing_key, "routing_key_column": routing_key_column, "id_column": id_column}
        check_kind("RMQSink", TEXT, columns, optional=True)
        if (routing_key is None) == (routing_key_column is None):
            raise DefinitionError(
                "RMQSink needs exactly one of routing_key and routing_key_column", next='write routing_key="orders"'
            )
        values = {
            "address": RabbitMQAddress(url, ca),
            "route": Route(exchange, routing_key, routing_key_column, id_column),
            "content": MessageFormat(format, value),
            "unconfirmed": positive_number("unconfirmed", unconfirmed),
        }
        for name, given in values.items():
            object.__setattr__(self, name, given)

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        where = self.route.exchange or f"queue {self.route.key or 'by column ' + str(self.route.key_column)}"
        return f"RabbitMQ {where} (publisher confirms; at-least-once)"

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows have the columns that are named."""
        self.content.check(sink, columns, also=self.route.columns)

    def preflight(self) -> None:
        """Ask whether the exchange, or the queue of the default exchange, is there.

        Raises:
            DefinitionError: it is not, or the broker refuses this user.
            TransientError: no broker answers.
        """
        route = self.route
        with closing(self.address.open()) as connection, self.address.explained("looking where messages go"):
            channel = connection.channel()
            if route.exchange:
                channel.exchange_declare(route.exchange, passive=True)
            elif route.key is not None:
                channel.queue_declare(route.key, passive=True)

    def open_writer(self, context: WriterContext) -> AppendWriter:
        """Connect, in a task."""
        encoder = self.content.encoder(context.reject)
        return AppendWriter(context, encoder, Publisher(self.address, self.route, self.unconfirmed))
