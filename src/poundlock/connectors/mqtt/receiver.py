"""One session of an MQTT broker: messages come by QoS 1, and are acknowledged by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from poundlock.connectors.messages.acknowledged import ReceivedMessage
from poundlock.connectors.mqtt.connection import MqttAddress, MqttConnection
from poundlock.errors import SourceGoneError
from poundlock.storage import Storage

COLUMNS = pa.schema(
    [
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("retain", pa.bool_()),
        ("content_type", pa.string()),
        ("response_topic", pa.string()),
        ("correlation_data", pa.binary()),
        ("user_properties", pa.string()),
    ]
)
"""What a message has; `user_properties` as a JSON object."""
CORRELATION = "correlation-data"
_MARK = "session"


class SessionReceiver:
    """Receives what a subscription brings.

    Args:
        workspace: the source's; it knows whether the broker has had a session for this job.
        topic: the filter.
        client_id: names the session.
        window: most messages that are delivered and not acknowledged.
        id: CORRELATION or the name of a user property; None = messages have no id.
    """

    def __init__(
        self, address: MqttAddress, workspace: Storage, topic: str, client_id: str, *, window: int, id: str | None
    ) -> None:
        self._workspace, self._topic, self._client_id, self._id = workspace, topic, client_id, id
        self._connection = MqttConnection(address, client_id, session=True, window=window, on_message=self._on_message)
        self._came: list[ReceivedMessage] = []
        self._numbers: dict[int, int] = {}  # tags that are not acknowledged, in order, each with the broker's number
        self._ready: set[int] = set()  # of them, those that may be as soon as all before them are
        self._next = 0

    def start(self) -> None:
        self._connection.open()
        known = self._workspace.stat(_MARK) is not None
        if known and not self._connection.had_session:
            raise SourceGoneError(
                f"the MQTT broker no longer has the session {self._client_id!r}: what was published since is lost",
                next="start the job over with a new checkpoint, and let the broker keep sessions for longer",
            )
        self._connection.subscribe(self._topic)
        if not known:
            self._workspace.create_exclusive(_MARK, self._client_id.encode())

    def received(self) -> Sequence[ReceivedMessage]:
        self._connection.barrier()
        with self._connection.news:
            came, self._came = self._came, []
        return came

    def acknowledge(self, tags: Sequence[int]) -> None:
        """Acknowledge, in the order in which messages came, as MQTT wants it (4.6): what is ready waits for what came before it."""
        self._ready.update(tag for tag in tags if tag in self._numbers)
        for tag in list(self._numbers):
            if tag not in self._ready:
                break
            self._ready.discard(tag)
            self._connection.client.ack(self._numbers.pop(tag), 1)
        self._connection.barrier()

    def waiting(self) -> int | None:
        return None

    def close(self) -> None:
        self._connection.close()

    def _on_message(self, message: Any) -> None:
        properties = message.properties
        given = dict(properties.json()) if properties is not None else {}
        user = {str(name): str(value) for name, value in given.get("UserProperty", [])}
        correlation = properties.CorrelationData if "CorrelationData" in given else None
        row = {
            "value": bytes(message.payload),
            "topic": message.topic,
            "retain": bool(message.retain),
            "content_type": given.get("ContentType"),
            "response_topic": given.get("ResponseTopic"),
            "correlation_data": correlation,
            "user_properties": json.dumps(user) if user else None,
        }
        id = (
            (None if correlation is None else correlation.hex())
            if self._id == CORRELATION
            else user.get(self._id or "")
        )
        with self._connection.news:
            self._next += 1
            if message.qos:  # of another there is nothing to acknowledge: its publisher asked for no more
                self._numbers[self._next] = message.mid
            self._came.append(ReceivedMessage(self._next, id, row))
