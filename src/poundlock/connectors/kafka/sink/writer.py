"""The task's half of the Kafka sink: chunks in, messages out, every row either sent and counted or rejected with a reason.

The digest covers what a replay must produce again, and nothing that depends on when it was written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.kafka.client_loader import kafka_python
from poundlock.connectors.kafka.sink.digest import NO_TIME, Digest
from poundlock.connectors.kafka.sink.message_encoder import MessageMaker, Messages
from poundlock.connectors.kafka.sink.producer import Sender
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.connectors.kafka.wire.batch_queue import Undelivered
from poundlock.connectors.kafka.wire.coordinators import BrokerRefusal
from poundlock.errors import PoundlockError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Chunk, origin_of

_PARTS = ("key", "headers", "partition", "timestamp")


class KafkaWriter:
    """Writes the rows of one task attempt; `sender` takes messages to the broker."""

    def __init__(self, context: WriterContext, *, sink: KafkaSink, sender: Sender) -> None:
        self._context = context
        self._maker = MessageMaker(sink, context.reject)
        self._sender = sender
        self._digest = Digest()
        given = {"topic": not isinstance(sink.topic, str), **{n: getattr(sink, n) is not None for n in _PARTS}}
        # What beside the values the digest is of, for the audit to read the same; empty if it is of the values alone.
        self._given = [name for name, is_given in given.items() if is_given]
        self._hashed: list[str] | None = self._given
        # The broker chooses partitions and times that rows do not give, and may replace times: a second digest leaves them out.
        self._plain = Digest() if given["partition"] or given["timestamp"] else None

    def write(self, chunk: Chunk) -> int:
        """Send the rows of a chunk; return how many were taken. Raises TransientError when Kafka fails."""
        if not len(chunk):
            return 0
        before = self._digest.rows
        with _explained(self._context, self._sender):
            messages = self._maker.messages(chunk)
            if len(messages):
                topic = messages.topics if isinstance(messages.topics, str) else None
                self._sender.begin(topic, origin_of(chunk).at(int(messages.rows[0])))
            if faults := self._sender.faults(messages):
                self._maker.reject(chunk, {int(messages.rows[i]): reason for i, reason in faults.items()})
                messages = messages.take(np.setdiff1d(np.arange(len(messages)), list(faults)))
            if len(messages):
                self._sender.add(messages)
                self._count(messages)
        if not before and self._digest.rows:
            hit(Failpoint.SINK_WRITING)
        return self._digest.rows - before

    def _count(self, m: Messages) -> None:
        """Add messages to the digests."""
        topics = m.topics if "topic" in self._given else None
        self._digest.add(
            m.values, keys=m.keys, headers=m.headers, topics=topics, partitions=m.partitions, times_ms=m.times_ms
        )
        if self._plain is None:
            return
        self._plain.add(m.values, keys=m.keys, headers=m.headers, topics=topics)
        open_place = m.partitions is not None and (m.partitions < 0).any()
        if open_place or (m.times_ms is not None and (m.times_ms == NO_TIME).any()):
            self._hashed = None

    def prepare(self) -> Sequence[JSON]:
        """Wait until the broker has it all, and return the one payload that names it; none if nothing was sent."""
        if not self._digest.rows:
            self._sender.abandon()
            return []
        with _explained(self._context, self._sender):
            transaction = self._sender.prepare(self._digest)
        common = {"v": 1, "rows": self._digest.rows, "bytes": self._digest.bytes, "digest": self._digest.text}
        plain = {} if self._plain is None else {"plain": self._plain.text}
        return [{**common, "hashed": self._hashed, **plain, **transaction}]

    def abandon(self) -> None:
        """Give up what was sent."""
        self._sender.abandon()


@contextlib.contextmanager
def _explained(context: WriterContext, sender: Sender) -> Iterator[None]:
    """Let nothing of the protocol out but a PoundlockError."""
    try:
        yield
    except PoundlockError as error:
        error.checkpoint = context.checkpoint if error.checkpoint is None else error.checkpoint
        error.participant = error.participant or context.sink
        raise
    except (BrokerRefusal, Undelivered, OSError, kafka_python("errors").KafkaError) as error:
        explained = sender.explained(error)
        explained.checkpoint, explained.participant = context.checkpoint, context.sink
        raise explained from error
