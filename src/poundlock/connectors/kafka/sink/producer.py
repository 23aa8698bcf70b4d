"""A task's way to the broker: one transaction, with a marker that shares its fate, or messages without one.

A transaction has an initialisation of its own, so (id, pid, epoch) names it and nothing else; a prepared one is left open for the
driver.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.kafka.login import login
from poundlock.connectors.kafka.offsets import from_places
from poundlock.connectors.kafka.sink.committer import LONGER, OTHER_ROWS
from poundlock.connectors.kafka.sink.digest import NO_TIME, Digest
from poundlock.connectors.kafka.sink.message_encoder import Messages, joined_messages
from poundlock.connectors.kafka.sink.partitioner import Partitioner
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.connectors.kafka.sink.transaction_ids import Slot, TransactionNames, slots, transaction_name
from poundlock.connectors.kafka.sink.transactions import UNSTABLE, Described, Marker, marker_text, transactions
from poundlock.connectors.kafka.wire.batch_queue import BatchQueue, Undelivered
from poundlock.connectors.kafka.wire.byte_strings import Integers
from poundlock.connectors.kafka.wire.coordinators import BrokerRefusal, ProducerIdentity, Transaction, init_producer
from poundlock.connectors.kafka.wire.fetch_client import TopicMetadata, fetch_client
from poundlock.connectors.kafka.wire.record_encoder import MOST_OVERHEAD, encode_runs
from poundlock.errors import PoundlockError, TerminalError, TransientError

_TIMED_OUT = f"if it ran out of time, {LONGER}"
_REPEATED = "look into the broker's log; the checkpoint is repeated"
_ANSWER_S = 30.0
_COMMIT_S = 60.0  # for a task that commits by itself
_TOPIC_S = 5.0
_PIECE_BYTES = 8 << 20  # so much is encoded at a time
_DONE = "NoError"
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

    def _open(self, topic: str | None, who: ProducerIdentity, patience_s: float = 300.0) -> None:
        self._check_topic(topic)
        transaction = None if who.transactional_id is None else Transaction(self._client, who, _ANSWER_S)
        self._queue = BatchQueue(self._client, who, self._settings, transaction, patience_s)

    def _metadata(self, topic: str) -> TopicMetadata:
        """Return what brokers know of a topic; one that they make on demand is there in a moment."""
        known, end = self._topics.get(topic), time.monotonic() + _TOPIC_S
        while known is None:
            create = self._settings.create_topics
            try:
                known = self._client.topic(topic, create=create)
                if not known.partitions:
                    known = self._client.topic(topic, again=True, create=create)
            except OSError:
                if time.monotonic() > end + _ANSWER_S - _TOPIC_S:
                    raise
                known = None
            if known is not None and (known.partitions or time.monotonic() > end):
                self._topics[topic] = known
                break
            known = None
            time.sleep(0.1)
        return known

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
        if (partitions[1:] < partitions[:-1]).any():
            order = np.argsort(partitions, kind="stable")
            messages, partitions, sizes = messages.take(order), partitions[order], sizes[order]
        times_ms, now_ms = messages.times_ms, int(time.time() * 1000)
        if times_ms is None:
            times_ms = np.full(len(messages), now_ms)
        elif (missing := times_ms == NO_TIME).any():
            times_ms = np.where(missing, now_ms, times_ms)
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
            who = init_producer(self._client, None, 0, _ANSWER_S) if self._wait else ProducerIdentity()
            self._open(topic, who)

    def _send(self, topic: str, messages: Messages) -> None:
        try:
            super()._send(topic, messages)
        except (BrokerRefusal, Undelivered, OSError):
            if self._wait:
                raise
            self.abandon()
            self._open(None, ProducerIdentity())

    def prepare(self, digest: Digest) -> JSON:
        if self._wait:
            self._flush(_ANSWER_S * 4)
        else:
            with contextlib.suppress(BrokerRefusal, Undelivered, OSError):
                self._flush(1)
        self.abandon()
        return {}


class TransactionalSender(Sender):
    """Messages in one transaction of one of the sink's `names`, which shares its fate with a marker.

    The markers' offsets are for partition 0 of the sink's marker topic. After the sink's timeout the broker aborts the transaction.
    """

    when_ended = _TIMED_OUT

    def __init__(self, sink: KafkaSink, names: TransactionNames, context: WriterContext) -> None:
        super().__init__(sink)
        self._names, self._context = names, context
        self._asked = transactions(sink.bootstrap_servers, sink.security)
        self._marker_topic, self._timeout_ms = sink.marker_topic, sink.timeout_ms
        self._who = ProducerIdentity()

    def _begin(self, topic: str | None, tid: str) -> None:
        """Initialise a producer for its only transaction."""
        self._check_topic(topic)
        self._who = init_producer(self._client, tid, self._timeout_ms, _ANSWER_S)
        self._open(topic, self._who, min(300.0, self._timeout_ms / 1000))

    def _status(self) -> Described:
        """Return what the coordinator says of the transaction. Raises TransientError unless it is this one that is open."""
        tid = str(self._who.transactional_id)
        status = self._asked.describe(tid)
        if status is None or not status.is_open(self._who.id, self._who.epoch):
            raise TransientError(f"transaction {tid} did not stay open: {status}", next=_TIMED_OUT)
        return status

    def _mark(self, text: str, seconds: float) -> None:
        """Add a marker, made by `marker_text`, to the open transaction, within so many seconds."""
        transaction = Transaction(self._client, self._who, seconds)
        transaction.add_offset(str(self._who.transactional_id), self._marker_topic, self._context.checkpoint + 1, text)

    def _named(self, tid: str, pid: int, epoch: int) -> dict[str, Any]:
        """Return what a decision says of a transaction in any case."""
        name = transaction_name(tid, pid, epoch)
        return {
            "tid": tid, "pid": pid, "epoch": epoch, "group": tid, "marker_topic": self._marker_topic, "transaction": name
        }  # fmt: skip

    def _end(self, *, commit: bool) -> str:
        return self._asked.end(str(self._who.transactional_id), self._who.id, self._who.epoch, commit=commit)

    def abandon(self) -> None:
        begun = self._queue is not None
        super().abandon()
        if begun:
            with contextlib.suppress(Exception):
                self._end(commit=False)


class TransactionSender(TransactionalSender):
    """Messages in a transaction that is left open."""

    _slot: Slot | None = None

    def begin(self, topic: str | None, place: Mapping[str, Any]) -> None:
        if self._queue is None:
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
        who = self._who
        self._flush(self._timeout_ms / 1000)
        tid = str(who.transactional_id)
        self._mark(marker_text(tid, who.id, who.epoch, digest.rows, digest.text), _ANSWER_S)
        status = self._status()
        # The transaction stays open: the driver ends it.
        Sender.abandon(self)
        self._release()
        return {
            **self._named(tid, status.pid, status.epoch), "places": from_places(status.places),
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
        if self._queue is not None:
            return
        tid = self._names.of_task(place, self._context.subtask)
        self._begin(topic, tid)
        # Initialising the id ended whatever an earlier attempt had open, so the marker is stable, and stays as it is while
        # this attempt is the newest: a newer one fences it.
        marker, checkpoint = self._asked.marker(tid, self._marker_topic, stable=True), self._context.checkpoint
        if marker == UNSTABLE:
            raise TransientError(f"a transaction of {tid} is still being ended", next="the checkpoint is repeated")
        assert marker is None or isinstance(marker, Marker)
        if marker is not None and marker.checkpoint > checkpoint:
            raise TransientError(
                f"{tid} has committed checkpoint {marker.checkpoint} and is now to write {checkpoint}",
                next="if this repeats, Spark's checkpoint was set back: restore it to the newest decision of the ledger",
            )
        self._done = marker if marker is not None and marker.checkpoint == checkpoint else None

    def prepare(self, digest: Digest) -> JSON:
        self._flush(self._timeout_ms / 1000)
        done = self._done
        if done is not None:
            self._check_same(done, digest)
            self._finish(commit=False)
        else:
            done = self._commit(digest)
        Sender.abandon(self)
        places = {} if done.places is None else {"places": done.places}
        named = self._named(done.tid, done.pid, done.epoch)
        return {**named, "checkpoint": self._context.checkpoint, "committed": True, **places}

    def _commit(self, digest: Digest) -> Marker:
        places, who = from_places(self._status().places), self._who
        text = marker_text(str(who.transactional_id), who.id, who.epoch, digest.rows, digest.text, places)
        self._mark(text, _COMMIT_S)
        self._finish(commit=True)
        return Marker.of(text, self._context.checkpoint)

    def _finish(self, *, commit: bool) -> None:
        # After an answer that says neither yes nor no the task is repeated, and finds its marker or not.
        answer = self._end(commit=commit)
        if answer != _DONE:
            raise TransientError(f"writing to Kafka at {self.servers} failed: {answer}", next=_TIMED_OUT)

    def _check_same(self, done: Marker, digest: Digest) -> None:
        if (done.rows, done.digest) != (digest.rows, digest.text):
            raise TerminalError(
                f"{self._who.transactional_id} has committed {done.rows} messages of checkpoint "
                f"{self._context.checkpoint}, and now gives {digest.rows}, or others",
                next=OTHER_ROWS,
            )
