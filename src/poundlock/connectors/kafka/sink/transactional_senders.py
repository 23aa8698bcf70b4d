"""Messages in one transaction, with a marker that shares its fate: left open for the driver, or committed by the task.

A transaction has an initialisation of its own, so (id, pid, epoch) names it and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.kafka.offsets import by_topic, from_places
from poundlock.connectors.kafka.sink.committer import LONGER, OTHER_ROWS
from poundlock.connectors.kafka.sink.digest import Digest
from poundlock.connectors.kafka.sink.producer import ANSWER_S, PATIENCE_S, Sender
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.connectors.kafka.sink.transaction_ids import Slot, TransactionNames, slots, transaction_name
from poundlock.connectors.kafka.sink.transactions import (
    RESOLVED,
    UNSTABLE,
    Described,
    Marker,
    marker_text,
    transactions,
)
from poundlock.connectors.kafka.wire.coordinators import (
    ProducerIdentity,
    Transaction,
    init_producer,
    transaction_state,
)
from poundlock.errors import TerminalError, TransientError
from poundlock.threads import in_thread

_TIMED_OUT = f"if it ran out of time, {LONGER}"
_DRAIN_S = 5.0
_COMMIT_S = 60.0  # for a task that commits by itself
_DONE = "NoError"
_HAD_ROWS: set[TransactionNames] = set()
"""The sinks to which the newest attempt in this process had something to write. A worker that is lost knows none: it costs time only."""


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
        self._who = init_producer(self._client, tid, self._timeout_ms, ANSWER_S)
        self._open(topic, self._who, min(PATIENCE_S, self._timeout_ms / 1000))

    def _status(self) -> Described:
        """Return what the coordinator says of the transaction. Raises TransientError unless it is this one that is open."""
        tid = str(self._who.transactional_id)
        status = self._asked.describe(tid)
        if status is None or not status.is_open(self._who.id, self._who.epoch):
            raise TransientError(f"transaction {tid} did not stay open: {status}", next=_TIMED_OUT)
        return status

    def _mark(self, text: str, seconds: float) -> None:
        """Add a marker, made by `marker_text`, to the open transaction, within so many seconds."""
        transaction = self._transaction or Transaction(self._client, self._who, seconds)
        tid = str(self._who.transactional_id)
        transaction.add_offset(tid, self._marker_topic, self._context.checkpoint + 1, text, seconds)

    def _named(self, tid: str, pid: int, epoch: int) -> dict[str, Any]:
        """Return what a decision says of a transaction in any case."""
        name = transaction_name(tid, pid, epoch)
        return {
            "tid": tid,
            "pid": pid,
            "epoch": epoch,
            "group": tid,
            "marker_topic": self._marker_topic,
            "transaction": name,
        }

    def _end(self, *, commit: bool) -> str:
        return self._asked.end(str(self._who.transactional_id), self._who.id, self._who.epoch, commit=commit)

    def abandon(self) -> None:
        queue = self._queue
        with contextlib.suppress(Exception):
            if queue is not None:
                queue.drain(_DRAIN_S)
        super().abandon()
        with contextlib.suppress(Exception):
            if queue is not None:
                self._end(commit=False)


class TransactionSender(TransactionalSender):
    """Messages in a transaction that is left open.

    Where the attempt before in this process had rows, this one most likely has some too: its producer is then initialised while the
    first of them are still being read. A producer that sends nothing has no transaction, and holds nobody up.
    """

    _slot: Slot | None = None
    _ahead: Future[tuple[Slot, ProducerIdentity]] | None = None

    def __init__(self, sink: KafkaSink, names: TransactionNames, context: WriterContext) -> None:
        super().__init__(sink, names, context)
        self._topic = sink.topic if isinstance(sink.topic, str) else None
        if names in _HAD_ROWS:
            self._ahead = in_thread(self._initialised, "poundlock-transaction")

    def begin(self, topic: str | None, place: Mapping[str, Any]) -> None:
        if self._queue is None:
            ahead, self._ahead = self._ahead, None
            if ahead is None:
                self._check_topic(topic)
            self._slot, self._who = self._initialised() if ahead is None else ahead.result()
            self._open(topic, self._who, min(PATIENCE_S, self._timeout_ms / 1000))

    def _initialised(self) -> tuple[Slot, ProducerIdentity]:
        """Return a producer for its only transaction, and the slot that its id is of."""
        slot = self._free_slot()
        try:
            who = init_producer(self._client, slot.tid, self._timeout_ms, ANSWER_S)
            if self._topic is not None:
                self._metadata(self._topic)
        except BaseException:
            slot.release()
            raise
        return slot, who

    def _free_slot(self) -> Slot:
        for slot in slots(self._names, self._context.checkpoint):
            try:
                state = transaction_state(self._client, slot.tid, ANSWER_S)
            except BaseException:
                slot.release()
                raise
            if state is None or state in RESOLVED:
                return slot
            slot.release()
        raise AssertionError("slots do not end")

    def prepare(self, digest: Digest) -> JSON:
        who, transaction = self._who, self._transaction
        assert transaction is not None
        # The marker goes its way beside the last messages: it shares the fate of the transaction, whatever comes first.
        self._send_held()
        self._mark(marker_text(str(who.transactional_id), who.id, who.epoch, digest.rows, digest.text), ANSWER_S)
        self._flush(self._timeout_ms / 1000)
        # The transaction stays open, which the driver sees before it decides; it ends it.
        Sender.abandon(self)
        self._release()
        _HAD_ROWS.add(self._names)
        return {
            **self._named(str(who.transactional_id), who.id, who.epoch),
            "places": from_places(by_topic(transaction.places)),
            "begun_ms": transaction.begun_ms,
            "deadline_ms": transaction.begun_ms + self._timeout_ms,
        }

    def _release(self) -> None:
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    def abandon(self) -> None:
        if self._queue is None:
            _HAD_ROWS.discard(self._names)
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.add_done_callback(_release_unused)
        super().abandon()
        self._release()


def _release_unused(ahead: Future[tuple[Slot, ProducerIdentity]]) -> None:
    """Release the slot of a producer that nobody wants any more."""
    with contextlib.suppress(Exception):
        ahead.result()[0].release()


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
