"""Tasks that commit by themselves, for checkpoints that take longer than a broker keeps a transaction open.

A task's transactional id is made of the partition it reads, so that only one attempt of it can write; its marker says which
checkpoint was the last it committed, so that a repetition produces nothing. This holds as long as the same rows come again;
where they do not, the job stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poundlock.checkpoint.participant import JSON
from poundlock.connectors.kafka.offsets import from_places
from poundlock.connectors.kafka.sink.committer import OTHER_ROWS
from poundlock.connectors.kafka.sink.message_encoder import Digest
from poundlock.connectors.kafka.sink.producer import Sender, TransactionalSender
from poundlock.connectors.kafka.sink.transactions import UNSTABLE, Marker, marker_text
from poundlock.errors import TerminalError, TransientError

_ANSWER_S = 60.0


class TaskSender(TransactionalSender):
    """Messages in one transaction that the task commits itself; the time of one task must fit into its timeout.

    A repetition of a task that did commit sends its messages once more, so that what is refused is refused again, and aborts.
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
            self._producer.abort_transaction(_ANSWER_S)
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
        self._mark(text, _ANSWER_S)
        self._producer.commit_transaction(_ANSWER_S)
        return Marker.of(text, self._context.checkpoint)

    def _check_same(self, done: Marker, digest: Digest) -> None:
        if (done.rows, done.digest) != (digest.rows, digest.text):
            raise TerminalError(
                f"{self._tid} has committed {done.rows} messages of checkpoint {self._context.checkpoint}, and now gives "
                f"{digest.rows}, or others",
                next=OTHER_ROWS,
            )
