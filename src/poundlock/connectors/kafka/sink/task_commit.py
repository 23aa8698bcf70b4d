"""Tasks that commit by themselves, for checkpoints that take longer than a broker keeps a transaction open.

A task's transactional id is made of the partition it reads, so that only one attempt of it can write; its marker says which
checkpoint was the last it committed, so that a repetition produces nothing. This holds as long as the same rows come again;
where they do not, the job stops.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

from poundlock.checkpoint.participant import JSON
from poundlock.connectors.kafka.offsets import from_places
from poundlock.connectors.kafka.sink.message_encoder import Digest
from poundlock.connectors.kafka.sink.producer import (
    TIMED_OUT,
    Sender,
    begin_transaction,
    describe_open,
    mark,
    transaction_name,
)
from poundlock.connectors.kafka.sink.transaction_ids import TransactionNames
from poundlock.connectors.kafka.sink.transactions import UNSTABLE, Marker, Transactions, marker_text
from poundlock.errors import TerminalError, TransientError

_ANSWER_S = 60.0
_NEXT = (
    "make what stands before the sink deterministic, and keep the parallelism until a checkpoint is decided; "
    'commit_mode="two_phase" asks less'
)


class TaskSender(Sender):
    """Messages in one transaction that the task commits itself.

    A repetition of a task that did commit sends its messages once more, so that what is refused is refused again, and aborts.

    Args:
        servers, settings: see Sender.
        names: the sink's transactional ids.
        subtask: number of the task.
        checkpoint: the checkpoint being written.
        asked: for questions about transactions.
        marker_topic: the topic whose partition 0 the markers' offsets are for.
        timeout_ms: when the broker aborts the transaction; the time of one task must fit.
    """

    when_ended = TIMED_OUT

    def __init__(
        self,
        servers: str,
        settings: Mapping[str, Any],
        *,
        names: TransactionNames,
        subtask: int,
        checkpoint: int,
        asked: Transactions,
        marker_topic: str,
        timeout_ms: int,
    ) -> None:
        super().__init__(servers, settings)
        self._names, self._subtask, self._checkpoint = names, subtask, checkpoint
        self._asked, self._marker_topic, self._timeout_ms = asked, marker_topic, timeout_ms
        self._tid = ""
        self._pid, self._epoch = -1, -1
        self._done: Marker | None = None

    def begin(self, topic: str | None, place: Mapping[str, Any]) -> None:
        if self._producer is not None:
            return
        self._tid = self._names.of_task(place, self._subtask)
        own = {"transactional.id": self._tid, "transaction.timeout.ms": self._timeout_ms}
        status = begin_transaction(self._open(topic, **own), self._tid, self._marker_topic, self._asked)
        if status is None:
            raise TransientError(f"Kafka at {self.servers} does not know transactional id {self._tid} just initialised")
        self._pid, self._epoch = status.pid, status.epoch
        # Initialising the id ended whatever an earlier attempt had open, so the marker is stable, and stays as it is while
        # this attempt is the newest: a newer one fences it.
        marker = self._asked.marker(self._tid, self._marker_topic, stable=True)
        if marker == UNSTABLE:
            raise TransientError(
                f"a transaction of {self._tid} is still being ended", next="the checkpoint is repeated"
            )
        assert marker is None or isinstance(marker, Marker)
        if marker is not None and marker.checkpoint > self._checkpoint:
            raise TransientError(
                f"{self._tid} has committed checkpoint {marker.checkpoint} and is now to write {self._checkpoint}",
                next="if this repeats, Spark's checkpoint was set back: restore it to the newest decision of the ledger",
            )
        self._done = marker if marker is not None and marker.checkpoint == self._checkpoint else None

    def prepare(self, checkpoint: int, digest: Digest) -> JSON:
        self._flush(self._timeout_ms / 1000)
        if self._done is not None:
            self._check_same(self._done, digest)
            done = self._done
            self._producer.abort_transaction(_ANSWER_S)
        else:
            done = self._commit(checkpoint, digest)
        self._check()
        super().abandon()
        places = {} if done.places is None else {"places": done.places}
        return {
            "tid": done.tid, "pid": done.pid, "epoch": done.epoch, "group": done.tid, "marker_topic": self._marker_topic,
            "transaction": transaction_name(done.tid, done.pid, done.epoch), "checkpoint": checkpoint, "committed": True,
            **places,
        }  # fmt: skip

    def _commit(self, checkpoint: int, digest: Digest) -> Marker:
        tid, pid, epoch = self._tid, self._pid, self._epoch
        status = describe_open(self._asked, tid, pid, epoch)
        text = marker_text(tid, pid, epoch, digest.rows, digest.text, from_places(status.places))
        mark(self._producer, tid, self._marker_topic, checkpoint, text, _ANSWER_S)
        self._producer.commit_transaction(_ANSWER_S)
        return Marker.of(text, checkpoint)

    def _check_same(self, done: Marker, digest: Digest) -> None:
        if (done.rows, done.digest) != (digest.rows, digest.text):
            raise TerminalError(
                f"{self._tid} has committed {done.rows} messages of checkpoint {self._checkpoint}, and now gives "
                f"{digest.rows}, or others",
                next=_NEXT,
            )

    def abandon(self) -> None:
        producer = self._producer
        super().abandon()
        with contextlib.suppress(Exception):
            if producer is not None:
                producer.purge()
                producer.abort_transaction(5)


def verify(
    asked: Transactions, names: TransactionNames, named: Collection[str], checkpoint: int, marker_topic: str
) -> None:
    """Check that no other task has committed rows of the checkpoint, in an attempt that was cut otherwise.

    Args:
        asked: for questions about transactions.
        names: the sink's transactional ids.
        named: those of the tasks that have rows now.
        checkpoint: about to be decided.
        marker_topic: where the markers are.

    Raises:
        TerminalError: one has; the rows are visible, some of them twice.
    """
    for group in asked.groups():
        if names.commits_itself(group) and group not in named:
            marker = asked.marker(group, marker_topic, stable=False)
            if isinstance(marker, Marker) and marker.checkpoint == checkpoint:
                raise TerminalError(
                    f"{group} has committed {marker.rows} messages of checkpoint {marker.checkpoint} in an earlier attempt, "
                    "and none of its tasks gives them now",
                    next=_NEXT,
                )
