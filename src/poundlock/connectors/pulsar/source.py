"""PulsarSource: a subscription of Pulsar, whose messages are acknowledged when they are decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from poundlock.arguments import TEXT, check_choices, check_kind
from poundlock.connectors.messages.acknowledged import Receiver
from poundlock.connectors.messages.reader import Format, payload_of
from poundlock.connectors.messages.source import AcknowledgedSource
from poundlock.connectors.pulsar.connection import PulsarAddress
from poundlock.connectors.pulsar.receiver import COLUMNS, Start, SubscriptionReceiver
from poundlock.errors import DefinitionError
from poundlock.storage import Storage
from poundlock.values import positive_number

_REMEMBER = 100_000


@dataclass(frozen=True, init=False)
class PulsarSource(AcknowledgedSource):
    """Read a topic by a durable subscription, as its only consumer. A message is acknowledged when the checkpoint that has it is decided.

    Each message has an id of Pulsar's own, by which one that is delivered a second time is known. Rows have the columns `value` (binary),
    `key`, `topic`, `message_id`, `publish_time`, `event_time`, `producer` and `properties` (a JSON object); with a format other than
    "raw" they have those of `schema`, then those of `metadata`.

    Args:
        url: "pulsar://host:6650" or "pulsar+ssl://host:6651".
        topic: its name, such as "persistent://tenant/namespace/orders", or "orders" for one of public/default.
        subscription: names the subscription, which is made where it is not there; no other consumer may have it.
        start: "earliest" or "latest": where a subscription begins that is not there yet.
        format: "raw", "json", "csv" or "avro": how a message's body is written.
        schema: columns of the body, for "json" and "csv".
        format_options: further options of the format.
        metadata: columns of the message that stand beside those of the format.
        remember: how many ids at least are kept of messages that were acknowledged.
        acknowledge: "decided", or "received": as soon as a message is durable in the checkpoint folder, so that the broker holds less.
        prefetch: most messages that are delivered and not acknowledged; with "decided" as many fit into a checkpoint or two.
        max_rows_per_checkpoint: most rows of one checkpoint.
        token: by which this user is known, such as "env:NAME" or "file:PATH" where it stands.
        ca: file with the certificates by which the brokers' are trusted, for pulsar+ssl.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    address: PulsarAddress
    topic: str
    subscription: str
    start: Start

    def __init__(
        self,
        url: str,
        topic: str,
        subscription: str,
        *,
        start: Start = "earliest",
        format: Format = "raw",
        schema: str | None = None,
        format_options: Mapping[str, Any] | None = None,
        metadata: Sequence[str] = (),
        remember: int = _REMEMBER,
        acknowledge: Literal["decided", "received"] = "decided",
        prefetch: int = 10_000,
        max_rows_per_checkpoint: int = 100_000,
        token: str | None = None,
        ca: str | None = None,
    ) -> None:
        check_kind("PulsarSource", TEXT, {"url": url, "topic": topic, "subscription": subscription})
        check_kind("PulsarSource", TEXT, {"token": token, "ca": ca}, optional=True)
        payload = payload_of("PulsarSource", COLUMNS, format, schema, format_options, metadata, needs_id="message id")
        values = {
            "address": PulsarAddress(url, token, ca),
            "topic": topic,
            "subscription": subscription,
            "start": start,
            "payload": payload,
            "deduplicate": "message_id",
            "remember": positive_number("remember", remember),
            "acknowledge": acknowledge,
            "prefetch": positive_number("prefetch", prefetch),
            "max_rows_per_checkpoint": positive_number("max_rows_per_checkpoint", max_rows_per_checkpoint),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        check_choices(self, {"acknowledge": ("decided", "received"), "start": ("earliest", "latest")})
        for name, text in (("topic", topic), ("subscription", subscription)):
            if not text:
                raise DefinitionError(f"{name} of PulsarSource is empty", next=f'write {name}="…"')
        if remember < prefetch:
            raise DefinitionError(
                f"remember={remember} is less than prefetch={prefetch}: a message that comes again may be forgotten by then",
                next=f"say remember={prefetch} or more",
            )

    @property
    def place(self) -> str:
        """What is read and where, for people."""
        return f"topic {self.topic} of Pulsar"

    def refuse_preview(self) -> None:
        """Raise DefinitionError: whoever has a subscription takes its messages."""
        raise DefinitionError(
            f"a preview would take messages of the subscription {self.subscription!r}",
            next="look with `pulsar-client consume` and another subscription",
        )

    def preflight(self) -> None:
        """Ask whether this user may look at the topic.

        Raises:
            DefinitionError: it may not, or the topic cannot be.
            TransientError: no broker answers.
        """
        self.address.check(self.topic)

    def _receiver(self, workspace: Storage) -> Receiver:
        return SubscriptionReceiver(
            self.address, self.topic, self.subscription, start=self.start, prefetch=self.prefetch
        )

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log."""
        return f"topic {self.topic}: {position['file']} files received"
