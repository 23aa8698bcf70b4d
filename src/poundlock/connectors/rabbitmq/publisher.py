"""Publishes with confirms: many messages are on their way at once, and the broker says of each that it has it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from poundlock.connectors.rabbitmq.connection import RabbitMQAddress, load_pika
from poundlock.errors import PoundlockError, TerminalError, TransientError

_ANSWER_S = 60.0
_PERSISTENT = 2
_LONGEST_KEY = 255  # bytes: AMQP's short texts


@dataclass(frozen=True, slots=True)
class Route:
    """Where messages go. Exactly one of `key` and `key_column` is given."""

    exchange: str
    key: str | None
    key_column: str | None
    id_column: str | None

    @property
    def columns(self) -> list[str]:
        """The columns it is made of."""
        return [name for name in (self.key_column, self.id_column) if name is not None]


class Publisher:
    """A task's connection. pika's loop runs in a thread; what it finds out is looked at by the task.

    Args:
        unconfirmed: most messages that are sent and not confirmed.
    """

    def __init__(self, address: RabbitMQAddress, route: Route, unconfirmed: int) -> None:
        self._address, self._route, self._most = address, route, unconfirmed
        self._news = threading.Condition()
        self._connection: Any = None
        self._channel: Any = None
        self._thread: threading.Thread | None = None
        self._sent = self._confirmed = 0
        self._below = 0  # all up to this number are confirmed
        self._settled: set[int] = set()  # and these beyond it
        self._failure: PoundlockError | Exception | None = None
        self._closing = False

    def faults(self, messages: Sequence[bytes], rows: pa.RecordBatch) -> Mapping[int, str]:
        if self._route.key_column is None:
            return {}
        keys = _texts(rows, self._route.key_column)
        return {
            i: f"{self._route.key_column} is {'null' if key is None else 'longer than 255 bytes'}"
            for i, key in enumerate(keys)
            if key is None or len(key.encode()) > _LONGEST_KEY
        }

    def send(self, messages: Sequence[bytes], rows: pa.RecordBatch) -> None:
        if self._thread is None:
            self._open()
        pika, route = load_pika(), self._route
        keys = [route.key] * len(messages) if route.key_column is None else _texts(rows, route.key_column)
        ids = [None] * len(messages) if route.id_column is None else _texts(rows, route.id_column)
        for start in range(0, len(messages), max(self._most // 2, 1)):
            end = min(start + max(self._most // 2, 1), len(messages))
            self._wait(lambda end=end, start=start: self._sent - self._confirmed + end - start <= self._most)
            part = [
                (keys[i], messages[i], pika.BasicProperties(delivery_mode=_PERSISTENT, message_id=ids[i]))
                for i in range(start, end)
            ]
            self._sent += len(part)
            self._connection.ioloop.add_callback_threadsafe(lambda part=part: self._publish(part))

    def finish(self) -> None:
        self._wait(lambda: self._confirmed >= self._sent)

    def close(self) -> None:
        self._closing = True
        if self._thread is not None and self._thread.is_alive():
            self._connection.ioloop.add_callback_threadsafe(self._end)
            self._thread.join(_ANSWER_S)

    # --- in the task's thread ----------------------------------------------------------------------------------------

    def _open(self) -> None:
        pika = load_pika()
        with self._address.explained("connecting"):
            self._connection = pika.SelectConnection(
                self._address.parameters(heartbeat_s=60),
                on_open_callback=self._opened,
                on_open_error_callback=lambda connection, error: self._fail(error),
                on_close_callback=lambda connection, error: self._fail(error),
            )
        self._thread = threading.Thread(target=self._connection.ioloop.start, name="publisher", daemon=True)
        self._thread.start()
        self._wait(lambda: self._channel is not None)

    def _wait(self, ready: Any) -> None:
        """Wait for news until it is ready. Raises what went wrong; TransientError where the broker says nothing for a minute."""
        with self._news:
            while not ready():
                if self._failure is None and not self._news.wait(_ANSWER_S):
                    raise TransientError(
                        f"RabbitMQ at {self._address.shown} confirms no message for {_ANSWER_S:.0f} s",
                        next="see whether the broker has raised an alarm of memory or disk: rabbitmqctl status",
                    )
                self._raise()
            self._raise()

    def _raise(self) -> None:
        if isinstance(self._failure, PoundlockError):
            raise self._failure
        if self._failure is not None:
            with self._address.explained("publishing"):
                raise self._failure

    # --- in the connection's thread ----------------------------------------------------------------------------------

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_open)

    def _channel_open(self, channel: Any) -> None:
        channel.add_on_close_callback(lambda channel, error: self._fail(error))
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._answered, callback=lambda frame: self._tell(channel=channel))

    def _publish(self, part: Sequence[tuple[str, bytes, Any]]) -> None:
        try:
            for key, message, properties in part:
                self._channel.basic_publish(self._route.exchange, key, message, properties, mandatory=True)
        except Exception as error:  # the channel closed meanwhile
            self._fail(error)

    def _answered(self, frame: Any) -> None:
        """Count what was confirmed. With `multiple` all up to a number are; numbers count from one on this channel."""
        pika = load_pika()
        if isinstance(frame.method, pika.spec.Basic.Nack):
            return self._fail(TransientError(f"RabbitMQ at {self._address.shown} could not take a message"))
        with self._news:
            if frame.method.multiple:
                self._settled = {tag for tag in self._settled if tag > frame.method.delivery_tag}
                self._below = max(self._below, frame.method.delivery_tag)
            elif frame.method.delivery_tag > self._below:
                self._settled.add(frame.method.delivery_tag)
            while self._below + 1 in self._settled:
                self._below += 1
                self._settled.discard(self._below)
            self._confirmed = self._below + len(self._settled)
            self._news.notify_all()

    def _returned(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        where = f"exchange {method.exchange!r}" if method.exchange else "the default exchange"
        self._fail(
            TerminalError(
                f"{where} of RabbitMQ at {self._address.shown} has no queue for the routing key {method.routing_key!r}",
                next="bind a queue, or leave such rows out before the sink",
            )
        )

    def _tell(self, channel: Any) -> None:
        with self._news:
            self._channel = channel
            self._news.notify_all()

    def _fail(self, error: Any) -> None:
        with self._news:
            if not self._closing and self._failure is None:
                self._failure = error
            self._news.notify_all()
        if self._connection is not None and self._connection.is_closed:
            self._connection.ioloop.stop()

    def _end(self) -> None:
        if self._connection.is_open:
            self._connection.add_on_close_callback(lambda connection, error: connection.ioloop.stop())
            self._connection.close()
        else:
            self._connection.ioloop.stop()


def _texts(rows: pa.RecordBatch, column: str) -> list[Any]:
    texts: list[Any] = rows.column(column).cast(pa.string()).to_pylist()
    return texts
