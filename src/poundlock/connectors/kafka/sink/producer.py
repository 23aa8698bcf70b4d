"""A task's way to the broker: one transaction, with a marker that shares its fate, or messages without one.

A transaction has an initialisation of its own, so (id, pid, epoch) names it and nothing else; the producer of a prepared
one is dropped and never closed, for closing aborts it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.kafka.client_loader import confluent
from poundlock.connectors.kafka.offsets import from_places
from poundlock.connectors.kafka.sink.committer import LONGER, OTHER_ROWS
from poundlock.connectors.kafka.sink.message_encoder import Digest
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.connectors.kafka.sink.transaction_ids import Slot, TransactionNames, slots, transaction_name
from poundlock.connectors.kafka.sink.transactions import UNSTABLE, Described, Marker, marker_text, transactions
from poundlock.errors import PoundlockError, TerminalError, TransientError

_TIMED_OUT = f"if it ran out of time, {LONGER}"
_POLL_EVERY = 1000
_ANSWER_S = 30.0
_COMMIT_S = 60.0  # for a task that commits by itself
_TOPIC_S = 5.0


@dataclass(frozen=True, slots=True)
class _Failures:
    """What the client reported: apart from the sender, so that the producer is in no cycle and goes when it is dropped."""

    deliveries: list[Any]

    def note(self, error: Any, message: Any) -> None:
        """Take why a message was not delivered; one that only went down with another says nothing."""
        others = confluent().KafkaError._INVALID_DIFFERENT_RECORD
        if error is not None and error.code() != others and len(self.deliveries) < 10:
            self.deliveries.append(error)

    def end(self, error: Any) -> None:
        """Take what ends the producer: without this the client raises it from a callback, among other callbacks."""
        if error.fatal():
            self.deliveries.insert(0, error)


class Sender:
    """A producer of one task attempt, with settings of confluent-kafka."""

    # What to type when the client says that the producer, or its transaction, was ended from outside.
    when_ended = "look into the broker's log; the checkpoint is repeated"

    def __init__(self, servers: str, settings: Mapping[str, Any]) -> None:
        self.servers = servers
        self._conf = {
            "bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 1000,
            "linger.ms": 5, "partitioner": "murmur2_random", "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True, **settings,
        }  # fmt: skip
        self._failures = _Failures([])
        self._producer: Any = None
        self._produce: Callable[..., None] = _closed
        self._sent = 0
        self._partitions: dict[str, int] = {}

    def _open(self, topic: str | None, **more: Any) -> Any:
        self._producer = confluent().Producer(
            {**self._conf, **more, "on_delivery": self._failures.note, "error_cb": self._failures.end}
        )
        self._produce = self._producer.produce
        if topic is not None and (fault := self.place_fault(topic, None)) is not None:
            raise TransientError(
                f"Kafka at {self.servers}: {fault}", next=f"kafka-topics.sh --create --topic {topic}; the job goes on"
            )
        return self._producer

    def begin(self, topic: str | None, place: Mapping[str, Any]) -> None:
        """Be ready to send to a topic, the only one there will be if it is known, rows of which the first is from a place, see `Origin.at`."""
        if self._producer is None:
            self._open(topic)

    def send(self, topic: str, value: bytes | None, key: bytes | None = None, **more: Any) -> str | None:
        """Send a message; return why it can never be sent, if it cannot."""
        while True:
            try:
                self._produce(topic, value, key, **more)
            except BufferError:
                self._producer.poll(0.05)
                self._check()
                continue
            except confluent().KafkaException as error:
                if error.args[0].code() == confluent().KafkaError.MSG_SIZE_TOO_LARGE:
                    return f"larger than a message may be: {len(value or b'')} bytes"
                if error.args[0].code() in (confluent().KafkaError._FATAL, confluent().KafkaError._STATE):
                    self._producer.poll(0)
                    self._check()  # says why
                raise
            self._sent += 1
            if not self._sent % _POLL_EVERY:
                self.poll()
            return None

    def send_values(self, topic: str, values: Sequence[bytes | None]) -> Mapping[int, str]:
        """Send messages that are a value each; return which can never be sent, and why."""
        produce, refused = self._produce, dict[int, str]()
        for i, value in enumerate(values):
            try:
                produce(topic, value)
            except (BufferError, confluent().KafkaException):
                if (fault := self.send(topic, value)) is not None:
                    refused[i] = fault
        self.poll()
        return refused

    def place_fault(self, topic: str, partition: int | None) -> str | None:
        """Return why a message cannot go to a place, None if it can."""
        if topic not in self._partitions:
            self._partitions[topic] = self._look_up(topic)
        count = self._partitions[topic]
        if not count:
            return f"topic {topic} does not exist"
        if partition is not None and partition >= count:
            return f"topic {topic} has no partition {partition}"
        return None

    def _look_up(self, topic: str) -> int:
        end = time.monotonic() + _TOPIC_S
        while True:
            metadata = self._producer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
            if metadata.error is None:
                return len(metadata.partitions)
            if metadata.error.code() == confluent().KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise confluent().KafkaException(metadata.error)
            if time.monotonic() > end:
                return 0
            time.sleep(0.1)  # a topic that the broker makes on demand is there in a moment

    def poll(self) -> None:
        """Look whether anything failed. Raises TransientError, or PoundlockError where that says something of a message."""
        if self._producer is not None:
            self._producer.poll(0)
        self._check()

    def _check(self) -> None:
        if self._failures.deliveries:
            error, kafka = self._failures.deliveries[0], confluent().KafkaError
            if error.code() in (kafka.MSG_SIZE_TOO_LARGE, kafka.INVALID_RECORD, kafka.INVALID_TIMESTAMP):
                raise PoundlockError(
                    f"Kafka at {self.servers} refuses a message for what it is: {error.str()}",
                    next="leave such records out before the sink, or look at the topic's max.message.bytes and "
                    "message.timestamp.after.max.ms; a compacted topic needs keys",
                )
            raise TransientError(
                f"messages were not taken by Kafka at {self.servers}: {error.str()}",
                next=self.when_ended if error.fatal() else "look into the broker's log; the checkpoint is repeated",
            )

    def _flush(self, seconds: float) -> None:
        left = self._producer.flush(seconds)
        self._check()
        if left:
            raise TransientError(
                f"{left} messages were not taken by Kafka at {self.servers} in {seconds:.0f} s",
                next="look into the broker's log; the checkpoint is repeated",
            )

    def prepare(self, digest: Digest) -> JSON:
        """Wait until all is sent and return what the decision has to say of it."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Drop the producer; must not raise."""
        self._producer, self._produce = None, _closed


def _closed(*arguments: Any, **more: Any) -> None:
    raise RuntimeError("the producer was not begun")


class PlainSender(Sender):
    """Messages without a transaction: visible at once, and once more when a task is repeated.

    `wait` says whether `prepare` waits until the broker has all of them.
    """

    def __init__(self, servers: str, settings: Mapping[str, Any], *, wait: bool) -> None:
        super().__init__(servers, settings)
        self._wait = wait

    def _check(self) -> None:
        if self._wait:
            super()._check()

    def prepare(self, digest: Digest) -> JSON:
        if self._wait:
            self._flush(_ANSWER_S * 4)
        else:
            self._producer.flush(1)
        self.abandon()
        return {}


class TransactionalSender(Sender):
    """Messages in one transaction of one of the sink's `names`, which shares its fate with a marker.

    The markers' offsets are for partition 0 of the sink's marker topic. After the sink's timeout the broker aborts the transaction.
    """

    when_ended = _TIMED_OUT

    def __init__(
        self, sink: KafkaSink, settings: Mapping[str, Any], names: TransactionNames, context: WriterContext
    ) -> None:
        super().__init__(sink.bootstrap_servers, settings)
        self._names, self._context = names, context
        self._asked = transactions(sink.bootstrap_servers, sink.security)
        self._marker_topic, self._timeout_ms = sink.marker_topic, sink.timeout_ms
        self._tid, self._pid, self._epoch = "", -1, -1

    def _begin(self, topic: str | None, tid: str) -> None:
        """Initialise a producer and begin its only transaction, and learn who it is, as the coordinator says.

        Should another have initialised the id in between, this learns of that one, and the marker that follows is refused: both
        cannot be the newest.
        """
        producer = self._open(topic, **{"transactional.id": tid, "transaction.timeout.ms": self._timeout_ms})
        for _ in range(2):  # connections that are there already spare the next call librdkafka's pause of half a second
            producer.list_topics(self._marker_topic, timeout=_ANSWER_S)
        producer.init_transactions(_ANSWER_S)
        status = self._asked.describe(tid)
        producer.begin_transaction()
        if status is None:
            raise TransientError(f"Kafka at {self.servers} does not know transactional id {tid} just initialised")
        self._tid, self._pid, self._epoch = tid, status.pid, status.epoch

    def _status(self) -> Described:
        """Return what the coordinator says of the transaction. Raises TransientError unless it is this one that is open."""
        status = self._asked.describe(self._tid)
        if status is None or not status.is_open(self._pid, self._epoch):
            raise TransientError(f"transaction {self._tid} did not stay open: {status}", next=_TIMED_OUT)
        return status

    def _mark(self, text: str, seconds: float) -> None:
        """Add a marker, made by `marker_text`, to the open transaction, within so many seconds."""
        marker = confluent().TopicPartition(self._marker_topic, 0, self._context.checkpoint + 1, metadata=text)
        self._producer.send_offsets_to_transaction([marker], group_metadata(self._tid), seconds)

    def _named(self, tid: str, pid: int, epoch: int) -> dict[str, Any]:
        """Return what a decision says of a transaction in any case."""
        name = transaction_name(tid, pid, epoch)
        return {
            "tid": tid, "pid": pid, "epoch": epoch, "group": tid, "marker_topic": self._marker_topic, "transaction": name
        }  # fmt: skip

    def abandon(self) -> None:
        producer = self._producer
        super().abandon()
        with contextlib.suppress(Exception):
            if producer is not None:
                producer.purge()
                producer.abort_transaction(5)


class TransactionSender(TransactionalSender):
    """Messages in a transaction that is left open."""

    _slot: Slot | None = None

    def begin(self, topic: str | None, place: Mapping[str, Any]) -> None:
        if self._producer is None:
            self._slot = self._free_slot()
            self._begin(topic, self._slot.tid)

    def _free_slot(self) -> Slot:
        for slot in slots(self._names, self._context.checkpoint):
            status = self._asked.describe(slot.tid)
            if status is None or status.resolved:
                return slot
            slot.release()
        raise AssertionError("slots do not end")

    def prepare(self, digest: Digest) -> JSON:
        self._flush(self._timeout_ms / 1000)
        self._mark(marker_text(self._tid, self._pid, self._epoch, digest.rows, digest.text), _ANSWER_S)
        self._flush(self._timeout_ms / 1000)
        status = self._status()
        # Dropped, not closed: an open transaction of a producer that is closed would be aborted.
        Sender.abandon(self)
        self._release()
        return {
            **self._named(self._tid, status.pid, status.epoch), "places": from_places(status.places),
            "begun_ms": status.started_ms, "deadline_ms": status.started_ms + status.timeout_ms,
        }  # fmt: skip

    def _release(self) -> None:
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    def abandon(self) -> None:
        super().abandon()
        self._release()


class TaskSender(TransactionalSender):
    """Messages in one transaction that the task commits itself; the time of one task must fit into its timeout.

    Its transactional id is made of the partition it reads, so that only one attempt of it can write; its marker says which checkpoint
    was the last it committed, so that a repetition produces nothing: it sends its messages once more, so that what is refused is
    refused again, and aborts. This holds as long as the same rows come again; where they do not, the job stops.
    """

    _done: Marker | None = None

    def begin(self, topic: str | None, place: Mapping[str, Any]) -> None:
        if self._producer is not None:
            return
        self._begin(topic, self._names.of_task(place, self._context.subtask))
        # Initialising the id ended whatever an earlier attempt had open, so the marker is stable, and stays as it is while
        # this attempt is the newest: a newer one fences it.
        marker, checkpoint = self._asked.marker(self._tid, self._marker_topic, stable=True), self._context.checkpoint
        if marker == UNSTABLE:
            raise TransientError(
                f"a transaction of {self._tid} is still being ended", next="the checkpoint is repeated"
            )
        assert marker is None or isinstance(marker, Marker)
        if marker is not None and marker.checkpoint > checkpoint:
            raise TransientError(
                f"{self._tid} has committed checkpoint {marker.checkpoint} and is now to write {checkpoint}",
                next="if this repeats, Spark's checkpoint was set back: restore it to the newest decision of the ledger",
            )
        self._done = marker if marker is not None and marker.checkpoint == checkpoint else None

    def prepare(self, digest: Digest) -> JSON:
        self._flush(self._timeout_ms / 1000)
        done = self._done
        if done is not None:
            self._check_same(done, digest)
            self._producer.abort_transaction(_COMMIT_S)
        else:
            done = self._commit(digest)
        self._check()
        Sender.abandon(self)
        places = {} if done.places is None else {"places": done.places}
        named = self._named(done.tid, done.pid, done.epoch)
        return {**named, "checkpoint": self._context.checkpoint, "committed": True, **places}

    def _commit(self, digest: Digest) -> Marker:
        places = from_places(self._status().places)
        text = marker_text(self._tid, self._pid, self._epoch, digest.rows, digest.text, places)
        self._mark(text, _COMMIT_S)
        self._producer.commit_transaction(_COMMIT_S)
        return Marker.of(text, self._context.checkpoint)

    def _check_same(self, done: Marker, digest: Digest) -> None:
        if (done.rows, done.digest) != (digest.rows, digest.text):
            raise TerminalError(
                f"{self._tid} has committed {done.rows} messages of checkpoint {self._context.checkpoint}, and now gives "
                f"{digest.rows}, or others",
                next=OTHER_ROWS,
            )


def group_metadata(group: str) -> Any:
    """Return the metadata of a group nobody is a member of; the client makes it of a consumer only, which reaches no broker."""
    consumer = confluent().Consumer({"group.id": group, "log_level": 0})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()
