"""The way to an MQTT broker: its URL, the client, and a connection that waits for answers. MQTT 5 throughout."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from poundlock.connectors.secrets import secret
from poundlock.errors import DefinitionError, PoundlockError, TransientError, required

_CONNECT_S, _ANSWER_S, _KEEP_ALIVE_S = 10.0, 60.0, 30
_FOR_EVER = 0xFFFF_FFFF
# Reasons of a refused connection that no restart mends: malformed, protocol version, client id, user or password, not authorized, banned.
_REFUSED = (0x81, 0x82, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C)


def load_paho() -> Any:
    """Return paho's module of clients. Raises DefinitionError where it is not installed."""
    required("paho.mqtt", "MQTT", "mqtt", project="paho-mqtt")
    return required("paho.mqtt.client", "MQTT", "mqtt", project="paho-mqtt")


def properties_of() -> Any:
    """Return paho's module of the properties of packets."""
    return required("paho.mqtt.properties", "MQTT", "mqtt", project="paho-mqtt")


@dataclass(frozen=True)
class MqttAddress:
    """A broker and how to log in.

    Args:
        url: "mqtt://user:password@host:1883", "mqtts://…" for TLS, or "env:NAME" or "file:PATH" where that stands.
        ca: file with the certificates by which the broker's is trusted; None = those of the system. Only for mqtts.

    Raises:
        DefinitionError: it is no such URL.
    """

    url: str = field(repr=False)
    ca: str | None = None

    def __post_init__(self) -> None:
        if self.url.startswith(("env:", "file:")):
            return
        if urlsplit(self.url).scheme not in ("mqtt", "mqtts"):
            raise DefinitionError(
                "url of MQTT does not begin with mqtt:// or mqtts://", next='write url="mqtt://user@host:1883"'
            )
        if self.ca is not None and not self.url.startswith("mqtts:"):
            raise DefinitionError("ca has no effect, because url does not begin with mqtts://", next="leave ca out")

    @property
    def shown(self) -> str:
        """Host and port, for people."""
        parts = urlsplit(secret(self.url, "url of MQTT"))
        return f"{parts.hostname}:{parts.port or (8883 if parts.scheme == 'mqtts' else 1883)}"

    def client(self, name: str) -> Any:
        """Return a client that is not connected, and never connects again by itself.

        Args:
            name: the client id; "" = the broker gives one.
        """
        paho = load_paho()
        parts = urlsplit(secret(self.url, "url of MQTT"))
        made = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=name,
            protocol=paho.MQTTv5,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        if parts.username:
            made.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        if parts.scheme == "mqtts":
            made.tls_set_context(ssl.create_default_context(cafile=self.ca))
        made.connect_timeout = _CONNECT_S
        return made


class MqttConnection:
    """A client whose loop runs in a thread of its own. Answers are waited for by `wait`, which raises what went wrong.

    Args:
        name: the client id. Another connection with the same one ends this one.
        session: whether the broker keeps subscriptions and messages for the client while it is away.
        window: most messages with QoS 1 that are on their way to this client and not acknowledged.
        on_message: called with each message, in the loop's thread.
    """

    def __init__(
        self,
        address: MqttAddress,
        name: str,
        *,
        session: bool = False,
        window: int = 65_535,
        on_message: Callable[[Any], None] | None = None,
    ) -> None:
        self.address, self._session, self._window = address, session, window
        self.news = threading.Condition()
        self.client = address.client(name)
        self.had_session = False
        self._answer: Any = None
        self._answered: set[int] = set()
        self._failure: Exception | None = None
        self.client.on_connect = self._connected
        self.client.on_disconnect = self._disconnected
        self.client.on_subscribe = self._done
        self.client.on_unsubscribe = self._done
        if on_message is not None:
            self.client.on_message = lambda client, userdata, message: on_message(message)

    def open(self) -> None:
        """Connect. Raises DefinitionError if the broker refuses this user, TransientError if none answers."""
        wanted = properties_of().Properties(properties_of().PacketTypes.CONNECT)
        wanted.ReceiveMaximum = self._window
        if self._session:
            wanted.SessionExpiryInterval = _FOR_EVER
        parts = self.address.shown.rpartition(":")
        try:
            self.client.connect(
                parts[0], int(parts[2]), _KEEP_ALIVE_S, clean_start=not self._session, properties=wanted
            )
        except OSError as error:
            raise TransientError(f"no MQTT broker answers at {self.address.shown}: {error}") from error
        self.client.loop_start()
        self.wait(lambda: self._answer is not None, "connecting", _CONNECT_S)
        if self._answer.is_failure:
            text = f"the MQTT broker at {self.address.shown} refuses the connection: {self._answer}"
            if self._answer.value in _REFUSED:
                raise DefinitionError(text, next="check user and password in url; the broker has to speak MQTT 5")
            raise TransientError(text)

    def subscribe(self, topic: str) -> None:
        """Subscribe with QoS 1. Raises DefinitionError if the broker refuses it."""
        from paho.mqtt.subscribeoptions import SubscribeOptions

        self._answer = None
        # Retained messages come when the subscription is made, and not again when it is there.
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        self._wait_for(self.client.subscribe(topic, options=options)[1], "subscribing")
        if self._answer.is_failure:
            raise DefinitionError(
                f"the MQTT broker at {self.address.shown} refuses the subscription to {topic!r}: {self._answer}",
                next="check this user's rights, and the filter",
            )

    def barrier(self) -> None:
        """Return when the broker has handled all that was sent before, and what it had sent by then is here.

        MQTT has no question for that; a subscription that nobody has is ended, which is answered in its turn.
        """
        self._wait_for(self.client.unsubscribe("poundlock/no-such-subscription")[1], "waiting for an answer")

    def wait(self, ready: Callable[[], bool], doing: str, seconds: float = _ANSWER_S) -> None:
        """Wait until it is ready. Raises TransientError if the connection broke, or nothing is answered."""
        end = time.monotonic() + seconds
        with self.news:
            while not ready():
                if self._failure is not None:
                    raise self._failure
                if not self.news.wait(max(end - time.monotonic(), 0)):
                    raise TransientError(f"the MQTT broker at {self.address.shown} does not answer, {doing}")
            if self._failure is not None:
                raise self._failure

    def fail(self, error: PoundlockError) -> None:
        """Let whoever waits know what went wrong."""
        with self.news:
            self._failure = self._failure or error
            self.news.notify_all()

    def close(self) -> None:
        """End the connection; the session stays, where there is one."""
        self.client.on_disconnect = None
        self.client.disconnect()
        self.client.loop_stop()

    def _wait_for(self, number: int, doing: str) -> None:
        self.wait(lambda: number in self._answered, doing)
        self._answered.discard(number)

    def _connected(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self.news:
            self._answer, self.had_session = reason, flags.session_present
            self.news.notify_all()

    def _disconnected(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.fail(TransientError(f"the connection to the MQTT broker at {self.address.shown} ended: {reason}"))

    def _done(self, client: Any, userdata: Any, number: int, reasons: Any, properties: Any) -> None:
        with self.news:
            self._answer = reasons[0] if reasons else None
            self._answered.add(number)
            self.news.notify_all()
