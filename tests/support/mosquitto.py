"""EmbeddedMosquitto: a real MQTT broker for tests, on the loopback alone; Debian's packages, unpacked without root."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing, suppress

from poundlock.connectors.mqtt.connection import MqttAddress, MqttConnection
from poundlock.errors import PoundlockError
from poundlock.testing.servers import ServerProcess
from support.debian import MOSQUITTO, unpacked


class EmbeddedMosquitto(ServerProcess):
    """A broker to use in a `with` block, or by `start()` and `close()`. Sessions and messages survive `stop` and `start`."""

    title, log_name = "Mosquitto", "mosquitto.log"

    def __init__(self) -> None:
        super().__init__(None, "poundlock-mosquitto-")

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"mqtt://127.0.0.1:{self.port}"

    def session(self, client_id: str, topic: str) -> None:
        """Let the broker keep messages of a topic for a client that comes later."""
        with closing(MqttConnection(MqttAddress(self.url), client_id, session=True)) as connection:
            connection.open()
            connection.subscribe(topic)

    def _start(self, timeout: float) -> None:
        self._root = unpacked(MOSQUITTO)
        # As root it would become another user, who may not write here.
        lines = [f"listener {self.port} 127.0.0.1", "allow_anonymous true", "max_inflight_messages 0", "user root"]
        lines += ["max_queued_messages 0", "persistence true", f"persistence_location {self.home}/", "log_type error"]
        (self.home / "mosquitto.conf").write_text("\n".join(lines) + "\n")
        super()._start(timeout)

    def _command(self) -> list[str]:
        return [str(self._root / "usr/sbin/mosquitto"), "-c", str(self.home / "mosquitto.conf")]

    def _environment(self) -> Mapping[str, str]:
        libraries = ":".join(str(each) for each in (self._root / "usr/lib").glob("*-linux-gnu"))
        return {"PATH": os.environ.get("PATH", os.defpath), "LD_LIBRARY_PATH": libraries}

    def _answers(self) -> bool:
        with suppress(PoundlockError), closing(MqttConnection(MqttAddress(self.url), "")) as connection:
            connection.open()
            return True
        return False
