"""MqttSource: a subscription with a session that the broker keeps, acknowledged when its messages are decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from poundlock.arguments import TEXT, check_choices, check_kind, refuse_without_effect
from poundlock.connectors.messages.acknowledged import Receiver
from poundlock.connectors.messages.reader import Format, payload_of
from poundlock.connectors.messages.source import AcknowledgedSource
from poundlock.connectors.mqtt.connection import MqttAddress, MqttConnection
from poundlock.connectors.mqtt.receiver import COLUMNS, CORRELATION, SessionReceiver
from poundlock.errors import DefinitionError
from poundlock.storage import Storage
from poundlock.values import positive_number

_MOST_WINDOW = 65_535  # what MQTT has two bytes for
_REMEMBER = 100_000


@dataclass(frozen=True, init=False)
class MqttSource(AcknowledgedSource):
    """Read what is published to a topic, or to all that a filter matches, from the moment the job first started.

    Messages come with QoS 1, whatever they were published with: with QoS 2 the client would acknowledge them before they are durable. Those
    published with QoS 0 may be lost by the broker. Rows have the columns `value` (binary), `topic`, `retain`, `content_type`,
    `response_topic`, `correlation_data` and `user_properties` (a JSON object); with a format other than "raw" they have those of
    `schema`, then those of `metadata`.

    Args:
        url: "mqtt://user:password@host:1883", "mqtts://…", or "env:NAME" or "file:PATH" where that stands. The broker speaks MQTT 5.
        topic: a topic, or a filter with "+" and "#".
        client_id: names the session that the broker keeps for this job; no other client may have it.
        format: "raw", "json", "csv" or "avro": how a message's body is written.
        schema: columns of the body, for "json" and "csv".
        format_options: further options of the format.
        metadata: columns of the message that stand beside those of the format.
        deduplicate: "correlation-data", or the name of a user property, by which a message that is delivered a second time is known. A
            message without it is rejected. None = messages have none.
        remember: how many ids at least are kept of messages that were acknowledged.
        acknowledge: "decided", or "received": as soon as a message is durable in the checkpoint folder.
        prefetch: most messages that are delivered and not acknowledged; the broker may allow fewer (Mosquitto: 20, see max_inflight_messages).
        max_rows_per_checkpoint: most rows of one checkpoint.
        ca: file with the certificates by which the broker's is trusted, for mqtts.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    address: MqttAddress
    topic: str
    client_id: str

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        client_id: str,
        format: Format = "raw",
        schema: str | None = None,
        format_options: Mapping[str, Any] | None = None,
        metadata: Sequence[str] = (),
        deduplicate: str | None = None,
        remember: int = _REMEMBER,
        acknowledge: Literal["decided", "received"] = "decided",
        prefetch: int = 10_000,
        max_rows_per_checkpoint: int = 100_000,
        ca: str | None = None,
    ) -> None:
        check_kind("MqttSource", TEXT, {"url": url, "topic": topic, "client_id": client_id})
        check_kind("MqttSource", TEXT, {"deduplicate": deduplicate}, optional=True)
        what = "correlation data" if deduplicate == CORRELATION else f"user property {deduplicate}"
        id = "" if deduplicate is None else what
        values = {
            "address": MqttAddress(url, ca),
            "topic": topic,
            "client_id": client_id,
            "payload": payload_of("MqttSource", COLUMNS, format, schema, format_options, metadata, needs_id=id),
            "deduplicate": deduplicate,
            "remember": positive_number("remember", remember),
            "acknowledge": acknowledge,
            "prefetch": positive_number("prefetch", prefetch),
            "max_rows_per_checkpoint": positive_number("max_rows_per_checkpoint", max_rows_per_checkpoint),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        check_choices(self, {"acknowledge": ("decided", "received")})
        for name, text in (("topic", topic), ("client_id", client_id)):
            if not text:
                raise DefinitionError(f"{name} of MqttSource is empty", next=f'write {name}="…"')
        if deduplicate is None:
            refuse_without_effect("MqttSource", {"remember": (remember, _REMEMBER)}, because="deduplicate is None")
        elif remember < prefetch:
            raise DefinitionError(
                f"remember={remember} is less than prefetch={prefetch}: a message that comes again may be forgotten by then",
                next=f"say remember={prefetch} or more",
            )
        if prefetch > _MOST_WINDOW:
            raise DefinitionError(f"prefetch={prefetch} is more than MQTT has", next=f"give at most {_MOST_WINDOW}")

    @property
    def place(self) -> str:
        """What is read and where, for people."""
        return f"topic {self.topic} of MQTT"

    def refuse_preview(self) -> None:
        """Raise DefinitionError: whoever reads a session takes its messages, and ends the connection of the job."""
        raise DefinitionError(
            f"a preview would take the session {self.client_id!r} from its job", next="look with mosquitto_sub"
        )

    def preflight(self) -> None:
        """Ask whether the broker lets this user in.

        Raises:
            DefinitionError: it does not.
            TransientError: no broker answers.
        """
        with closing(MqttConnection(self.address, "")) as connection:  # another name: the session may be at work
            connection.open()

    def _receiver(self, workspace: Storage) -> Receiver:
        return SessionReceiver(
            self.address, workspace, self.topic, self.client_id, window=self.prefetch, id=self.deduplicate
        )

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log."""
        return f"topic {self.topic}: {position['file']} files received"
