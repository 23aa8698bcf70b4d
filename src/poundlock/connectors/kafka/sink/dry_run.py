"""A KafkaSink that sends nothing: rows become messages, are refused or taken as by the real one, counted and digested.

The broker is asked which topics there are, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.kafka.sink.digest import Digest
from poundlock.connectors.kafka.sink.message_encoder import Messages
from poundlock.connectors.kafka.sink.producer import Sender
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.connectors.kafka.sink.transaction_ids import TransactionNames
from poundlock.errors import TransientError


@dataclass(frozen=True)
class MeasuringKafkaSink(KafkaSink):
    """Encodes as a KafkaSink does."""

    def _sender(self, names: TransactionNames, context: WriterContext) -> Sender:
        return MeasuringSender(self)


class MeasuringSender(Sender):
    """Takes messages and forgets them."""

    def __init__(self, sink: KafkaSink) -> None:
        super().__init__(sink)
        self._settings = replace(self._settings, create_topics=False)

    def begin(self, topic: str | None, place: Mapping[str, Any]) -> None:
        if topic is not None and not self._metadata(topic).partitions:
            raise TransientError(
                f"Kafka at {self.servers}: topic {topic} does not exist", next="replay it while the topic is there"
            )

    def add(self, messages: Messages) -> None:
        """Nothing is under way."""

    def prepare(self, digest: Digest) -> JSON:
        return {}
