"""EmbeddedKafka: a real single-node Kafka broker in its own JVM, for trials, demos and tests.

It listens on the loopback only, writes below one folder, and does not outlive the process that started it (on Linux).
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from poundlock.errors import TransientError
from poundlock.spark.launch.jars import JAR_SETS, jar_set
from poundlock.spark.launch.java import cache_dir, find_java
from poundlock.testing.servers import ServerProcess, launch, port_to_use
from poundlock.testing.topics import Record, Topics

__all__ = ["EmbeddedKafka", "Record"]

_LOG = """
appender.file.type=File
appender.file.name=file
appender.file.fileName=${sys:broker.log}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %c{1} %m%n
rootLogger.level=warn
rootLogger.appenderRef.file.ref=file
"""


class EmbeddedKafka(ServerProcess, Topics):
    """A Kafka broker to use in a `with` block, or by `start()` and `stop()`.

    Args:
        home: folder for its data and logs; it stays afterwards and can be used again. None = a temporary one.
        port: port for clients; None = any free one. The port stays the same over `kill`, `stop` and `start`.
        heap: most memory for its Java heap, such as "256m".
        properties: further broker settings, name to value.
        client_settings: what this object's own clients need besides, such as a login where `properties` ask for one.
        java: the `java` program; default: what `find_java` finds.
        progress: called with a line at a time while jars are fetched for the first time.
    """

    title, log_name = "the Kafka broker", "broker.log"

    def __init__(
        self,
        *,
        home: str | os.PathLike[str] | None = None,
        port: int | None = None,
        heap: str = "256m",
        properties: Mapping[str, Any] | None = None,
        client_settings: Mapping[str, Any] | None = None,
        java: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(home, "poundlock-kafka-", port)
        self._client_settings = dict(client_settings or {})
        self._heap, self._properties, self._progress = heap, dict(properties or {}), progress
        self._java = java
        self._controller_port = 0
        self._admin: Any = None

    @property
    def bootstrap_servers(self) -> str:
        """Host and port for clients. Raises RuntimeError before the first start."""
        if not self._controller_port:
            raise RuntimeError(f"{self.title} was not started yet")
        return f"127.0.0.1:{self.port}"

    @property
    def _output(self) -> Path:
        return self.home / "broker.out"

    def _start(self, timeout: float) -> None:
        self._controller_port = port_to_use(self._controller_port, {self.port})
        command = self._command()
        self._prepare_folder()
        self._process = launch(command, self._output, title=self.title)
        end = time.monotonic() + timeout
        self._wait(self._answers, end)
        self._wait_for_leaders(end)

    def kill(self) -> None:
        """Kill the broker as a crash would. `start()` brings it back on the same ports and data."""
        self._admin = None
        super().kill()

    def _command(self) -> list[str]:
        return [*self._jvm(), "kafka.Kafka", str(self.home / "server.properties")]

    def _jvm(self) -> list[str]:
        java = self._java or find_java().path
        classpath = os.pathsep.join(jar_set("kafka-broker", progress=self._progress))
        return [
            java,
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dbroker.log={self.log_file}",
            f"-Dlog4j2.configurationFile={self.home / 'log4j2.properties'}",
            "-cp",
            classpath,
        ]

    def _prepare_folder(self) -> None:
        data = self.home / "data"
        data.mkdir(parents=True, exist_ok=True)
        (self.home / "log4j2.properties").write_text(_LOG)
        (self.home / "server.properties").write_text(_lines(self._settings()))
        if (data / "meta.properties").exists():
            return
        shutil.copyfile(self._formatted(), data / "bootstrap.checkpoint")
        ids = {"version": 1, "cluster.id": _kafka_id(), "node.id": 1, "directory.id": _kafka_id()}
        (data / "meta.properties").write_text(_lines(ids))

    def _formatted(self) -> Path:
        """Return the first metadata snapshot of a formatted folder, kept as it is the same for a version."""
        kept = cache_dir() / "kafka" / f"bootstrap-{JAR_SETS['kafka-broker'].digest}.checkpoint"
        if kept.exists():
            return kept
        with tempfile.TemporaryDirectory(prefix="poundlock-format-") as folder:
            conf = Path(folder) / "server.properties"
            conf.write_text(_lines({**self._settings(), "log.dirs": f"{folder}/data"}))
            command = [*self._jvm(), "kafka.tools.StorageTool", "format", "-t", _kafka_id(), "-c", str(conf)]
            done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode:
                raise TransientError(
                    f"the broker's folder could not be formatted: {(done.stdout + done.stderr)[-500:]}"
                )
            kept.parent.mkdir(parents=True, exist_ok=True)
            fresh = kept.with_name(f".tmp-{os.getpid()}-{threading.get_ident()}")
            shutil.copyfile(Path(folder) / "data" / "bootstrap.checkpoint", fresh)
            fresh.replace(kept)
        return kept

    def _settings(self) -> dict[str, Any]:
        client, controller = f"127.0.0.1:{self._port}", f"127.0.0.1:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{client}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.home / "data",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.num.partitions": 3,
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": 0,
            "log.index.size.max.bytes": 1 << 20,
            "log.cleaner.dedupe.buffer.size": 4 << 20,
            "num.network.threads": 2,
            "num.io.threads": 2,
            "background.threads": 2,
            "controlled.shutdown.enable": "false",
            # A start after a crash waits so long for the registration of the broker that is gone: nine seconds by default.
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            # Records of past years must stay: by default the broker deletes what is older than a week within seconds.
            "log.retention.ms": -1,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
            **self._properties,
        }

    def _answers(self) -> bool:
        # The bare connection first: librdkafka backs off for long when it is refused.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.5):
            return True
        return False

    def _wait_for_leaders(self, end: float) -> None:
        while True:
            metadata = self.admin.list_topics(timeout=max(1.0, end - time.monotonic()))
            # After a crash a topic of before has no leader until the controller has let the broker in again.
            if metadata.brokers and all(p.leader >= 0 for t in metadata.topics.values() for p in t.partitions.values()):
                return
            if time.monotonic() > end:
                raise TransientError(f"the topics of the Kafka broker in {self.home} have no leader")
            time.sleep(0.05)

    def _last_output(self) -> str:
        output = self._output.read_text(errors="replace")[-1500:] if self._output.exists() else ""
        return output + super()._last_output()


def _lines(properties: Mapping[str, Any]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _kafka_id() -> str:
    # Kafka's tools take an id that begins with "-" for an option; the leading byte keeps it from doing so.
    return base64.urlsafe_b64encode(b"\1" + uuid.uuid4().bytes[1:]).rstrip(b"=").decode()
