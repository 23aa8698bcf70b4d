"""EmbeddedSchemaRegistry: Apicurio's registry in a JVM of its own, with Confluent's REST interface, for trials and tests.

It keeps its schemas in memory or in its folder, listens on the loopback, and does not outlive the process that started it (on Linux). Its distribution is fetched once
from a Maven repository into the cache folder; nothing runs whose bytes did not have the pinned SHA-256.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from poundlock.errors import DefinitionError
from poundlock.spark.launch.java import cache_dir, find_java
from poundlock.testing.servers import ServerProcess, free_port

__all__ = ["APICURIO", "EmbeddedSchemaRegistry"]

APICURIO = "3.3.3"
_JAVA = 21  # what this version of Apicurio is compiled for
_SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
_REPOSITORY = "https://repo1.maven.org/maven2"
_PATH = f"io/apicurio/apicurio-registry-app/{APICURIO}/apicurio-registry-app-{APICURIO}-all.tar.gz"
_PIECE = 1 << 20

Progress = Callable[[str], None]


class EmbeddedSchemaRegistry(ServerProcess):
    """A schema registry to use in a `with` block, or by `start()` and `close()`.

    Args:
        durable: whether its schemas, and their numbers, survive `kill`: they are kept in its folder then, else in memory.
        port: of the loopback; None = any free one. It stays the same over `kill` and `start`.
        heap: most memory for its Java heap.
        progress: called with a line before its distribution is fetched; never called when it is there.
    """

    title, log_name = "the schema registry", "registry.log"
    start_s = 480  # six seconds of an idle machine's, and many times that of one whose cores others use

    def __init__(
        self, *, durable: bool = False, port: int | None = None, heap: str = "256m", progress: Progress | None = None
    ) -> None:
        super().__init__(None, "poundlock-registry-", port)
        self._durable, self._heap, self._progress = durable, heap, progress

    @property
    def url(self) -> str:
        """What a client is given: the address of Confluent's interface."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def _command(self) -> Sequence[str]:
        java = find_java(oldest=_JAVA)
        management = free_port({self.port})
        return [
            java.path,
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self.port}",
            "-Dquarkus.management.host=127.0.0.1",  # else it listens on every address
            f"-Dquarkus.management.port={management}",
            # Without a delay what was answered is on the disk, whatever kills the process afterwards.
            *([f"-Dapicurio.datasource.url=jdbc:h2:file:{self.home}/schemas;WRITE_DELAY=0"] if self._durable else []),
            "-jar",
            str(distribution(progress=self._progress) / "quarkus-run.jar"),
        ]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
            return int(answer.status) == 200
        return False


def distribution(*, progress: Progress | None = None) -> Path:
    """Return the folder of Apicurio's distribution, fetched and unpacked where it is not there yet: 159 MB.

    Raises:
        DefinitionError: it cannot be fetched, or has other bytes than pinned.
    """
    home = cache_dir() / "apicurio"
    folder = home / APICURIO
    if folder.is_dir():
        return folder
    try:
        home.mkdir(parents=True, exist_ok=True)
        with (home / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch(home, folder, progress or (lambda line: None))
    except OSError as error:
        raise DefinitionError(
            f"Apicurio {APICURIO} could not be brought to {home}: {error}",
            next=f"put {_REPOSITORY}/{_PATH} unpacked into {folder}",
        ) from error
    return folder


def _fetch(home: Path, folder: Path, progress: Progress) -> None:
    """Fetch and unpack it aside, and put it in place by one rename."""
    progress(f"fetching Apicurio Registry {APICURIO}, 159 MB, once")
    with tempfile.TemporaryDirectory(dir=home, prefix=".tmp-", ignore_cleanup_errors=True) as aside:
        archive = Path(aside) / "all.tar.gz"
        with urllib.request.urlopen(f"{_REPOSITORY}/{_PATH}", timeout=60) as answer, archive.open("wb") as file:
            shutil.copyfileobj(answer, file, _PIECE)
        with archive.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        if checksum != _SHA256:
            raise OSError(f"it has the SHA-256 {checksum}, and {_SHA256} is pinned")
        unpacked = Path(aside) / "unpacked"
        with tarfile.open(archive) as packed:
            packed.extractall(unpacked, filter="data")
        os.rename(unpacked, folder)
