"""EmbeddedCassandra: a real Cassandra node of its own, for trials and tests.

It listens on the loopback only, writes below one folder, and does not outlive the process that started it (on Linux).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from poundlock.spark.launch.jars import jar_set
from poundlock.spark.launch.java import find_java
from poundlock.testing.servers import ServerProcess, port_to_use

CASSANDRA = "5.0.9"
_MAIN = "org.apache.cassandra.service.CassandraDaemon"
_EXPORTS = {
    "java.base": ["jdk.internal.misc", "jdk.internal.ref", "sun.nio.ch"],
    "java.management.rmi": ["com.sun.jmx.remote.internal.rmi"],
    "java.rmi": ["sun.rmi.registry", "sun.rmi.server", "sun.rmi.transport.tcp"],
    "java.sql": ["java.sql"],
    "jdk.unsupported": ["sun.misc"],
}
_OPENS = {
    "java.base": [
        "java.io", "java.lang", "java.lang.module", "java.lang.reflect", "java.math", "java.net", "java.nio", "java.util",
        "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.loader", "jdk.internal.math", "jdk.internal.module",
        "jdk.internal.ref", "jdk.internal.reflect", "jdk.internal.util.jar", "sun.nio.ch", "sun.security.ssl",
    ],
    "jdk.management": ["com.sun.management.internal"],
}  # fmt: skip
"""What the server's own script opens for it on Java 17."""
_LOGGING = """<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%-5level %date{ISO8601} %msg%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="STDOUT" /></root>
</configuration>
"""


class EmbeddedCassandra(ServerProcess):
    """A Cassandra node, a cluster of one, to use in a `with` block, or by `start()` and `stop()`. Everybody may do everything.

    Args:
        home: folder for its data and log; it stays afterwards and can be used again. None = a temporary one.
        port: TCP port of its native protocol on 127.0.0.1; None = any free one. It stays the same over `kill`, `stop` and `start`.
        heap: of its JVM, as Java writes it; the process takes some 400 MB more.
        settings: further settings of cassandra.yaml, name to value.
        java: the Java to run on, 17; None = the one that Spark runs on.
        progress: called with a line at a time while its jars, 66 MB, are fetched, once.
    """

    title = "the Cassandra node"
    start_s = 420

    def __init__(
        self,
        *,
        home: str | os.PathLike[str] | None = None,
        port: int | None = None,
        heap: str = "384m",
        settings: Mapping[str, Any] | None = None,
        java: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(home, "poundlock-cassandra-", port)
        self._heap, self._java, self._progress = heap, java, progress
        self._settings: dict[str, Any] = dict(settings or {})
        self._others: list[int | None] = [None, None]  # ports between nodes, and of JMX
        self._cluster: Any = None

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return [tuple(row) for row in self.session().execute(statement, values or None)]

    def session(self) -> Any:
        """Return a session of the client, which stays until the node is stopped."""
        if self._cluster is None:
            from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
            from cassandra.policies import RoundRobinPolicy

            profile = ExecutionProfile(RoundRobinPolicy(), request_timeout=60)
            profiles = {EXEC_PROFILE_DEFAULT: profile}
            cluster = Cluster(["127.0.0.1"], port=self.port, execution_profiles=profiles, protocol_version=4)
            self._cluster = cluster.connect()
        return self._cluster

    def kill(self) -> None:
        """Kill it as a crash would. `start()` brings it back on the same port and data."""
        session, self._cluster = self._cluster, None
        if session is not None:
            session.cluster.shutdown()
        super().kill()

    def _command(self) -> list[str]:
        taken = {self.port}
        for number, port in enumerate(self._others):
            self._others[number] = port_to_use(port, taken)
            taken.add(self._others[number] or 0)
        storage, jmx = self._others
        self.home.mkdir(parents=True, exist_ok=True)
        config, logging = self.home / "cassandra.yaml", self.home / "logback.xml"
        config.write_text(json.dumps(self._yaml(storage), indent=1))  # JSON is YAML
        logging.write_text(_LOGGING)
        jars = jar_set("cassandra", progress=self._progress)
        agent = next(jar for jar in jars if Path(jar).name.startswith("jamm-"))
        defined = {
            "cassandra.config": config.as_uri(),
            "cassandra.storagedir": self.home,
            "cassandra-foreground": "yes",
            "cassandra.jmx.local.port": jmx,
            "cassandra.skip_wait_for_gossip_to_settle": 0,
            "cassandra.ring_delay_ms": 100,
            "cassandra.superuser_setup_delay_ms": 0,
            "cassandra.native.epoll.enabled": "false",  # its native parts are not fetched
            "logback.configurationFile": logging.as_uri(),
            "jdk.attach.allowAttachSelf": "true",
            "java.io.tmpdir": self.home,
        }
        return [
            self._java or find_java().path,
            f"-Xms{self._heap}",
            f"-Xmx{self._heap}",
            "-Xss512k",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-javaagent:{agent}",
            *(f"--add-exports={m}/{p}=ALL-UNNAMED" for m, packages in _EXPORTS.items() for p in packages),
            *(f"--add-opens={m}/{p}=ALL-UNNAMED" for m, packages in _OPENS.items() for p in packages),
            *(f"-D{name}={value}" for name, value in defined.items()),
            "-cp",
            os.pathsep.join(jars),
            _MAIN,
        ]

    def _yaml(self, storage_port: int | None) -> dict[str, Any]:
        seeds = [{"seeds": f"127.0.0.1:{storage_port}"}]
        provider = {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": seeds}
        return {
            "cluster_name": "poundlock",
            "num_tokens": 1,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch": "SimpleSnitch",
            "commitlog_sync": "periodic",
            "commitlog_sync_period": "10000ms",  # a process that is killed loses nothing; only a machine would
            "seed_provider": [provider],
            "listen_address": "127.0.0.1",
            "rpc_address": "127.0.0.1",
            "storage_port": storage_port,
            "native_transport_port": self.port,
            "memtable_allocation_type": "heap_buffers",
            "data_file_directories": [str(self.home / "data")],
            "commitlog_directory": str(self.home / "commitlog"),
            "hints_directory": str(self.home / "hints"),
            "saved_caches_directory": str(self.home / "saved_caches"),
            "cdc_raw_directory": str(self.home / "cdc_raw"),
            **self._settings,
        }

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 2) as connection:
            connection.sendall(b"\x04\x00\x00\x00\x05\x00\x00\x00\x00")  # OPTIONS of version 4: what do you speak?
            return bool(connection.recv(1))
        return False
