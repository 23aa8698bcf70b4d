"""The task's half of the Kafka sink: chunks in, messages out, every row either sent and counted or rejected with a reason.

The digest covers what a replay must produce again, and nothing that depends on when it was written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.kafka.client_loader import confluent
from poundlock.connectors.kafka.sink.message_encoder import Digest, MessageMaker, Messages
from poundlock.connectors.kafka.sink.producer import Sender
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.errors import PoundlockError, TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Chunk
from poundlock.formats.origin import origin_of

_PARTS = ("key", "headers", "partition", "timestamp")
_AT_ONCE = 1000


class KafkaWriter:
    """Writes the rows of one task attempt; `sender` takes messages to the broker."""

    def __init__(self, context: WriterContext, *, sink: KafkaSink, sender: Sender) -> None:
        self._context = context
        self._maker = MessageMaker(sink, context.reject)
        self._sender = sender
        self._digest = Digest()
        # The broker chooses partitions and times that rows do not give, and may replace times: a second digest leaves them out.
        self._plain = Digest() if sink.partition is not None or sink.timestamp is not None else None
        self._hashed: list[str] | None = _hashed(sink)
        self._fixed = isinstance(sink.topic, str)

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
            if self._fixed and messages.keys is messages.headers is messages.partitions is messages.timestamps is None:
                self._send_values(chunk, messages)
            else:
                self._send_all(chunk, messages)
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
            if refused or None in values:
                for i, value in enumerate(values):
                    if i in refused:
                        self._maker.reject(chunk, messages.rows[first + i], refused[i])
                    else:
                        self._digest.add(value)
            else:
                self._digest.add_values(cast("Sequence[bytes]", values))

    def _send_all(self, chunk: Chunk, messages: Messages) -> None:
        m = messages
        for i, value in enumerate(m.values):
            topic = m.topics if isinstance(m.topics, str) else m.topics[i]
            key = m.keys[i] if m.keys is not None else None
            headers = m.headers[i] if m.headers is not None else None
            partition = m.partitions[i] if m.partitions is not None else None
            timestamp = m.timestamps[i] if m.timestamps is not None else None
            refused = self._sender.place_fault(topic, partition) or self._sender.send(
                topic,
                value,
                key,
                **({"headers": headers} if headers else {}),
                **({"partition": partition} if partition is not None else {}),
                **({"timestamp": timestamp} if timestamp is not None else {}),
            )
            if refused is None:
                self._note(value, None if self._fixed else topic, key, headers or None, partition, timestamp)
            else:
                self._maker.reject(chunk, m.rows[i], refused)

    def _note(self, value: bytes | None, *more: Any) -> None:
        self._digest.add(value, *more)
        if self._plain is not None:
            topic, key, headers, partition, timestamp = more
            self._plain.add(value, topic, key, headers, None, None)
            given = self._hashed or ()
            # The client takes the time 0 for none.
            if ("partition" in given and partition is None) or ("timestamp" in given and not timestamp):
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


def _hashed(sink: KafkaSink) -> list[str]:
    """Return what beside the values the digest is of, for the audit to read the same; none if it is of the values alone."""
    given = {"topic": not isinstance(sink.topic, str), **{n: getattr(sink, n) is not None for n in _PARTS}}
    return [name for name, is_given in given.items() if is_given]


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
