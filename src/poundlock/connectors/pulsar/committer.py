"""The driver's half of the Pulsar sink: messages of a decision, sent in one order, each with its number.

A producer's name is the sink's in the job, so there is never a second one: brokers refuse it, and a driver that was given up cannot send. Brokers
with deduplication say which number of a producer a partition had last; what has one up to that is there, and is not sent. Messages are not put
together into batches, because brokers know a batch by the number of its first message alone, and no send is given up while a later one may go on.
How far all is sent stands in the folder, too: brokers forget a producer that was away for long.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.checkpoint.participant import Committed
from poundlock.checkpoint.sink_values import SinkValue
from poundlock.connectors.pulsar.connection import load_pulsar, partitions_of
from poundlock.connectors.pulsar.routing import partitions_for
from poundlock.errors import CommitUnknown, DefinitionError, PoundlockError, TerminalError, TransientError
from poundlock.storage import Storage

if TYPE_CHECKING:
    from poundlock.connectors.pulsar.sink import PulsarSink

_PENDING = 1_000  # messages that are sent and not confirmed
_CONFIRM_S = 60.0  # that a broker may take for one of them


class StagedFile(SinkValue, frozen=True):
    """A file of messages, and how many it has."""

    file: str
    rows: int


class NumberedMessages(SinkValue, frozen=True):
    """The messages of a decision: the number of the first, and the files that have them, in order.

    Args:
        since: when the sink's numbers began, ms: one that was taken out of a job and comes back begins again.
    """

    since: int
    first: int
    rows: int
    files: tuple[StagedFile, ...]


class SentSoFar:
    """What is known of a sink's messages in its folder.

    Attributes:
        sent: all with numbers below are.
        partitions: into how many the next are distributed; None before the first.
        refused: the number of one that a broker would not take; None: there is none.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage, self._name = storage, f"{name}.json"
        noted = json.loads(storage.read(self._name)) if storage.stat(self._name) is not None else {}
        self.sent, self.partitions = int(noted.get("sent", 0)), noted.get("partitions")
        self.refused: int | None = noted.get("refused")

    def write(self, *, sent: int | None = None, partitions: int | None = None, refused: int | None = None) -> None:
        """Note what is given, beside what was noted; durable when this returns."""
        self.sent = self.sent if sent is None else sent
        self.partitions = self.partitions if partitions is None else partitions
        self.refused = self.refused if refused is None else refused
        noted = {"v": 1, "sent": self.sent, "partitions": self.partitions, "refused": self.refused}
        data = json.dumps(noted).encode()
        if not self._storage.create_exclusive(self._name, data):
            self._storage.replace(self._name, data)


def commit(sink: PulsarSink, messages: NumberedMessages) -> Committed:
    """Send what a decision names, or see that it is sent.

    Raises:
        CommitUnknown: no broker answers, or takes messages for now.
        TerminalError: a broker refuses a message or does not deduplicate, or a file is gone.
    """
    storage = sink.folder()
    name = f"{sink.prefix}{messages.since}"
    end, noted = messages.first + messages.rows, SentSoFar(storage, name)
    if noted.sent < end:
        try:
            _send(sink, name, messages, storage, noted)
        except (TransientError, DefinitionError) as error:
            raise CommitUnknown(error.what, next=error.next) from error
        noted.write(sent=end)
    for each in messages.files:
        storage.delete(each.file)
    return Committed({"first": messages.first, "rows": messages.rows})


def _send(sink: PulsarSink, name: str, messages: NumberedMessages, storage: Storage, noted: SentSoFar) -> None:
    if noted.refused is not None:
        raise _refused(sink, noted.refused)
    with Producers(sink, name) as producers:
        try:
            _send_by(producers, messages, storage, noted)
        except PoundlockError as error:
            if producers.refused is None:
                raise
            noted.write(refused=producers.refused)  # those behind it may be there: its number cannot be sent any more
            raise _refused(sink, producers.refused) from error


def _send_by(producers: Producers, messages: NumberedMessages, storage: Storage, noted: SentSoFar) -> None:
    there = producers.open()
    # What an attempt distributed among fewer partitions is distributed so again.
    if noted.partitions is None or (noted.partitions != there and max(producers.last) < messages.first):
        noted.write(sent=max(noted.sent, messages.first), partitions=there)
    count, begin = int(noted.partitions or there), max(noted.sent, messages.first)
    for first, batch in _batches(storage, messages):
        if first + batch.num_rows <= begin:
            continue
        batch, first = batch.slice(max(begin - first, 0)), max(first, begin)
        partitions = partitions_for(batch.column("key"), first, count)
        if not producers.is_known:  # brokers know no number yet: one message shows whether they will
            producers.send(first, batch.slice(0, 1), partitions[:1])
            producers.finish()
            noted.write(sent=first + 1)
            producers.check_deduplication()
            batch, first, partitions = batch.slice(1), first + 1, partitions[1:]
        producers.send(first, batch, partitions)
    producers.finish()


def _refused(sink: PulsarSink, number: int) -> TerminalError:
    return TerminalError(
        f"topic {sink.topic!r} of Pulsar does not take message {number:,} of this sink, which is decided: it is too large for the broker",
        next="raise maxMessageSize of the brokers, give max_message_size what they have, and begin with a new checkpoint folder",
    )


def _batches(storage: Storage, messages: NumberedMessages) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches of messages, each behind the number of its first one. Raises TerminalError where a file is gone."""
    number = messages.first
    for each in messages.files:
        try:
            with storage.open(each.file) as file, pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    yield number, batch
                    number += batch.num_rows
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise TerminalError(
                f"{storage.root}/{each.file} has messages that are decided, and is gone or damaged: {error}",
                next="restore the folder from one moment; nobody else may change it",
            ) from None


class Producers:
    """A producer of each partition, all under one name. Use it in a `with` block."""

    def __init__(self, sink: PulsarSink, name: str) -> None:
        self._sink, self._name, self._address = sink, name, sink.address
        self._client: Any = None
        self._topics: Sequence[str] = []
        self._producers: list[Any] = []
        self.last: list[int] = []
        """The number that each partition had last; -1 where none is known."""
        self.refused: int | None = None
        """The first message that was too large."""
        self._highest: tuple[int, int] | None = None  # of the newest message: its partition and number
        self._news = threading.Condition()
        self._pending = 0
        self._failure: Any = None

    def __enter__(self) -> Producers:
        return self

    def __exit__(self, *error: object) -> None:
        if self._client is not None:
            with suppress(load_pulsar().PulsarException):
                self._client.close()

    @property
    def is_known(self) -> bool:
        """Whether brokers know a number of this producer's, so that they deduplicate."""
        return max(self.last) >= 0

    def open(self) -> int:
        """Connect; return how many partitions there are."""
        self._client = self._address.client()
        with self._address.explained(f"connecting to topic {self._sink.topic!r}"):
            self._topics = partitions_of(self._client, self._sink.topic)
            self._producers = [self._producer(each) for each in self._topics]
        self.last = [int(each.last_sequence_id()) for each in self._producers]
        return len(self._topics)

    def send(self, first: int, batch: pa.RecordBatch, partitions: npt.NDArray[np.int64]) -> None:
        """Send messages that are not there yet, the first of which has this number. May return before they are."""
        values, keys = batch.column("value").to_pylist(), batch.column("key").to_pylist()
        with self._address.explained(f"sending to topic {self._sink.topic!r}"):
            for offset, (partition, value, key) in enumerate(zip(partitions.tolist(), values, keys, strict=True)):
                number = first + offset
                if number > self.last[partition]:
                    self._wait(_PENDING - 1)
                    self._pending += 1
                    done = partial(self._sent, number)
                    self._producers[partition].send_async(value, done, partition_key=key, sequence_id=number)
                    self._highest = (partition, number)

    def finish(self) -> None:
        """Return when brokers have confirmed all."""
        self._wait(0)

    def check_deduplication(self) -> None:
        """Raise TerminalError unless a broker knows which number it was sent last: then it knows a repetition, too."""
        if self._highest is None:
            return
        partition, number = self._highest
        with self._address.explained(f"asking what topic {self._sink.topic!r} has"):
            self._producers[partition].close()
            self._producers[partition] = self._producer(self._topics[partition])
            known = int(self._producers[partition].last_sequence_id())
        if known < number:
            raise TerminalError(
                f"topic {self._sink.topic!r} of Pulsar does not deduplicate messages: a commit that is repeated would send rows twice",
                next="pulsar-admin namespaces set-deduplication tenant/namespace --enable, or brokerDeduplicationEnabled=true",
            )
        self.last[partition] = known

    def _producer(self, topic: str) -> Any:
        return self._client.create_producer(
            topic,
            producer_name=self._name,
            send_timeout_millis=0,  # one that is given up could be overtaken, and its number would never be taken again
            max_pending_messages=2 * _PENDING,
            batching_enabled=False,
        )

    def _wait(self, most: int) -> None:
        """Wait until no more are pending. Raises what became of one that failed."""
        with self._news:
            while self._failure is None and self._pending > most:
                before = self._pending
                if not self._news.wait(_CONFIRM_S) and self._pending >= before:
                    raise TransientError(
                        f"Pulsar at {self._address.shown} does not confirm messages to topic {self._sink.topic!r}"
                    )
            if self._failure is not None:
                raise self._address.explain(self._failure, f"sending to topic {self._sink.topic!r}")

    def _sent(self, number: int, result: Any, id: Any) -> None:
        pulsar = load_pulsar()
        with self._news:
            self._pending -= 1
            if result != pulsar.Result.Ok:
                self._failure = self._failure or result
                if result == pulsar.Result.MessageTooBig and self.refused is None:
                    self.refused = number
            self._news.notify_all()
