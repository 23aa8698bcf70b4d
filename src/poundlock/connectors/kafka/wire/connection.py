"""One connection to one broker: TLS, login and versions by kafka-python's parts, the bytes of answers read by ourselves.

It is used by one thread, and answers come in the order of the requests. After any error it is closed and not used again.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
from collections.abc import Sequence
from typing import Any

from poundlock.connectors.kafka.client_loader import kafka_python
from poundlock.connectors.kafka.login import Login, sasl_mechanism, tls_context
from poundlock.connectors.kafka.source.client_properties import FetchSettings
from poundlock.connectors.kafka.wire.produce_protocol import Topics, with_topics
from poundlock.connectors.kafka.wire.varints import SPARE
from poundlock.errors import TerminalError

_LARGEST_ANSWER = 100_000_000  # bytes, of all but fetches: more is no broker of Kafka
_KEEP_BUFFER = 16 << 20  # a buffer that one large batch needed is not kept for ever
_LOOK = "check protocol, ca, certificate, key, username and password in KafkaSecurity(…)"


class ConnectionLost(OSError):
    """The broker closed the connection, or did not answer in time."""


def readable(connections: Sequence[BrokerConnection], seconds: float) -> list[BrokerConnection]:
    """Return those with an answer, or at their end, as soon as there is one; none after so many seconds."""
    if ahead := [connection for connection in connections if connection.has_read_ahead]:
        return ahead
    waiting, by_number = select.poll(), {connection.fileno(): connection for connection in connections}
    for number in by_number:
        waiting.register(number, select.POLLIN)
    return [by_number[number] for number, _ in waiting.poll(max(seconds, 0) * 1000)]


class BrokerConnection:
    """An open connection, logged in.

    Raises:
        OSError: no connection; another try may help.
        TerminalError: the broker refuses this client.
    """

    def __init__(self, host: str, port: int, who: Login, settings: FetchSettings) -> None:
        self._name, self._host = f"{host}:{port}", host
        self._settings = settings
        self._buffer = bytearray(1 << 16)
        self._correlation = 0
        self._good_until: float | None = None
        self._parser = kafka_python("protocol.parser").KafkaProtocol(client_id=settings.client_id)
        self._versions: Any = None
        self._fetching = False
        self._socket = socket.create_connection((host, port), settings.connect_timeout_s)
        try:
            self._begin(who)
        except BaseException:
            self.close()
            raise

    def _begin(self, who: Login) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sizes = {socket.SO_RCVBUF: self._settings.receive_buffer, socket.SO_SNDBUF: self._settings.send_buffer}
        for option, size in sizes.items():
            if size is not None:
                self._socket.setsockopt(socket.SOL_SOCKET, option, size)
        try:
            if who.security.uses_tls:
                self._socket = tls_context(who).wrap_socket(self._socket, server_hostname=self._host)
            self._ask_versions()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise
        except ssl.SSLError as error:
            raise TerminalError(f"no TLS connection to Kafka at {self._name}: {error}", next=_LOOK) from error
        if who.security.uses_sasl:
            self._log_in(who)
        self.answer_within(None)

    def answer_within(self, seconds: float | None) -> None:
        """Wait so long for an answer at most from now on; None = as long as the settings say."""
        usual = self._settings.request_timeout_s + self._settings.max_wait_ms / 1000
        self._socket.settimeout(usual if seconds is None else seconds)

    def _ask_versions(self) -> None:
        request, errors = kafka_python("protocol.metadata").ApiVersionsRequest, kafka_python("errors")
        for version in (int(request.max_version), 0):
            answer = self._exchange(
                request(version=version, client_software_name="poundlock", client_software_version="1")
            )
            if answer.error_code != errors.UnsupportedVersionError.errno:
                break
        if answer.error_code:
            raise ConnectionLost(f"{self._name} answers {errors.for_code(answer.error_code).__name__}")
        known = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self._versions = kafka_python("protocol.broker_version_data").BrokerVersionData(api_versions=known)

    def _log_in(self, who: Login) -> None:
        sasl, errors = kafka_python("protocol.sasl"), kafka_python("errors")
        mechanism = sasl_mechanism(who, self._host)
        name = str(who.security.mechanism)
        shake = self.request(sasl.SaslHandshakeRequest(mechanism=name, min_version=1, max_version=1))
        if shake.error_code:
            raise TerminalError(
                f"Kafka at {self._name} does not take the SASL mechanism {name}, it takes {', '.join(shake.mechanisms)}",
                next=_LOOK,
            )
        lifetime_ms = 0
        while not mechanism.is_done():
            answer = self.request(sasl.SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes()))
            if answer.error_code:
                kind = errors.for_code(answer.error_code).__name__
                raise TerminalError(
                    f"Kafka at {self._name} refuses this user: {answer.error_message or kind}", next=_LOOK
                )
            try:
                mechanism.receive(answer.auth_bytes)
            except (ValueError, KeyError) as error:  # the server does not prove that it knows the password
                raise TerminalError(f"Kafka at {self._name}: the login fails: {error}", next=_LOOK) from error
            lifetime_ms = int(getattr(answer, "session_lifetime_ms", 0) or 0)
        if lifetime_ms:
            self._good_until = time.monotonic() + 0.8 * lifetime_ms / 1000

    @property
    def is_fresh(self) -> bool:
        """Whether the login still holds; a broker cuts off who does not log in again in time."""
        return self._good_until is None or time.monotonic() < self._good_until

    def versions_of(self, api: int) -> tuple[int, int]:
        """Return the lowest and highest version of a request that the broker knows; (0, -1) if it does not know it."""
        low, high = self._versions.api_versions.get(api, (0, -1))
        return int(low), int(high)

    @property
    def awaits_answer(self) -> bool:
        """Whether something was sent whose answer was not received; such a connection cannot be used for anything else."""
        return self._fetching or bool(self._parser.in_flight_requests)

    def request(self, request: Any) -> Any:
        """Send a request made of kafka-python's classes and return the answer, of its classes too."""
        self.send_request(request)
        return self.answer()

    def send_request(self, request: Any) -> None:
        """Send a request made of kafka-python's classes; others may follow before its answer is received."""
        request.API_VERSION = self._versions.api_version(request)
        self._send(request)

    def send_produce(self, request: Any, topics: Topics) -> None:
        """Send a Produce request that has no topics as yet, with these; others may follow before its answer is received."""
        request.API_VERSION = self._versions.api_version(request)
        self._parser.send_request(request)
        pieces = with_topics(self._parser.send_bytes(), topics, request.API_VERSION)
        if isinstance(self._socket, ssl.SSLSocket):  # it would make a record of each
            pieces = [b"".join(pieces)]
        for piece in pieces:
            self._socket.sendall(piece)

    def _exchange(self, request: Any) -> Any:
        self._send(request)
        return self.answer()

    def _send(self, request: Any) -> None:
        self._parser.send_request(request)
        self._socket.sendall(self._parser.send_bytes())

    def fileno(self) -> int:
        """Return the number of the socket, to wait by."""
        return self._socket.fileno()

    @property
    def has_read_ahead(self) -> bool:
        """Whether TLS has read bytes already, so that the socket may not show that an answer is there."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def answer(self) -> Any:
        """Return the answer to the oldest request that has none yet."""
        body = self._receive(_LARGEST_ANSWER)
        ((_, answer),) = self._parser.receive_bytes(struct.pack(">i", len(body)) + bytes(body))
        return answer

    # -- fetches -------------------------------------------------------------------------------------------------------

    def next_correlation(self) -> int:
        """Return the number for the next fetch."""
        self._correlation = (self._correlation + 1) % (1 << 30)
        return self._correlation

    def send(self, frame: bytes) -> None:
        """Send an encoded fetch request, its length in front."""
        self._fetching = True
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        """Return the answer to the fetch that was sent with SPARE bytes behind it; valid until the next call."""
        size = len(self._receive((1 << 31) - 1))
        answer = memoryview(self._buffer)[: size + SPARE]
        self._fetching = False
        if struct.unpack_from(">i", answer)[0] != self._correlation:
            raise ConnectionLost(f"{self._name} answers another request than was sent")
        return answer

    def _receive(self, largest: int) -> memoryview:
        head = memoryview(bytearray(4))
        self._fill(head)
        (size,) = struct.unpack(">i", head)
        if not 0 <= size <= largest:
            raise ConnectionLost(f"{self._name} does not speak Kafka's protocol here; is it a port for TLS?")
        if len(self._buffer) < size + SPARE or len(self._buffer) > max(_KEEP_BUFFER, size + SPARE):
            self._buffer = bytearray(size + SPARE)
        view = memoryview(self._buffer)[:size]
        self._fill(view)
        return view

    def _fill(self, view: memoryview) -> None:
        at, size, receive = 0, len(view), self._socket.recv_into
        while at < size:
            try:
                got = receive(view[at:])
            except TimeoutError as error:
                raise ConnectionLost(f"{self._name} did not answer in time") from error
            if not got:
                raise ConnectionLost(f"{self._name} closed the connection")
            at += got

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._socket.close()
