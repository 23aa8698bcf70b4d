"""EmbeddedPulsar: a real broker of Apache Pulsar for tests, with its bookie and metadata, in one JVM on the loopback alone.

The project's own distribution is fetched once from a Maven repository into the cache folder; nothing runs whose bytes did not have the pinned SHA-256.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.spark.launch.java import cache_dir, find_java
from poundlock.testing.servers import ServerProcess, free_port

VERSION = "4.0.8"
_SHA256 = "35c7d064c9e0928edbf2e708989faba0379662f98aa84ce0d4190c59efb6765e"
_URL = (
    f"https://repo1.maven.org/maven2/org/apache/pulsar/pulsar-server-distribution/{VERSION}/"
    f"pulsar-server-distribution-{VERSION}-bin.tar.gz"
)
_JAVA = 17
_OPENED = (
    "java.base/jdk.internal.loader", "java.base/sun.net", "java.base/java.io", "java.base/java.util.zip", "java.base/java.nio",
    "java.base/jdk.internal.misc", "java.base/jdk.internal.platform", "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)  # fmt: skip
"""What bin/pulsar of the distribution opens to it."""


class EmbeddedPulsar(ServerProcess):
    """A broker to use in a `with` block, or by `start()` and `close()`. Messages and subscriptions survive `kill` and `start`.

    Args:
        deduplicates: whether it knows messages again that a producer sends twice.
    """

    title, log_name, start_s = "Pulsar", "pulsar.log", 600

    def __init__(self, *, deduplicates: bool = True) -> None:
        super().__init__(None, "poundlock-pulsar-")
        self._deduplicates = deduplicates
        self._others: list[int] = []

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"pulsar://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: str = "") -> str:
        """Return the answer of the broker's administration, such as of "PUT", "persistent/public/default/t/partitions" and "3"."""
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self._others[0]}/admin/v2/{path}", body.encode() or None, headers, method=method
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return str(answer.read().decode())

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """Lend a client of pulsar-client's."""
        import pulsar

        made = pulsar.Client(
            self.url, operation_timeout_seconds=60, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        )
        try:
            yield made
        finally:
            made.close()

    def publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Send messages, confirmed by the broker."""
        with self.client() as client:
            producer = client.create_producer(topic)
            for body in bodies:
                producer.send_async(body, None)
            producer.flush()

    def read(self, topic: str) -> list[bytes]:
        """Return all messages of a topic without partitions."""
        import pulsar

        with self.client() as client:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            bodies = []
            while reader.has_message_available():
                bodies.append(reader.read_next().data())
            return bodies

    def _start(self, timeout: float) -> None:
        if not self._others:
            web = free_port([self.port])
            self._others = [web, free_port([self.port, web])]
        self._root = distribution()
        settings = {
            "brokerServicePort": str(self.port),
            "webServicePort": str(self._others[0]),
            "bindAddress": "127.0.0.1",
            "brokerDeduplicationEnabled": str(self._deduplicates).lower(),
            "numIOThreads": "2",
            "numHttpServerThreads": "8",
            "managedLedgerCacheSizeMB": "16",
            "dbStorage_writeCacheMaxSizeMb": "16",
            "dbStorage_readAheadCacheMaxSizeMb": "16",
            "dbStorage_rocksDB_blockCacheSize": str(8 << 20),
        }
        text = (self._root / "conf/standalone.conf").read_text()
        for name, value in settings.items():
            text = re.sub(rf"^{name}=.*$", f"{name}={value}", text, flags=re.MULTILINE)
        (self.home / "standalone.conf").write_text(text)
        super()._start(timeout)

    def _command(self) -> list[str]:
        return [
            find_java(oldest=_JAVA).path,
            *("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
            "-Dio.netty.tryReflectionSetAccessible=true",
            f"-Dpulsar.log.dir={self.home}",
            "-Dpulsar.log.file=rolled.log",
            "-Dpulsar.log.level=warn",
            "-cp",
            f"{self._root}/conf:{self._root}/lib/*",
            "org.apache.pulsar.PulsarStandaloneStarter",
            *("-c", str(self.home / "standalone.conf"), "-nfw", "-nss", "-a", "127.0.0.1"),
            f"--bookkeeper-port={self._others[1]}",
            f"--bookkeeper-dir={self.home}/bookkeeper",
            f"--metadata-dir={self.home}/metadata",
        ]

    def _environment(self) -> Mapping[str, str]:
        return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.home)}

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return "public/default" in self.ask("GET", "namespaces/public")
        return False


def distribution() -> Path:
    """Return the folder of Pulsar's distribution, fetched and unpacked where it is not there yet: 245 MB.

    Raises:
        DefinitionError: it cannot be fetched, or has other bytes than pinned.
    """
    home = cache_dir() / "pulsar"
    folder = home / VERSION
    try:
        home.mkdir(parents=True, exist_ok=True)
        with (home / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch(home, folder)
    except OSError as error:
        raise DefinitionError(
            f"Pulsar {VERSION} could not be brought to {home}: {error}", next=f"put {_URL} unpacked into {folder}"
        ) from error
    return folder


def _fetch(home: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home, prefix=".tmp-", ignore_cleanup_errors=True) as aside:
        archive = Path(aside) / "bin.tar.gz"
        with urllib.request.urlopen(_URL, timeout=60) as answer, archive.open("wb") as file:
            shutil.copyfileobj(answer, file, 1 << 20)
        with archive.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        if checksum != _SHA256:
            raise OSError(f"it has the SHA-256 {checksum}, and {_SHA256} is pinned")
        with tarfile.open(archive) as packed:
            packed.extractall(Path(aside) / "unpacked", filter="data")
        os.rename(Path(aside) / f"unpacked/apache-pulsar-{VERSION}", folder)
