"""A KafkaSink that sends nothing: rows become messages, are refused or taken as by the real one, counted and digested.

The broker is asked which topics there are, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.kafka.client_loader import confluent
from poundlock.connectors.kafka.sink.message_encoder import Digest
from poundlock.connectors.kafka.sink.producer import Sender
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.connectors.kafka.sink.transaction_ids import TransactionNames
from poundlock.errors import TransientError

_MAX_BYTES = "message.max.bytes"
_FRAME = 1000  # more than a message's own fields can take


@dataclass(frozen=True)
class MeasuringKafkaSink(KafkaSink):
    """Encodes as a KafkaSink does."""

    def _sender(self, names: TransactionNames, context: WriterContext) -> Sender:
        limit = int(self.client_options.get(_MAX_BYTES, 1_000_000))
        return MeasuringSender(self.bootstrap_servers, self.security.confluent(), limit)


class MeasuringSender(Sender):
    """Takes messages of up to a limit of bytes and forgets them."""

    def __init__(self, servers: str, login: Mapping[str, Any], limit: int) -> None:
        super().__init__(servers, login)
        self._login, self._limit = login, limit

    def begin(self, topic: str | None, place: Mapping[str, Any]) -> None:
        if self._producer is None:
            # A consumer, because a producer that asks for a topic may have the broker make it.
            own = {"bootstrap.servers": self.servers, "group.id": "poundlock-replay", "log_level": 0}
            self._producer = confluent().Consumer({**self._login, **own, "allow.auto.create.topics": False})
            if topic is not None and (fault := self.place_fault(topic, None)) is not None:
                raise TransientError(f"Kafka at {self.servers}: {fault}", next="replay it while the topic is there")

    def send(self, topic: str, value: bytes | None, key: bytes | None = None, **more: Any) -> str | None:
        size = len(value or b"") + len(key or b"") + sum(len(k) + len(v or b"") for k, v in more.get("headers") or ())
        if size + _FRAME > self._limit and self._too_large(value, key, more):
            return f"larger than a message may be: {len(value or b'')} bytes"
        return None

    def send_values(self, topic: str, values: Sequence[bytes | None]) -> Mapping[int, str]:
        faults = ((i, self.send(topic, value)) for i, value in enumerate(values))
        return {i: fault for i, fault in faults if fault is not None}

    def _too_large(self, value: bytes | None, key: bytes | None, more: Mapping[str, Any]) -> bool:
        """Ask the client that would send it, with no broker at its end."""
        kafka = confluent()
        producer = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, _MAX_BYTES: self._limit})
        try:
            producer.produce("topic", value, key, headers=more.get("headers"))
        except kafka.KafkaException as error:
            return bool(error.args[0].code() == kafka.KafkaError.MSG_SIZE_TOO_LARGE)
        finally:
            producer.purge()
        return False

    def poll(self) -> None:
        """Nothing is under way."""

    def prepare(self, digest: Digest) -> JSON:
        self.abandon()
        return {}

    def abandon(self) -> None:
        asked = self._producer
        super().abandon()
        if asked is not None:
            asked.close()
