"""One consumer of a queue, in a thread of its own: pika's connection belongs to one thread, and has to answer heartbeats beside long checkpoints."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, TypeVar

import pyarrow as pa

from poundlock.connectors.messages.acknowledged import ReceivedMessage
from poundlock.connectors.rabbitmq.connection import RabbitMQAddress, load_pika
from poundlock.errors import TransientError

T = TypeVar("T")
COLUMNS = pa.schema(
    [
        ("value", pa.binary()),
        ("message_id", pa.string()),
        ("correlation_id", pa.string()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("content_type", pa.string()),
        ("headers", pa.string()),
    ]
)
"""What a message has; `headers` as a JSON object."""
_LONGEST_S = 1.0  # that one look waits for what the broker has ready
_EXCLUSIVE_S = 5.0  # that a consumer which died may still hold the queue
_ANSWER_S = 30.0


class QueueReceiver:
    """Receives from a queue, as its only consumer.

    Args:
        prefetch: most messages that are delivered and not acknowledged.
        id: "message-id", "correlation-id" or None: which property is a message's id.
    """

    def __init__(self, address: RabbitMQAddress, queue: str, *, prefetch: int, id: str | None) -> None:
        self._address, self._queue, self._prefetch = address, queue, prefetch
        self._id = None if id is None else id.replace("-", "_")
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        self._channel: Any = None
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._came: list[ReceivedMessage] = []
        self._open: dict[int, None] = {}  # tags that are not acknowledged, in order
        self._ready = 0
        self._closing = False
        self._failure: BaseException | None = None

    def start(self) -> None:
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name=f"queue {self._queue}", daemon=True)
        self._thread.start()
        with self._address.explained(f"consuming queue {self._queue!r}"):
            started.result()

    def received(self) -> Sequence[ReceivedMessage]:
        with self._address.explained(f"receiving from queue {self._queue!r}"):
            return self._call(self._drain)

    def acknowledge(self, tags: Sequence[int]) -> None:
        with self._address.explained(f"acknowledging messages of queue {self._queue!r}"):
            self._call(lambda: self._ack(sorted(tags)))

    def waiting(self) -> int | None:
        return self._ready

    def close(self) -> None:
        self._closing = True
        self._wake()
        if self._thread is not None:
            self._thread.join(_ANSWER_S)

    # --- in the caller's thread --------------------------------------------------------------------------------------

    def _call(self, function: Callable[[], T]) -> T:
        """Have a function run by the connection's thread, and return what it returned."""
        result: Future[T] = Future()
        self._calls.append((function, result))
        self._wake()
        while True:
            try:
                return result.result(0.5)
            except TimeoutError:
                if result.done():
                    raise
                if self._thread is None or not self._thread.is_alive():
                    raise self._failure or TransientError(f"the connection to queue {self._queue!r} ended") from None

    def _wake(self) -> None:
        connection = self._connection
        if connection is not None and connection.is_open:
            connection.add_callback_threadsafe(lambda: None)

    # --- in the connection's thread ----------------------------------------------------------------------------------

    def _run(self, started: Future[None]) -> None:
        try:
            self._consume()
            started.set_result(None)
            while not self._closing:
                while self._calls:
                    function, result = self._calls.popleft()
                    try:
                        result.set_result(function())
                    except BaseException as error:
                        result.set_exception(error)
                        raise
                self._connection.process_data_events(time_limit=0.2)
        except BaseException as error:
            self._failure = error
            if not started.done():
                started.set_exception(error)
        finally:
            if self._connection is not None and self._connection.is_open:
                try:
                    self._connection.close()
                except Exception as error:
                    self._failure = self._failure or error

    def _consume(self) -> None:
        """Become the queue's only consumer. One that died may hold it for a moment."""
        end = time.monotonic() + _EXCLUSIVE_S
        self._connection = self._address.open()
        while True:
            self._channel = self._connection.channel()
            self._channel.basic_qos(prefetch_count=self._prefetch)
            try:
                self._channel.basic_consume(self._queue, self._on_message, exclusive=True)
                return
            except load_pika().exceptions.ChannelClosedByBroker as error:
                if "exclusive" not in error.reply_text:
                    raise
                if time.monotonic() > end:
                    raise TransientError(
                        f"queue {self._queue!r} of RabbitMQ at {self._address.shown} has another consumer: {error.reply_text}",
                        next="end it: only one may take messages that a job has to acknowledge",
                    ) from error
            time.sleep(0.1)

    def _on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._open[method.delivery_tag] = None
        row = {
            "value": body,
            "message_id": properties.message_id,
            "correlation_id": properties.correlation_id,
            "exchange": method.exchange,
            "routing_key": method.routing_key,
            "timestamp": None if properties.timestamp is None else datetime.fromtimestamp(properties.timestamp, UTC),
            "content_type": properties.content_type,
            "headers": None if properties.headers is None else json.dumps(properties.headers, default=str),
        }
        id = None if self._id is None else row[self._id]
        self._came.append(ReceivedMessage(method.delivery_tag, None if id is None else str(id), row))

    def _drain(self) -> Sequence[ReceivedMessage]:
        """Return what came. An answer on a channel comes behind all that was delivered on it before, so nothing is waited for in vain."""
        end = time.monotonic() + _LONGEST_S
        while True:
            self._ready = self._channel.queue_declare(self._queue, passive=True).method.message_count
            self._connection.process_data_events(time_limit=0)
            if not self._ready or len(self._open) >= self._prefetch or time.monotonic() > end:
                break
        came, self._came = self._came, []
        return came

    def _ack(self, tags: Sequence[int]) -> None:
        first = list(self._open)[: len(tags)]
        if first == tags:
            self._channel.basic_ack(tags[-1], multiple=True)
        else:
            for tag in tags:
                self._channel.basic_ack(tag)
        for tag in tags:
            self._open.pop(tag, None)
        # The answer says that what was sent before it was taken note of.
        self._channel.queue_declare(self._queue, passive=True)
