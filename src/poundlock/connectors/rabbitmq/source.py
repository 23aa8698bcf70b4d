"""RMQSource: a queue of RabbitMQ, whose messages are acknowledged when they are decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from poundlock.arguments import TEXT, check_choices, check_kind, refuse_without_effect
from poundlock.connectors.messages.acknowledged import Receiver
from poundlock.connectors.messages.reader import Format, payload_of
from poundlock.connectors.messages.source import AcknowledgedSource
from poundlock.connectors.rabbitmq.connection import RabbitMQAddress
from poundlock.connectors.rabbitmq.receiver import COLUMNS, QueueReceiver
from poundlock.errors import DefinitionError
from poundlock.storage import Storage
from poundlock.values import positive_number

_MOST_PREFETCH = 65_535  # what AMQP has two bytes for
_REMEMBER = 100_000


@dataclass(frozen=True, init=False)
class RMQSource(AcknowledgedSource):
    """Read a queue as its only consumer. A message is acknowledged when the checkpoint that has it is decided.

    Rows have the columns `value` (binary), `message_id`, `correlation_id`, `exchange`, `routing_key`, `timestamp`, `content_type` and
    `headers` (a JSON object); with a format other than "raw" they have those of `schema`, then those of `metadata`.

    Args:
        url: "amqp://user:password@host:5672/vhost", "amqps://…", or "env:NAME" or "file:PATH" where that stands.
        queue: its name; it has to be there.
        format: "raw", "json", "csv" or "avro": how a message's body is written.
        schema: columns of the body, for "json" and "csv".
        format_options: further options of the format.
        metadata: columns of the message that stand beside those of the format.
        deduplicate: "message-id" or "correlation-id": the property by which a message that is delivered a second time is known, as
            Flink's RMQSource goes by the correlation id. A message without it is rejected. None = messages have none, and what was
            decided and not acknowledged when the driver died comes twice.
        remember: how many ids at least are kept of messages that were acknowledged.
        acknowledge: "decided", or "received": as soon as a message is durable in the checkpoint folder, so that the broker holds less.
        prefetch: most messages that are delivered and not acknowledged; with "decided" as many fit into a checkpoint or two.
        max_rows_per_checkpoint: most rows of one checkpoint.
        ca: file with the certificates by which the broker's is trusted, for amqps.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    address: RabbitMQAddress
    queue: str

    def __init__(
        self,
        url: str,
        queue: str,
        *,
        format: Format = "raw",
        schema: str | None = None,
        format_options: Mapping[str, Any] | None = None,
        metadata: Sequence[str] = (),
        deduplicate: Literal["message-id", "correlation-id"] | None = None,
        remember: int = _REMEMBER,
        acknowledge: Literal["decided", "received"] = "decided",
        prefetch: int = 10_000,
        max_rows_per_checkpoint: int = 100_000,
        ca: str | None = None,
    ) -> None:
        check_kind("RMQSource", TEXT, {"url": url, "queue": queue})
        payload = payload_of("RMQSource", COLUMNS, format, schema, format_options, metadata, needs_id=deduplicate or "")
        values = {
            "address": RabbitMQAddress(url, ca),
            "queue": queue,
            "payload": payload,
            "deduplicate": deduplicate,
            "remember": positive_number("remember", remember),
            "acknowledge": acknowledge,
            "prefetch": positive_number("prefetch", prefetch),
            "max_rows_per_checkpoint": positive_number("max_rows_per_checkpoint", max_rows_per_checkpoint),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        check_choices(self, {"acknowledge": ("decided", "received")})
        if deduplicate is not None:
            check_choices(self, {"deduplicate": ("message-id", "correlation-id")})
        if deduplicate is None:
            refuse_without_effect("RMQSource", {"remember": (remember, _REMEMBER)}, because="deduplicate is None")
        elif remember < prefetch:
            raise DefinitionError(
                f"remember={remember} is less than prefetch={prefetch}: a message that comes again may be forgotten by then",
                next=f"say remember={prefetch} or more",
            )
        if prefetch > _MOST_PREFETCH:
            raise DefinitionError(f"prefetch={prefetch} is more than AMQP has", next=f"give at most {_MOST_PREFETCH}")

    @property
    def place(self) -> str:
        """What is read and where, for people."""
        return f"queue {self.queue} of RabbitMQ"

    def refuse_preview(self) -> None:
        """Raise DefinitionError: whoever reads a queue takes its messages."""
        raise DefinitionError(
            f"a preview would take messages of queue {self.queue!r} and give them back in another order",
            next="look at some with RabbitMQ's own tools, or at a queue made for it",
        )

    def preflight(self) -> None:
        """Ask whether the queue is there and this user may read it.

        Raises:
            DefinitionError: it is not, or the broker refuses this user.
            TransientError: no broker answers.
        """
        with closing(self.address.open()) as connection, self.address.explained(f"looking for queue {self.queue!r}"):
            connection.channel().queue_declare(self.queue, passive=True)

    def _receiver(self, workspace: Storage) -> Receiver:
        return QueueReceiver(self.address, self.queue, prefetch=self.prefetch, id=self.deduplicate)

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log."""
        return f"queue {self.queue}: {position['file']} files received"
