"""MqttSink: rows as messages with QoS 1, each acknowledged by the broker before the decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from poundlock.arguments import FLAG, TEXT, check_kind
from poundlock.checkpoint.participant import WriterContext
from poundlock.connectors.messages.append import AppendSink, AppendWriter
from poundlock.connectors.messages.encoding import EncodedFormat, MessageFormat
from poundlock.connectors.mqtt.connection import MqttAddress, MqttConnection, load_paho, properties_of
from poundlock.errors import DefinitionError, TerminalError, TransientError
from poundlock.values import positive_number

_LONGEST_TOPIC = 65_535  # bytes


@dataclass(frozen=True, init=False)
class MqttSink(AppendSink):
    """Publish each row with QoS 1. At-least-once: messages are visible at once, and come again when a checkpoint is repeated.

    A message that no client subscribes to is dropped by the broker, as MQTT has it.

    Args:
        url: "mqtt://user:password@host:1883", "mqtts://…", or "env:NAME" or "file:PATH" where that stands. The broker speaks MQTT 5.
        topic: of all messages.
        topic_column: the column that has each message's topic instead.
        format: "json", "csv", or "raw": one column as it is.
        value: the columns that are written; None = all, and with "raw" the column `value`.
        id_column: the column that becomes each message's correlation data, by which whoever reads knows one that came twice.
        retain: whether the broker keeps the newest message of each topic for clients that subscribe later.
        unconfirmed: most messages of a task that are sent and not acknowledged.
        ca: file with the certificates by which the broker's is trusted, for mqtts.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    task_modules: ClassVar[Sequence[str]] = ("paho.mqtt",)

    address: MqttAddress
    topic: str | None
    topic_column: str | None
    id_column: str | None
    content: MessageFormat
    retain: bool
    unconfirmed: int

    def __init__(
        self,
        url: str,
        topic: str | None = None,
        *,
        topic_column: str | None = None,
        format: EncodedFormat = "json",
        value: str | Sequence[str] | None = None,
        id_column: str | None = None,
        retain: bool = False,
        unconfirmed: int = 5_000,
        ca: str | None = None,
    ) -> None:
        check_kind("MqttSink", TEXT, {"url": url})
        names = {"topic": topic, "topic_column": topic_column, "id_column": id_column}
        check_kind("MqttSink", TEXT, names, optional=True)
        check_kind("MqttSink", FLAG, {"retain": retain})
        if (topic is None) == (topic_column is None):
            raise DefinitionError("MqttSink needs exactly one of topic and topic_column", next='write topic="orders"')
        if topic is not None and (why := _fault(topic)):
            raise DefinitionError(f"topic {topic!r} {why}", next="give the name of one topic")
        values = {
            "address": MqttAddress(url, ca),
            "topic": topic,
            "topic_column": topic_column,
            "id_column": id_column,
            "content": MessageFormat(format, value),
            "retain": retain,
            "unconfirmed": positive_number("unconfirmed", unconfirmed),
        }
        for name, given in values.items():
            object.__setattr__(self, name, given)

    @property
    def own_columns(self) -> list[str]:
        """The columns that are parts of a message other than its body."""
        return [name for name in (self.topic_column, self.id_column) if name is not None]

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        return f"MQTT topic {self.topic or 'by column ' + str(self.topic_column)} (QoS 1; at-least-once)"

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows have the columns that are named."""
        self.content.check(sink, columns, also=self.own_columns)

    def preflight(self) -> None:
        """Ask whether the broker lets this user in.

        Raises:
            DefinitionError: it does not.
            TransientError: no broker answers.
        """
        with closing(MqttConnection(self.address, "")) as connection:
            connection.open()

    def open_writer(self, context: WriterContext) -> AppendWriter:
        """Begin to publish, in a task."""
        encoder = self.content.encoder(context.reject)
        return AppendWriter(context, encoder, MqttSender(self))


class MqttSender:
    """A task's connection."""

    def __init__(self, sink: MqttSink) -> None:
        self._sink = sink
        self._connection: MqttConnection | None = None
        self._sent = self._confirmed = 0

    def faults(self, messages: Sequence[bytes], rows: pa.RecordBatch) -> Mapping[int, str]:
        if self._sink.topic_column is None:
            return {}
        topics = rows.column(self._sink.topic_column).cast(pa.string()).to_pylist()
        reasons = {i: "its topic is null" if each is None else _fault(each) for i, each in enumerate(topics)}
        return {i: f"{self._sink.topic_column}: {why}" for i, why in reasons.items() if why}

    def send(self, messages: Sequence[bytes], rows: pa.RecordBatch) -> None:
        paho = properties_of()
        sink, connection = self._sink, self._open()
        topics = [sink.topic] * len(messages)
        if sink.topic_column is not None:
            topics = rows.column(sink.topic_column).cast(pa.string()).to_pylist()
        ids = [None] * len(messages) if sink.id_column is None else _ids(rows.column(sink.id_column))
        for topic, message, id in zip(topics, messages, ids, strict=True):
            connection.wait(lambda: self._sent - self._confirmed < sink.unconfirmed, "publishing")
            properties = None
            if id is not None:
                properties = paho.Properties(paho.PacketTypes.PUBLISH)
                properties.CorrelationData = id
            self._sent += 1
            info = connection.client.publish(topic, message, qos=1, retain=sink.retain, properties=properties)
            if info.rc not in (load_paho().MQTT_ERR_SUCCESS, load_paho().MQTT_ERR_NO_CONN):
                raise TransientError(
                    f"a message to the MQTT broker at {sink.address.shown} could not be sent: {info.rc}"
                )

    def finish(self) -> None:
        if self._connection is not None:
            self._connection.wait(lambda: self._confirmed >= self._sent, "waiting for acknowledgements")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _open(self) -> MqttConnection:
        if self._connection is None:
            made = self._connection = MqttConnection(self._sink.address, "")
            made.client.max_queued_messages_set(0)  # `unconfirmed` is the limit
            made.client.max_inflight_messages_set(self._sink.unconfirmed)
            made.client.on_publish = self._published
            made.open()
        return self._connection

    def _published(self, client: Any, userdata: Any, number: int, reason: Any, properties: Any) -> None:
        assert self._connection is not None
        with self._connection.news:
            self._confirmed += 1
            self._connection.news.notify_all()
        if reason is not None and reason.is_failure:
            self._connection.fail(
                TerminalError(
                    f"the MQTT broker at {self._sink.address.shown} does not take a message: {reason}",
                    next="check this user's rights, and the limits of the broker",
                )
            )


def _ids(column: pa.Array) -> list[bytes | None]:
    """Return values as bytes: those of other types as their text."""
    ids: list[bytes | None] = (
        (column if pa.types.is_binary(column.type) else column.cast(pa.string())).cast(pa.binary()).to_pylist()
    )
    return ids


def _fault(topic: str) -> str:
    """Return why no message can be published to a topic, "" if one can."""
    if not topic or len(topic.encode()) > _LONGEST_TOPIC:
        return "is empty" if not topic else "is longer than 65,535 bytes"
    return "has a wildcard or a NUL in it" if any(sign in topic for sign in "+#\0") else ""
