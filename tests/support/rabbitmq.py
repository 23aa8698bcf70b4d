"""EmbeddedRabbitMQ: a real RabbitMQ for tests, on the loopback alone; Debian's packages, unpacked without root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from poundlock.testing.servers import ServerProcess, end, free_port, launch
from support.debian import RABBITMQ, unpacked

_CONFIG = """\
vm_memory_high_watermark.absolute = 300MB
disk_free_limit.absolute = 50MB
loopback_users = none
"""


class EmbeddedRabbitMQ(ServerProcess):
    """A broker to use in a `with` block, or by `start()` and `close()`. Durable queues survive `kill` and `start`."""

    title, log_name, start_s = "RabbitMQ", "rabbitmq.log", 600

    def __init__(self) -> None:
        super().__init__(None, "poundlock-rabbitmq-")
        self._names: subprocess.Popen[bytes] | None = None
        self._others: list[int] = []

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def connection(self) -> Any:
        """Return a connection of pika's."""
        import pika

        return pika.BlockingConnection(pika.URLParameters(self.url))

    def declare(self, queue: str, **arguments: Any) -> None:
        """Make a durable queue."""
        with closing(self.connection()) as connection:
            connection.channel().queue_declare(queue, durable=True, arguments=arguments or None)

    def publish(self, queue: str, bodies: Sequence[bytes], ids: Sequence[str | None] | None = None) -> None:
        """Put messages into a queue, confirmed by the broker."""
        import pika

        with closing(self.connection()) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for i, body in enumerate(bodies):
                channel.basic_publish(
                    "", queue, body, pika.BasicProperties(delivery_mode=2, message_id=ids[i] if ids else None)
                )

    def waiting(self, queue: str) -> list[bytes]:
        """Return the messages that are in a queue, and leave them there."""
        with closing(self.connection()) as connection:
            channel = connection.channel()
            bodies = []
            while (got := channel.basic_get(queue))[0] is not None:
                bodies.append(got[2])
            return bodies

    def _start(self, timeout: float) -> None:
        self._root = unpacked(RABBITMQ)
        erl = self._root / "usr/lib/erlang/bin/erl"
        text = erl.read_text()
        if "ROOTDIR=/usr/lib/erlang\n" in text:
            erl.write_text(text.replace("ROOTDIR=/usr/lib/erlang\n", f"ROOTDIR={self._root}/usr/lib/erlang\n"))
        if not self._others:
            first = free_port([self.port])
            self._others = [first, free_port([self.port, first])]
            (self.home / "rabbitmq.conf").write_text(_CONFIG)
            (self.home / "plugins").write_text("[].\n")
        if self._names is None:
            epmd = [str(erl.parent / "epmd"), "-port", str(self._others[1]), "-address", "127.0.0.1"]
            self._names = launch(epmd, self.home / "epmd.log", title="epmd")
        super()._start(timeout)

    def close(self) -> None:
        super().close()
        end(self._names)
        self._names = None

    def _command(self) -> list[str]:
        (server,) = (self._root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server")
        return ["/bin/sh", str(server)]

    def _environment(self) -> Mapping[str, str]:
        home, (between, names) = str(self.home), self._others
        return {
            "PATH": f"{self._root}/usr/lib/erlang/bin:{os.environ.get('PATH', os.defpath)}",
            "HOME": home,
            "LANG": "C.UTF-8",
            "NOTIFY_SOCKET": f"{home}/nobody",  # without it the shell stays beside the server it starts
            "RABBITMQ_NODENAME": f"poundlock-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(between),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_MNESIA_BASE": f"{home}/data",
            "RABBITMQ_LOG_BASE": f"{home}/log",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": f"{home}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{home}/plugins",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1",
        }

    def _answers(self) -> bool:
        with suppress(Exception):  # whatever it fails with: it does not answer yet
            self.connection().close()
            return True
        return False
