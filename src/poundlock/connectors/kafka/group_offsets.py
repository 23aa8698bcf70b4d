"""Commits the offsets of a consumer group, so that lag tools see how far a job has read.

One commit is under way at a time. Two at once may be answered in the other order when the broker asks for one of them again,
as it does while it is about to make its offsets topic, and the group would stay behind.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from poundlock.connectors.kafka.client_loader import confluent
from poundlock.connectors.kafka.errors import text_of
from poundlock.connectors.kafka.offsets import Partition

_log = logging.getLogger(__name__)
# How long the end of a job waits for its last offsets: a new cluster makes its offsets topic first.
_LAST_S = 10.0
_CLOSE_S = 2.0


class GroupOffsets:
    """The offsets of one group at one cluster. Threads may share it.

    Args:
        group: its id.
        conf: settings of confluent-kafka.
    """

    def __init__(self, group: str, conf: Mapping[str, Any]) -> None:
        # Never subscribed, so never a member: the group stays empty and anyone may look at it or move it.
        own = {"group.id": group, "enable.auto.commit": False, "error_cb": lambda error: None}
        self.consumer: Any = confluent().Consumer({**conf, **own})
        self._servers = conf["bootstrap.servers"]
        self._changed = threading.Condition()
        self._newest: Mapping[Partition, int] | None = None
        self._sender: threading.Thread | None = None

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets without waiting; only the newest given are sent. What goes wrong becomes a warning."""
        with self._changed:
            self._newest = dict(offsets)
            if self._sender is None:
                self._sender = threading.Thread(target=self._send, name="poundlock-group-offsets", daemon=True)
                self._sender.start()

    def _send(self) -> None:
        while True:
            with self._changed:
                offsets, self._newest = self._newest, None
                if offsets is None:
                    self._sender = None
                    self._changed.notify_all()
                    return
            self.commit_now(offsets)

    def commit_now(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets and wait for the answer; what goes wrong becomes a warning."""
        kafka = confluent()
        places = [kafka.TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        try:
            self.consumer.commit(offsets=places, asynchronous=False)
        except (kafka.KafkaException, RuntimeError) as error:  # a closed consumer is a RuntimeError
            _log.warning("group offsets were not committed to Kafka at %s: %s", self._servers, text_of(error.args[0]))

    def close(self) -> None:
        """Wait some seconds for what is still to be sent, and close the connection."""
        with self._changed:
            self._changed.wait_for(lambda: self._sender is None, _LAST_S)
        # Closing waits for minutes where no broker answers.
        closing = threading.Thread(target=self.consumer.close, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)
