"""One range of offsets of one partition, fetched whole: the next answer is on its way while the last one is decoded.

A range ends only when a broker has shown everything up to its last offset; what is not there, or not the topic that was planned,
is an error that names topic, partition and offset.

No checksum covers the first offset of a batch. One that was changed on disk is seen by the batches around it, which it then
overlaps, and by the partition's end, which it then passes. It is not seen where it stands last in a segment, nor where a broker
passes over the batch itself, as one that ends before what an answer is to begin with: a gap is what compaction leaves, too.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from poundlock.connectors.kafka.client_loader import kafka_python
from poundlock.connectors.kafka.errors import damaged, deleted, expired, recreated, refused, unreadable, went_back
from poundlock.connectors.kafka.wire.connection import BrokerConnection, ConnectionLost
from poundlock.connectors.kafka.wire.fetch_client import Address, FetchClient, end_offset, first_offset
from poundlock.connectors.kafka.wire.fetch_protocol import (
    FETCH,
    FetchAnswer,
    FetchRequest,
    decode_answer,
    encode_request,
    version_for,
)
from poundlock.connectors.kafka.wire.record_batches import (
    BatchHeader,
    DamagedBatch,
    Records,
    bytes_of_first_batch,
    check_sums,
    decode,
    is_abort_marker,
    read_headers,
    visible,
)
from poundlock.errors import TerminalError

_T = TypeVar("_T")
_Shown = Callable[[FetchAnswer, list[BatchHeader]], Iterator[_T]]
_LARGEST_FETCH = (1 << 31) - 1024
_MISSING_S = 10.0  # a broker that was just started may not know a topic yet
_EMPTY_PAUSE_S = 0.01  # a broker waits by itself before it answers nothing, unless it throttles
_OFFSET_OUT_OF_RANGE, _CORRUPT = 1, 2
_UNKNOWN_TOPIC = (3, 100, 103)  # by name, by id, and an id that is another topic's
_REFUSED = (29, 31)
_TRY_AGAIN = frozenset((5, 6, 7, 8, 9, 13, 56, 72, 74, 75, 77, 78, 89, 105))
"""No leader, another leader, a timeout, a disk that failed, an epoch or offset that is not known yet, a throttled client."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What is read: offsets [first, after) of a partition, of the topic with this id where one is known."""

    topic: str
    partition: int
    first: int
    after: int
    topic_id: uuid.UUID | None = None


class _TryAgain(Exception):
    """The broker cannot answer now; after a pause it, or the one that leads by then, is asked again."""


def fetch_range(client: FetchClient, wanted: OffsetRange, *, committed: bool) -> Iterator[Records]:
    """Yield the records of a range, in order. What is yielded is valid until the next is asked for.

    `committed` leaves out what transactions wrote that were aborted; the range must end before those that are open.

    Raises:
        SourceGoneError: records of the range have expired, or the topic was deleted or created again.
        TerminalError: a batch is damaged or of an old format, or the user may not read.
        TransientError: nothing came for too long.
    """
    fetch = _RangeFetch(client, wanted, committed)
    return fetch.read(fetch.records)


def fetch_headers(client: FetchClient, wanted: OffsetRange) -> Iterator[tuple[BatchHeader, bool]]:
    """Yield the batches of a range, those of open and aborted transactions too, each with whether it aborts one.

    Raises as `fetch_range` does.
    """
    fetch = _RangeFetch(client, wanted, False)
    return fetch.read(fetch.headers)


def fetch_sizes(client: FetchClient, wanted: OffsetRange) -> Iterator[tuple[int, int]]:
    """Yield how many records the batches have that reach into a range, those outside of it included, and how many bytes their values.

    Records of open and aborted transactions count too. Raises as `fetch_range` does.
    """
    fetch = _RangeFetch(client, wanted, False)
    return fetch.read(fetch.sizes)


class _RangeFetch:
    """The reading of one range: where it is, and since when nothing has come."""

    def __init__(self, client: FetchClient, wanted: OffsetRange, committed: bool) -> None:
        self._client, self._settings = client, client.settings
        self._wanted, self._committed = wanted, committed
        self._at, self._advanced = wanted.first, time.monotonic()
        self._max_bytes, self._pause = client.settings.fetch_bytes, client.settings.backoff_s
        self._empty = self._version = 0

    def read(self, shown: _Shown[_T]) -> Iterator[_T]:
        """Yield what an answer shows of the range, for all answers; connections that break are replaced."""
        address: Address | None = None
        again = False
        while self._at < self._wanted.after:
            try:
                address = self._leader(again=again)
                with self._client.lent(address) as connection:
                    yield from self._from(connection, shown)
            except DamagedBatch as error:
                w = self._wanted
                raise damaged(w.topic, w.partition, error.offset, error.why, next=error.next) from error
            except (OSError, _TryAgain) as error:
                if isinstance(error, OSError) and address is not None:
                    self._client.forget(address)
                again = True
                self._wait(error)

    def _wait(self, error: Exception) -> None:
        """Pause before another try. Raises TransientError once nothing has come for as long as the settings allow."""
        w = self._wanted
        if time.monotonic() - self._advanced > self._settings.patience_s:
            raise unreadable(w.topic, w.partition, self._at, w.after, str(error) or type(error).__name__) from error
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, self._settings.backoff_max_s)

    def _leader(self, *, again: bool) -> Address:
        """Return the address of the partition's leader, and make sure that the topic is the one that was planned."""
        w = self._wanted
        try:
            topic = self._client.topic(w.topic, again=again)
            if not topic.partitions or (w.topic_id is not None and topic.id is not None and topic.id != w.topic_id):
                topic = self._client.topic(w.topic, again=True)
        except kafka_python("errors").AuthorizationError as error:
            raise refused(self._client.servers, str(error)) from error
        if topic.partitions <= w.partition:
            if time.monotonic() - self._advanced > min(_MISSING_S, self._settings.patience_s):
                raise deleted(w.topic, f"partition {w.partition} was to be read from offset {self._at}")
            raise _TryAgain(f"there is no topic {w.topic!r} with a partition {w.partition}")
        if w.topic_id is not None and topic.id is not None and topic.id != w.topic_id:
            raise recreated(w.topic, f"its id was {kafka_id(w.topic_id)} and is {kafka_id(topic.id)}")
        if w.partition not in topic.leaders:
            raise _TryAgain(f"{w.topic}-{w.partition} has no leader")
        return topic.leaders[w.partition]

    def _from(self, connection: BrokerConnection, shown: _Shown[_T]) -> Iterator[_T]:
        """Yield what comes from one connection until the range is done."""
        topic_id = self._client.topic(self._wanted.topic).id if self._wanted.topic_id is None else self._wanted.topic_id
        version = version_for(connection.versions_of(FETCH), topic_id)
        if version is None:
            raise TerminalError(
                f"Kafka at {self._client.servers} is older than version 2.3, which tasks need to read it",
                next="upgrade the brokers",
            )
        self._version = version
        self._send(connection, self._at, topic_id)
        while True:
            answer = decode_answer(connection.receive(), self._version)
            if answer.error:
                self._raise(answer, connection)
            headers = self._whole(answer, connection, committed=self._committed)
            reached = headers[-1].last_offset + 1 if headers else self._at
            if not headers and self._ends_here(answer, connection, topic_id):
                self._at = self._wanted.after
                return
            if reached < self._wanted.after:
                self._send(connection, reached, topic_id)
            if headers:
                check_sums(np.frombuffer(answer.padded, np.uint8), headers)
                yield from shown(answer, headers)
                self._at, self._advanced, self._empty = reached, time.monotonic(), 0
                self._pause = self._settings.backoff_s
            if self._at >= self._wanted.after:
                return

    def _send(
        self, connection: BrokerConnection, offset: int, topic_id: uuid.UUID | None, *, committed: bool | None = None
    ) -> None:
        s, w = self._settings, self._wanted
        request = FetchRequest(
            w.topic,
            topic_id,
            w.partition,
            offset,
            self._max_bytes,
            s.min_bytes,
            s.max_wait_ms,
            self._committed if committed is None else committed,
        )
        connection.send(encode_request(request, self._version, connection.next_correlation(), s.client_id))

    def _whole(self, answer: FetchAnswer, connection: BrokerConnection, *, committed: bool) -> list[BatchHeader]:
        """Return the headers of the whole batches that reach into the range."""
        headers = read_headers(answer.records)
        if not headers and len(answer.records):
            # A broker sends the first batch whole, however large; should one not, ask for as much as the batch has.
            needed = bytes_of_first_batch(answer.records) or 0
            if not self._max_bytes < needed <= _LARGEST_FETCH:
                raise DamagedBatch(self._at, f"is cut off after {len(answer.records)} bytes")
            self._max_bytes = needed
        if headers:
            self._check_place(answer, headers, connection, committed=committed)
        return headers

    def _check_place(
        self, answer: FetchAnswer, headers: list[BatchHeader], connection: BrokerConnection, *, committed: bool
    ) -> None:
        """Raise DamagedBatch if batches cannot stand where they say: before what was asked for, or past what can be read."""
        w, first, last = self._wanted, headers[0], headers[-1]
        if last.last_offset < self._at:
            raise DamagedBatch(first.base_offset, f"was sent for offset {self._at}, which it is before")
        if w.first < self._at and first.base_offset < self._at:  # in mid-range it is where the batch before ended
            raise DamagedBatch(first.base_offset, f"is damaged: the one before it ends at offset {self._at - 1}")
        # The ends in an answer may be older than its records, those of a new question are not.
        if last.last_offset >= (answer.last_stable_offset if committed else answer.high_watermark):
            end = end_offset(connection, w.topic, w.partition, committed=committed)
            if last.last_offset >= end:
                why = f"is damaged: it goes to offset {last.last_offset}, the partition to {end - 1}"
                raise DamagedBatch(last.base_offset, why)

    def records(self, answer: FetchAnswer, headers: list[BatchHeader]) -> Iterator[Records]:
        """Return the records that a reader may see."""
        may_see = visible(answer.records, headers, answer.aborted if self._committed else ())
        return decode(np.frombuffer(answer.padded, np.uint8), may_see, self._at, self._wanted.after)

    def sizes(self, answer: FetchAnswer, headers: list[BatchHeader]) -> Iterator[tuple[int, int]]:
        """Yield how many records come together, and how many bytes their values have."""
        may_see = visible(answer.records, headers, ())
        first, after = headers[0].base_offset, headers[-1].last_offset + 1
        for records in decode(np.frombuffer(answer.padded, np.uint8), may_see, first, after):
            yield len(records), records.value_bytes

    def headers(self, answer: FetchAnswer, headers: list[BatchHeader]) -> Iterator[tuple[BatchHeader, bool]]:
        """Yield the batches that begin in the range, each with whether it aborts a transaction."""
        for header in headers:
            if header.base_offset < self._wanted.after:
                yield header, header.is_control and is_abort_marker(answer.records, header)

    def _ends_here(self, answer: FetchAnswer, connection: BrokerConnection, topic_id: uuid.UUID | None) -> bool:
        """Return whether an answer without any batch means that no record is left in the range.

        That is so where compaction removed everything up to an open transaction: read uncommitted, the next batch then begins
        behind the range. A broker that has nothing else to say is asked again.
        """
        w = self._wanted
        if len(answer.records):
            return False
        self._empty += 1
        if self._committed and self._empty > 1 and answer.last_stable_offset >= w.after:
            self._send(connection, self._at, topic_id, committed=False)
            probe = decode_answer(connection.receive(), self._version)
            headers = [] if probe.error else self._whole(probe, connection, committed=False)
            if headers and headers[0].base_offset >= w.after:
                return True
        time.sleep(_EMPTY_PAUSE_S)
        if time.monotonic() - self._advanced > self._settings.patience_s:
            stable = f"it can be read up to offset {answer.last_stable_offset}, and ends at {answer.high_watermark}"
            raise unreadable(w.topic, w.partition, self._at, w.after, stable)
        return False

    def _raise(self, answer: FetchAnswer, connection: BrokerConnection) -> None:
        """Raise what an error code of an answer means."""
        w, code = self._wanted, answer.error
        name = str(kafka_python("errors").for_code(code).__name__)
        if code == _OFFSET_OUT_OF_RANGE:
            first = first_offset(connection, w.topic, w.partition)
            if self._at < first:
                raise expired(w.topic, w.partition, self._at, min(first, w.after))
            end = end_offset(connection, w.topic, w.partition)
            if self._at > end:
                raise went_back(w.topic, w.partition, self._at, end)
        elif code == _CORRUPT:
            raise DamagedBatch(self._at, "is damaged, says the broker")
        elif code in _REFUSED:
            raise refused(self._client.servers, f"{name} when reading topic {w.topic}")
        elif code not in _TRY_AGAIN and code not in _UNKNOWN_TOPIC:
            raise ConnectionLost(f"{w.topic}-{w.partition}: the broker answers {name}")
        raise _TryAgain(f"{w.topic}-{w.partition}: {name}")


def kafka_id(id: uuid.UUID) -> str:
    """Return a topic's id as Kafka's tools write it."""
    return base64.urlsafe_b64encode(id.bytes).rstrip(b"=").decode()


def parse_kafka_id(text: str) -> uuid.UUID:
    """Return the id of what `kafka_id` made."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
