"""A task's way to the brokers: messages are checked, given a partition, encoded and sent, with those that are there at the time.

What is sent without a transaction is visible at once; see transactional_senders.py for the others.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from poundlock.checkpoint.participant import JSON
from poundlock.connectors.kafka.login import login
from poundlock.connectors.kafka.sink.digest import NO_TIME, Digest
from poundlock.connectors.kafka.sink.message_encoder import Messages, joined_messages
from poundlock.connectors.kafka.sink.partitioner import Partitioner
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.connectors.kafka.wire.batch_queue import BatchQueue, Undelivered
from poundlock.connectors.kafka.wire.byte_strings import Integers
from poundlock.connectors.kafka.wire.coordinators import BrokerRefusal, ProducerIdentity, Transaction, init_producer
from poundlock.connectors.kafka.wire.fetch_client import TopicMetadata, fetch_client
from poundlock.connectors.kafka.wire.record_encoder import MOST_OVERHEAD, encode_runs
from poundlock.errors import PoundlockError, TransientError

_REPEATED = "look into the broker's log; the checkpoint is repeated"
ANSWER_S = 30.0  # how long one question may take
PATIENCE_S = 300.0  # how long a batch is tried
_TOPIC_S = 5.0
_LONG_RUN = 1000  # messages that follow one another into a partition: such runs are left where they are
_PIECE_BYTES = 8 << 20  # so much is encoded at a time
# What a broker refuses for what it is, in librdkafka's words.
_OF_MESSAGES = {
    10: "Broker: Message size too large", 32: "Broker: Invalid timestamp", 87: "Broker: Broker failed to validate record"
}  # fmt: skip
_ENDED = (47, 48, 49, 90)  # another epoch, no transaction, an id nobody knows, fenced


class Sender:
    """The way of one task attempt to the topics of a sink."""

    # What to type when the broker says that the producer, or its transaction, was ended from outside.
    when_ended = _REPEATED

    def __init__(self, sink: KafkaSink) -> None:
        self.servers = sink.bootstrap_servers
        self._settings = sink.produce_settings
        self._client = fetch_client(self.servers, login(sink.security), self._settings.connection)
        self._queue: BatchQueue | None = None
        self._transaction: Transaction | None = None  # that of what is sent, where there is one
        self._topics: dict[str, TopicMetadata] = {}
        self._partitioners: dict[str, Partitioner] = {}
        self._held: list[Messages] = []
        self._held_bytes, self._held_since = 0, 0.0

    def begin(self, topic: str | None, place: Mapping[str, Any]) -> None:
        """Be ready to send to a topic, the only one there will be if it is known, rows of which the first is from a place, see `Origin.at`."""
        if self._queue is None:
            self._open(topic, ProducerIdentity())

    def _check_topic(self, topic: str | None) -> None:
        if topic is not None and not self._metadata(topic).partitions:
            raise TransientError(
                f"Kafka at {self.servers}: topic {topic} does not exist",
                next=f"kafka-topics.sh --create --topic {topic}; the job goes on",
            )

    def _open(self, topic: str | None, who: ProducerIdentity, patience_s: float = PATIENCE_S) -> None:
        self._check_topic(topic)
        self._transaction = None if who.transactional_id is None else Transaction(self._client, who, ANSWER_S)
        self._queue = BatchQueue(self._client, who, self._settings, self._transaction, patience_s)

    def _metadata(self, topic: str) -> TopicMetadata:
        """Return what brokers know of a topic, asked once an attempt: partitions may have been added."""
        if topic not in self._topics:
            self._topics[topic] = self._look_up(topic)
        return self._topics[topic]

    def _look_up(self, topic: str) -> TopicMetadata:
        began = time.monotonic()
        while True:
            try:
                known = self._client.topic(topic, again=True, create=self._settings.create_topics)
                # A topic that brokers make on demand is there in a moment.
                if known.partitions or time.monotonic() - began > _TOPIC_S:
                    return known
            except OSError:
                if time.monotonic() - began > ANSWER_S:
                    raise
            time.sleep(0.1)

    def faults(self, messages: Messages) -> dict[int, str]:
        """Return which messages can never be sent, and why."""
        bad: dict[int, str] = {}
        most = self._settings.message_bytes - MOST_OVERHEAD
        for row in np.flatnonzero(messages.sizes > most).tolist():
            bad[row] = f"larger than a message may be: {int(messages.values.length[row])} bytes"
        if isinstance(messages.topics, str) and messages.partitions is None:
            return bad
        for topic, rows in _by_topic(messages):
            count = self._metadata(topic).partitions
            if not count:
                bad |= dict.fromkeys(rows.tolist(), f"topic {topic} does not exist")
            elif messages.partitions is not None:
                given = messages.partitions[rows]
                for row, number in zip(rows[given >= count].tolist(), given[given >= count].tolist(), strict=True):
                    bad[row] = f"topic {topic} has no partition {number}"
        return bad

    def add(self, messages: Messages) -> None:
        """Send messages that have no fault, at once if nothing is under way, else with those that follow soon."""
        assert self._queue is not None
        self._queue.poll()
        now = time.monotonic()
        self._held_since = self._held_since if self._held else now
        self._held.append(messages)
        self._held_bytes += int(messages.sizes.sum())
        waited = now - self._held_since > self._settings.linger_s
        if waited or not self._queue.messages or self._held_bytes >= self._settings.batch_bytes // 4:
            self._send_held()

    def _send_held(self) -> None:
        if not self._held:
            return
        messages = joined_messages(self._held)
        self._held, self._held_bytes = [], 0
        for topic, rows in _by_topic(messages):
            of_topic = messages if len(rows) == len(messages) else messages.take(rows)
            ends = np.cumsum(of_topic.sizes)
            first = 0
            while first < len(of_topic):
                full = int(ends[first - 1]) + _PIECE_BYTES if first else _PIECE_BYTES
                after = max(int(np.searchsorted(ends, full, "right")), first + 1)
                self._send(topic, of_topic.take(slice(first, after)) if after - first < len(of_topic) else of_topic)
                first = after

    def _send(self, topic: str, messages: Messages) -> None:
        """Encode messages of one topic and hand them to the queue, a batch at a time."""
        assert self._queue is not None
        settings, metadata = self._settings, self._metadata(topic)
        sizes = messages.sizes + MOST_OVERHEAD
        partitioner = self._partitioners.setdefault(topic, Partitioner(settings.partitioner))
        led = np.array(sorted(metadata.leaders) or range(metadata.partitions), np.int64)
        partitions = partitioner.choose(
            messages.keys, messages.partitions, sizes, metadata.partitions, led, settings.batch_bytes
        )
        if np.count_nonzero(np.diff(partitions)) * _LONG_RUN > len(partitions):
            order = np.argsort(partitions, kind="stable")
            messages, partitions, sizes = messages.take(order), partitions[order], sizes[order]
        now_ms = int(time.time() * 1000)
        times_ms: Integers | int = now_ms
        if messages.times_ms is not None:
            times_ms = np.where(messages.times_ms == NO_TIME, now_ms, messages.times_ms)
        starts = _starts(partitions, sizes, settings.batch_bytes, settings.batch_records)
        for run in encode_runs(messages.values, messages.keys, messages.headers, times_ms, starts):
            self._queue.put((topic, int(partitions[run.rows.start])), run)

    def _flush(self, seconds: float) -> None:
        assert self._queue is not None
        self._send_held()
        self._queue.flush(seconds)

    def explained(self, error: Exception) -> PoundlockError:
        """Return what went wrong, and what to do."""
        if isinstance(error, BrokerRefusal) and error.code in _OF_MESSAGES:
            return PoundlockError(
                f"Kafka at {self.servers} refuses a message for what it is: {_OF_MESSAGES[error.code]}",
                next="leave such records out before the sink, or look at the topic's max.message.bytes and "
                "message.timestamp.after.max.ms; a compacted topic needs keys",
            )
        if isinstance(error, Undelivered):
            what = (
                f"{error.messages} messages were not taken by Kafka at {self.servers} in {error.seconds:.0f} s: {error}"
            )
            return TransientError(what, next=_REPEATED)
        ended = isinstance(error, BrokerRefusal) and error.code in _ENDED
        return TransientError(
            f"writing to Kafka at {self.servers} failed: {error}",
            next=self.when_ended if ended else "see that the brokers run and what they log; the checkpoint is repeated",
        )

    def prepare(self, digest: Digest) -> JSON:
        """Wait until all is sent and return what the decision has to say of it."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Forget what is not sent; must not raise."""
        queue, self._queue, self._held = self._queue, None, []
        if queue is not None:
            queue.close()


def _by_topic(messages: Messages) -> list[tuple[str, Integers]]:
    """Return each topic with the messages that go to it, in order."""
    if isinstance(messages.topics, str):
        return [(messages.topics, np.arange(len(messages)))]
    rows: dict[str, list[int]] = {}
    for row, topic in enumerate(messages.topics):
        rows.setdefault(topic, []).append(row)
    return [(topic, np.array(numbers, np.int64)) for topic, numbers in rows.items()]


def _starts(partitions: Integers, sizes: Integers, most_bytes: int, most_records: int) -> list[int]:
    """Return where batches begin among messages in the order of their partitions."""
    starts: list[int] = []
    ends = np.cumsum(sizes)
    for after in [*(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]:
        first = starts[-1] if starts else 0
        while first < after:
            if not starts or starts[-1] != first:
                starts.append(first)
            before = int(ends[first - 1]) if first else 0
            full = int(np.searchsorted(ends, before + most_bytes, "right"))
            first = min(max(full, first + 1), first + most_records, after)
        starts.append(after)
    return starts[:-1]


class PlainSender(Sender):
    """Messages without a transaction: visible at once, and once more when a task is repeated.

    `wait` says whether `prepare` waits until the broker has all of them; where it does not, nobody asks what became of them.
    """

    def __init__(self, sink: KafkaSink, *, wait: bool) -> None:
        super().__init__(sink)
        self._wait = wait

    def begin(self, topic: str | None, place: Mapping[str, Any]) -> None:
        if self._queue is None:
            who = init_producer(self._client, None, 0, ANSWER_S) if self._wait else ProducerIdentity()
            self._open(topic, who)

    def add(self, messages: Messages) -> None:
        try:
            super().add(messages)
        except (BrokerRefusal, Undelivered, OSError):
            if self._wait:
                raise
            self.abandon()
            self._open(None, ProducerIdentity())

    def prepare(self, digest: Digest) -> JSON:
        if self._wait:
            self._flush(ANSWER_S * 4)
        else:
            with contextlib.suppress(BrokerRefusal, Undelivered, OSError):
                self._flush(1)
        self.abandon()
        return {}
