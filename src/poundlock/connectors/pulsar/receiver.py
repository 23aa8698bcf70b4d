"""A durable subscription, a consumer for each partition: messages come, and are acknowledged one by one."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from poundlock.connectors.messages.acknowledged import ReceivedMessage
from poundlock.connectors.pulsar.connection import PulsarAddress, load_pulsar, partitions_of

COLUMNS = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.string()),
        ("topic", pa.string()),
        ("message_id", pa.string()),
        ("publish_time", pa.timestamp("ms", "UTC")),
        ("event_time", pa.timestamp("ms", "UTC")),
        ("producer", pa.string()),
        ("properties", pa.string()),
    ]
)
"""What a message has; `properties` as a JSON object."""
Start = Literal["earliest", "latest"]
Place = tuple[int, int, int]
"""Of a message in its partition: ledger, entry, and number in a batch."""
_NOWHERE: Place = (-1, -1, -1)
_LONGEST_S = 1.0  # that one look waits for what a broker has ready
_BUSY_S = 5.0  # that a consumer which died may still have the subscription


class SubscriptionReceiver:
    """Receives what a subscription has, as its only consumer.

    Args:
        start: where a subscription begins that is not there yet.
        prefetch: most messages that are delivered and not acknowledged.
    """

    def __init__(self, address: PulsarAddress, topic: str, subscription: str, *, start: Start, prefetch: int) -> None:
        self._address, self._topic, self._subscription = address, topic, subscription
        self._start, self._prefetch = start, prefetch
        self._client: Any = None
        self._consumers: list[Any] = []
        self._looked: dict[int, Place] = {}  # by consumer, up to which message it was waited for
        self._open: dict[int, tuple[int, Any]] = {}  # tags that are not acknowledged, each with its consumer and id
        self._next = 0

    def start(self) -> None:
        client = self._client = self._address.client()
        with self._address.explained(f"subscribing to {self._topic!r}"):
            partitions = partitions_of(client, self._topic)
            self._consumers = [self._subscribed(partition, len(partitions)) for partition in partitions]

    def received(self) -> Sequence[ReceivedMessage]:
        came: list[ReceivedMessage] = []
        with self._address.explained(f"reading {self._topic!r}"):
            for number, consumer in enumerate(self._consumers):
                came += self._drained(number, consumer)
        return came

    def acknowledge(self, tags: Sequence[int]) -> None:
        """Acknowledge. The client sends acknowledgements together; what a broken connection loses of them comes again, and is known by its id."""
        with self._address.explained(f"acknowledging messages of {self._topic!r}"):
            for tag in tags:
                number, id = self._open.pop(tag)
                self._consumers[number].acknowledge(id)

    def waiting(self) -> int | None:
        return None

    def close(self) -> None:
        if self._client is not None:
            with suppress(load_pulsar().PulsarException):
                self._client.close()

    def _subscribed(self, partition: str, partitions: int) -> Any:
        pulsar = load_pulsar()
        places = {"earliest": pulsar.InitialPosition.Earliest, "latest": pulsar.InitialPosition.Latest}
        end = time.monotonic() + _BUSY_S
        while True:
            try:
                return self._client.subscribe(
                    partition,
                    self._subscription,
                    consumer_type=pulsar.ConsumerType.Exclusive,
                    initial_position=places[self._start],
                    receiver_queue_size=max(1, min(1_000, self._prefetch // partitions)),
                )
            except pulsar.ConsumerBusy:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def _drained(self, number: int, consumer: Any) -> list[ReceivedMessage]:
        """Return what a partition has: it is waited for what was its last message when it was asked, and no longer."""
        pulsar = load_pulsar()
        last = _place(consumer.get_last_message_id())
        end = time.monotonic() + (0 if last <= self._looked.get(number, _NOWHERE) else _LONGEST_S)
        came: list[ReceivedMessage] = []
        while len(self._open) < self._prefetch:
            try:
                message = consumer.receive(timeout_millis=max(1, int(1_000 * (end - time.monotonic()))))
            except pulsar.Timeout:
                self._looked[number] = last
                break
            came.append(self._row(number, message))
            if _place(message.message_id()) >= last:
                end = time.monotonic()
        return came

    def _row(self, number: int, message: Any) -> ReceivedMessage:
        self._next += 1
        given = message.message_id()
        self._open[self._next] = (number, given)
        id = ":".join(map(str, (number, *_place(given))))
        properties = message.properties()
        row = {
            "value": message.data(),
            "key": message.partition_key() or None,
            "topic": message.topic_name(),
            "message_id": id,
            "publish_time": _time(message.publish_timestamp()),
            "event_time": _time(message.event_timestamp()),
            "producer": message.producer_name(),
            "properties": json.dumps(properties) if properties else None,
        }
        return ReceivedMessage(self._next, id, row)


def _place(id: Any) -> Place:
    return (id.ledger_id(), id.entry_id(), id.batch_index())


def _time(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1_000, UTC) if ms else None
