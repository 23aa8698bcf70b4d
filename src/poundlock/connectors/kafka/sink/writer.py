"""The task's half of the Kafka sink: chunks in, messages out, every row either sent and counted or rejected with a reason.

The digest covers what a replay must produce again, and nothing that depends on when it was written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import cast

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.kafka.client_loader import confluent
from poundlock.connectors.kafka.sink.message_encoder import Digest, MessageMaker, Messages
from poundlock.connectors.kafka.sink.producer import Sender
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.errors import PoundlockError, TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Chunk, origin_of

_PARTS = ("key", "headers", "partition", "timestamp")
_AT_ONCE = 1000


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
        with _explained(self._context, self._sender):
            messages = self._maker.messages(chunk)
            if messages.values and not self._digest.rows:
                topic = messages.topics if isinstance(messages.topics, str) else None
                self._sender.begin(topic, origin_of(chunk).at(messages.rows[0]))
            before = self._digest.rows
            (self._send_all if self._given else self._send_values)(chunk, messages)
            self._sender.poll()
        if not before and self._digest.rows:
            hit(Failpoint.SINK_WRITING)
        return self._digest.rows - before

    def _send_values(self, chunk: Chunk, messages: Messages) -> None:
        topic = messages.topics
        assert isinstance(topic, str)
        for first in range(0, len(messages.values), _AT_ONCE):
            values = messages.values[first : first + _AT_ONCE]
            refused = self._sender.send_values(topic, values)
            if not refused and None not in values:
                self._digest.add_values(cast("Sequence[bytes]", values))
                continue
            for i, value in enumerate(values):
                if i in refused:
                    self._maker.reject(chunk, messages.rows[first + i], refused[i])
                else:
                    self._digest.add(value)

    def _send_all(self, chunk: Chunk, messages: Messages) -> None:
        for row, (topic, value, key, headers, partition, timestamp) in zip(messages.rows, messages.each(), strict=True):
            parts = {"headers": headers or None, "partition": partition, "timestamp": timestamp}
            given = {name: part for name, part in parts.items() if part is not None}
            refused = self._sender.place_fault(topic, partition) or self._sender.send(topic, value, key, **given)
            if refused is not None:
                self._maker.reject(chunk, row, refused)
                continue
            hashed = (topic if "topic" in self._given else None, key, headers or None)
            self._digest.add(value, *hashed, partition, timestamp)
            if self._plain is not None:
                self._plain.add(value, *hashed, None, None)
                # The client takes the time 0 for none.
                if ("partition" in self._given and partition is None) or ("timestamp" in self._given and not timestamp):
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
    """Let nothing of the client out but a PoundlockError."""
    try:
        yield
    except PoundlockError as error:
        error.checkpoint = context.checkpoint if error.checkpoint is None else error.checkpoint
        error.participant = error.participant or context.sink
        raise
    except confluent().KafkaException as error:
        fault, kafka = error.args[0], confluent().KafkaError
        ended = fault.fatal() or fault.code() in (kafka._FENCED, kafka.INVALID_PRODUCER_EPOCH, kafka.INVALID_TXN_STATE)
        raise TransientError(
            f"writing to Kafka at {sender.servers} failed: {fault.str()}",
            next=sender.when_ended
            if ended
            else "see that the brokers run and what they log; the checkpoint is repeated",
            checkpoint=context.checkpoint,
            participant=context.sink,
        ) from error
